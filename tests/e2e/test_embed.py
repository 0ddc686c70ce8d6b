"""Kernels inside compiled graphs, run for real on the CPU: every spelling, static and dynamic, equal to eager."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

from agentinductor import device
from agentinductor.backend import graph_pass, operators, report
from agentinductor.codegen.reference import evaluate
from tests.support.forced import Forced
from tests.unit.test_lower import CASES

pytestmark = pytest.mark.skipif(device.compiler() is None, reason="no C++ compiler on this machine")


def run(function, args, tmp_path, dynamic=False, pick=0):
    torch._dynamo.reset()
    with report.collecting() as reports:
        result = torch.compile(function, backend=Forced("cpp", tmp_path, pick=pick), dynamic=dynamic)(*args)
    return result, sum(r.kernels for r in reports)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", ["rms_norm", "add_rms_norm", "qk_norm_rope", "masked_softmax", "channels_first_norm", "window_view",
                                  "transposed_output", "strided_input", "int_mask", "bool_reduction", "split_gate"])
def test_equals_eager(name, dynamic, tmp_path):
    function, args = CASES[name]
    with torch.no_grad():
        got, kernels = run(function, args, tmp_path, dynamic)
        want = function(*args)
    torch.testing.assert_close(got, want, equal_nan=True)
    assert kernels >= 1 or dynamic  # dynamic slices are Inductor's
    for a, b in zip(got if isinstance(got, tuple) else (got,), want if isinstance(want, tuple) else (want,), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape and a.stride() == b.stride()


def test_batch_sizes_share_one_graph(tmp_path):
    function, (x, w) = CASES["rms_norm"]
    backend = Forced("cpp", tmp_path)
    torch._dynamo.reset()
    compiled = torch.compile(function, backend=backend, dynamic=True)
    with torch.no_grad():
        for batch in (3, 2, 5, 17, 1, 8):
            x = torch.randn(batch, 6, 64)
            torch.testing.assert_close(compiled(x, w), function(x, w))


def test_zero_rows(tmp_path):
    function, (_, w) = CASES["rms_norm"]
    with torch.no_grad():
        got, _ = run(function, (torch.randn(0, 6, 64), w), tmp_path)
    assert got.shape == (0, 6, 64)


def test_gradients(tmp_path):
    """Forward and backward graphs both go through the pass: gradients equal eager's."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 32), nn.Softmax(-1))
    x = torch.randn(10, 32, requires_grad=True)
    got, kernels = run(model, (x,), tmp_path)
    got.square().sum().backward()
    mine = [p.grad.clone() for p in [x, *model.parameters()]]
    for p in [x, *model.parameters()]:
        p.grad = None
    model(x).square().sum().backward()
    for a, p in zip(mine, [x, *model.parameters()], strict=True):
        torch.testing.assert_close(a, p.grad, rtol=1e-4, atol=1e-5)
    assert kernels >= 2


def test_mutation_and_aliases(tmp_path):
    """In-place updates, views of inputs returned as outputs, and weights changed in place behave as in eager."""
    def function(x, w, counter):
        counter.add_(1)
        y = F.layer_norm(x * 2, (16,), w)
        x.mul_(0.5)
        return y, x.view(-1), y.t()

    def data():
        torch.manual_seed(1)
        return torch.randn(8, 16), torch.randn(16), torch.zeros(1)

    mine, theirs = data(), data()
    with torch.no_grad():
        got, _ = run(function, mine, tmp_path)
        want = function(*theirs)
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(mine, theirs)
    assert got[1].data_ptr() == mine[0].data_ptr()


def test_weights_are_read_at_each_call(tmp_path):
    model = nn.LayerNorm(64)
    x = torch.randn(9, 64)
    torch._dynamo.reset()
    compiled = torch.compile(model, backend=Forced("cpp", tmp_path))
    with torch.no_grad():
        compiled(x)
        model.weight.mul_(3)
        torch.testing.assert_close(compiled(x), model(x))
        model.load_state_dict({"weight": torch.randn(64), "bias": torch.randn(64)}, assign=True)
        torch.testing.assert_close(compiled(x), model(x))


def test_misaligned_and_strided_inputs(tmp_path):
    function = CASES["gelu_bias_residual"][0]
    base = torch.randn(7 * 48 + 1)
    x, b, y = base[1:].view(7, 48), torch.randn(96)[::2], torch.randn(48, 7).t()
    with torch.no_grad():
        got, kernels = run(function, (x, b, y), tmp_path)
    torch.testing.assert_close(got, function(x, b, y))
    assert kernels == 1


def test_overlapping_inputs_with_mutation(tmp_path):
    """Where inputs overlap and one is mutated, the result equals stock Inductor's."""
    def function(a, b):
        a.add_(1)
        return (a * b).relu() + 1

    def data():
        base = torch.arange(300.0)
        return base[:256], base[10:266]

    with torch.no_grad():
        got, _ = run(function, data(), tmp_path)
        torch._dynamo.reset()
        want = torch.compile(function)(*data())
    torch.testing.assert_close(got, want)


def test_row_buffers_hold_every_size(tmp_path):
    """A kernel that is for rows up to some length takes no place in a graph whose rows may grow past it."""
    backend = Forced("cpp", tmp_path)
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: torch.softmax(x * 2, -1), backend=backend, dynamic=True)
    with torch.no_grad():
        for columns in (100, 40000, 400000):
            x = torch.randn(2, columns)
            torch.testing.assert_close(compiled(x), torch.softmax(x * 2, -1))


def test_a_region_reads_what_took_another_region_s_place(tmp_path):
    """Two regions in a row: the first one's kernel runs, and nothing is computed twice."""
    def function(x):
        return torch.softmax(torch.softmax(x * 2, -1), 0)

    x = torch.randn(64, 96)
    torch._dynamo.reset()
    compiled = torch.compile(function, backend=Forced("cpp", tmp_path))
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), function(x))
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            compiled(x)
    assert sum(event.name == "agentinductor::run" for event in profiler.events()) == 2


def test_regions_that_need_each_other(tmp_path):
    """Each of two row-wise loops reads the other's reduction: as two kernels they would wait for each other."""
    def function(x, y):
        q, p = x + 1, y * 2
        a, c = q.sum(-1), p.sum(-1)
        return q * c[:, None], p + a[:, None]

    args = (torch.randn(64, 96), torch.randn(64, 48))
    with torch.no_grad():
        got, kernels = run(function, args, tmp_path)
    torch.testing.assert_close(got, function(*args), rtol=1e-5, atol=1e-4)
    assert kernels >= 1


def test_dynamic_sizes_run_on_kernels(tmp_path):
    """A symbolic batch is no reason to leave a kernel out: its guards end far above what memory can hold."""
    function = CASES["rms_norm"][0]
    torch._dynamo.reset()
    with report.collecting() as reports, torch.no_grad():
        x = torch.randn(5, 6, 64)
        torch._dynamo.mark_dynamic(x, 0)
        torch.compile(function, backend=Forced("cpp", tmp_path))(x, torch.randn(64))
    assert any(record.kernel for r in reports for record in r.regions), [record.decision for r in reports for record in r.regions]


def test_cat_with_a_constant(tmp_path):
    """The backward of a slice lays zeros beside a gradient: a part that varies over nothing has an axis too."""
    def function(x):
        y = x[3:] * 2
        return (y / (y.abs() + 0.5)).square().sum()

    x = torch.randn(6, 40, requires_grad=True)
    run(function, (x,), tmp_path)[0].backward()
    mine, x.grad = x.grad, None
    function(x).backward()
    torch.testing.assert_close(mine, x.grad)


def test_strides_of_one_element(tmp_path):
    """Dims of one element keep the strides that callers see."""
    x = torch.randn(1, 6, 16, 12)[..., ::2].transpose(1, 2)
    with torch.no_grad():
        got, kernels = run(lambda x: (x * 2).relu() + 1, (x,), tmp_path)
    assert got.stride() == ((x * 2).relu() + 1).stride()
    assert kernels == 1


def test_any_of_bytes_is_one(tmp_path):
    x = torch.arange(96, dtype=torch.uint8).view(4, 24)

    def function(x):
        return (x & 6).any(-1), (x * 2).all(-1, keepdim=True) + 1, (x[:, :1] * 2).any(-1) + 1

    got, kernels = run(function, (x,), tmp_path)
    torch.testing.assert_close(got, function(x))
    assert kernels >= 1


def test_random_draws_keep_their_order(tmp_path, monkeypatch):
    """A draw that waits for a kernel's result stays in front of the draw behind it."""
    monkeypatch.setattr(graph_pass, "fused_neighbour", lambda region: None)

    def function(x):
        y = (x * 2).sigmoid() + 0.1
        first = torch.multinomial(y, 2)
        second = torch.rand_like(x)
        return first, (y + 1).exp(), (y + second).exp()

    x, results = torch.randn(8, 24), []
    with torch.no_grad(), torch._inductor.config.patch(fallback_random=True):
        for call in (lambda: run(function, (x,), tmp_path)[0], lambda: function(x)):
            torch.manual_seed(3)
            results.append(call())
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("function", [
    lambda x: ((x * 2)[:, None] - (x * 2)[None]).square().sum(),
    lambda x: (x[:, None] * 2 - x).abs().amax(),
    lambda x: ((x @ x.t()).exp() * 2 + (x @ x.t()).exp().t()).sum(),
], ids=["distances", "outer", "transpose"])
def test_a_tensor_that_meets_itself(function, tmp_path):
    """One axis cannot stand for two dims of a value, even where nothing but their sum leaves the region."""
    x = torch.randn(12, 10)
    with torch.no_grad():
        got, _ = run(function, (x,), tmp_path)
    torch.testing.assert_close(got, function(x))


def test_a_failed_embedding_leaves_a_whole_graph(tmp_path):
    """A size that cannot be had from the inputs is found out half way: the graph stays Inductor's."""
    def function(x):
        y = (x - x)[..., 1:] * 2
        return F.leaky_relu(torch.cat([y, y + 1], 1), 0.1), y

    x = torch.randn(2, 3, 16)
    with torch.no_grad():
        got, _ = run(function, (x,), tmp_path, dynamic=True)
    torch.testing.assert_close(got, function(x))


def test_promised_layouts_hold_at_run_time(tmp_path):
    """A tensor that arrives in other strides than were promised is copied, not misread."""
    function, args = CASES["gelu_bias_residual"]
    backend = Forced("cpp", tmp_path)
    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(function, backend=backend, dynamic=False)(*args)
    (definition, solution), = backend.solutions.values()
    operators.prepare(definition, solution)
    inputs = [torch.randn(tuple(definition.sizes({"rows": 5})[a] for a in spec.shape)) for spec in definition.inputs]
    wants = evaluate(definition, inputs)
    odd = [t.t().contiguous().t() if t.dim() == 2 else torch.stack([t, t], 1)[:, 0] for t in inputs]
    got, = operators.run_op(odd, solution.digest, list(wants[0].shape), list(wants[0].stride()), [2], [operators.NAMES.index("float32")])
    torch.testing.assert_close(got, wants[0])
