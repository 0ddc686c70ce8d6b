"""Public reports of other compilers' and kernels' faults: with kernels in every region, each ends as with stock Inductor."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from agentinductor import device
from agentinductor.backend import graph_pass, report
from tests.support.forced import Forced

pytestmark = pytest.mark.skipif(device.compiler() is None, reason="no C++ compiler on this machine")

_library = torch.library.Library("agentinductor_reports", "FRAGMENT")
_library.define("reverse(Tensor(a!) out, Tensor x) -> ()")
_library.define("double(Tensor x) -> Tensor")


def _reverse(out, x) -> None:
    out.copy_(x.flip(0))


_library.impl("reverse", _reverse, "CPU")
_library.impl("double", lambda x: x * 2, "CPU")
torch.library.register_fake("agentinductor_reports::reverse", lambda out, x: None, lib=_library)
torch.library.register_fake("agentinductor_reports::double", lambda x: torch.empty_like(x), lib=_library)
reverse, double = torch.ops.agentinductor_reports.reverse, torch.ops.agentinductor_reports.double


@pytest.fixture
def compiled(tmp_path, monkeypatch):
    """torch.compile with kernels in every region."""
    monkeypatch.setattr(graph_pass, "fused_neighbour", lambda region: None)
    torch._dynamo.reset()
    return lambda function, **options: torch.compile(function, backend=Forced("cpp", tmp_path), **options)


def stock(function, *args, **options):
    torch._dynamo.reset()
    return torch.compile(function, **options)(*args)


def kernels(function, *args):
    with report.collecting() as reports:
        result = function(*args)
    return result, sum(r.kernels for r in reports)


def test_pytorch_198031_mutating_op_after_clone(compiled):
    def function(x):
        x = (x * 2).relu()
        y = x.clone()
        reverse(y, x)
        return (y * 3).sigmoid(), x

    x = torch.randn(64)
    with torch.no_grad():
        torch.testing.assert_close(compiled(function)(x), stock(function, x))


def test_pytorch_198095_overlapping_inputs_one_mutated(compiled):
    def function(a, b):
        a.mul_(2).add_(1)
        return (b * 2).relu(), a[1:]

    def data():
        base = torch.arange(65.0)
        return base, base[1:]

    with torch.no_grad():
        mine, theirs = data(), data()
        torch.testing.assert_close(compiled(function)(*mine), stock(function, *theirs))
        torch.testing.assert_close(mine, theirs)


def test_pytorch_196657_one_tensor_twice(compiled):
    def function(a, b):
        a.add_(1)
        return (a * b).relu() + 1

    def data():
        x = torch.arange(64.0)
        return x, x

    with torch.no_grad():
        mine, theirs = data(), data()
        torch.testing.assert_close(compiled(function)(*mine), function(*theirs))
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("n", [8, 5])
def test_pytorch_134278_result_is_a_view_of_an_input(compiled, n):
    def function(x):
        y = torch.narrow(x, 0, 0, n)
        return y, (y * 2).relu() + 1

    x, other = torch.randn(8, 4), None
    other = x.clone()
    with torch.no_grad():
        view, value = compiled(function)(x)
        want, expected = function(other)
    assert view.data_ptr() == x.data_ptr() and view.stride() == want.stride()
    torch.testing.assert_close((view, value), (want, expected))
    view.zero_()
    assert (x[:n] == 0).all()


@pytest.mark.parametrize(
    "make",
    [
        lambda base: base[:16, :16].t(),
        lambda base: base[:1, :16].expand(16, 16),
        lambda base: base[::2, ::2][:16, :16],
        lambda base: base.flatten()[1:257].view(16, 16),
        lambda base: base.t()[3:19, 5:21],
    ],
    ids=["transposed", "expanded", "stepped", "offset", "window"],
)
def test_pytorch_137437_strides_of_inputs(compiled, make):
    def function(x, w):
        return F.layer_norm((x * 2).relu(), (16,), w), x.sigmoid() + w

    x, w = make(torch.randn(48, 48)), torch.randn(16)
    with torch.no_grad():
        got, count = kernels(compiled(function), x, w)
        torch.testing.assert_close(got, function(x, w))
    assert count


def test_pytorch_137437_strides_behind_an_opaque_op(compiled):
    """A custom op, a convolution and a matmul decide their own strides: the kernel reads what is there."""
    convolution = nn.Conv2d(4, 8, 3, padding=1).eval()

    def function(x):
        y = double(x.permute(0, 2, 3, 1).contiguous()).permute(0, 3, 1, 2)
        z = convolution(y.to(memory_format=torch.channels_last))
        return torch.softmax(z * 2, 1), (z.mean((2, 3)) + 1).relu()

    x = torch.randn(2, 4, 6, 6)
    with torch.no_grad():
        got, want = compiled(function)(x), stock(function, x)
    torch.testing.assert_close(got, want)
    assert [t.stride() for t in got] == [t.stride() for t in want]


@pytest.mark.parametrize("shape", [(2, 4, 6, 6), (2, 1, 6, 6), (1, 4, 1, 6), (2, 4, 1, 1)])
def test_pytorch_179442_channels_last_is_kept(compiled, shape):
    def function(x):
        return (x * 2).relu() + 1, F.normalize(x * 2, dim=1)

    x = torch.randn(shape).to(memory_format=torch.channels_last)
    with torch.no_grad():
        got, want = compiled(function)(x), stock(function, x)
    torch.testing.assert_close(got, want)
    assert [t.stride() for t in got] == [t.stride() for t in want]


def test_pytorch_151589_misaligned_input(compiled):
    def function(x):
        return (x * 2).relu().exp()

    f = compiled(function)
    with torch.no_grad():
        for x in (torch.randn(257)[1:], torch.randn(260)[4:], torch.randn(256)):
            torch.testing.assert_close(f(x), function(x))


@pytest.mark.parametrize("dynamic", [None, True, False])
def test_tensorrt_3148_one_graph_many_sizes(compiled, dynamic):
    def function(x, w):
        return torch.softmax(x * w, -1) + 1

    f = compiled(function, dynamic=dynamic)
    with torch.no_grad():
        for n in (8, 5, 17, 1, 0, 2, 1025):
            x, w = torch.randn(n, 24), torch.randn(24)
            torch.testing.assert_close(f(x, w), function(x, w))


def test_pytorch_150540_sizes_that_depend_on_data(compiled):
    def function(x):
        y = x[x.nonzero().squeeze(1)]
        return (y * 2).relu() + 1, (x * 3).sigmoid()

    f = compiled(function)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True), torch.no_grad():
        for x in (torch.arange(-8.0, 8), torch.zeros(16), torch.ones(16)):
            torch.testing.assert_close(f(x), function(x))


def test_pytorch_93784_nan_and_signed_zero(compiled):
    def function(x, y):
        return (
            x.clamp(-1, 1) * 1,
            torch.relu(x) * 1,
            torch.maximum(x, y) * 1,
            torch.minimum(x, y) + 0,
            x.amax(-1) * 1,
            x.amin(-1) * 1,
            torch.softmax(x, -1),
            torch.where(x == x, x, y) * 1,
            x.sign() * 1,
            torch.sigmoid(x),
            torch.tanh(x),
        )

    odd = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1.0, 1e-40, 3e38])
    x, y = odd.repeat(8, 1), odd.repeat_interleave(8).view(8, 8)
    with torch.no_grad():
        torch.testing.assert_close(compiled(function)(x, y), function(x, y), equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_pytorch_181568_rounding_points(compiled, dtype):
    """Further from float64 than eager or stock is wrong; nearer is not."""

    def function(x, b):
        return ((x * 1.7).to(dtype) + b).to(dtype) * 0.3

    x, b = torch.randn(64, 64), torch.randn(64).to(dtype)
    truth = (x.double() * 1.7 + b.double()) * 0.3
    with torch.no_grad():
        errors = [(out.double() - truth).abs().max() for out in (compiled(function)(x, b), function(x, b), stock(function, x, b))]
    assert errors[0] <= 1.01 * max(errors[1:])


@pytest.mark.slow
def test_triton_832_offsets_beyond_32_bits(compiled):
    def function(x):
        return (x ^ 5) + 1

    x = torch.zeros(2**31 + 64, dtype=torch.uint8)
    x[-64:] = 3
    with torch.no_grad():
        got = compiled(function)(x)
    assert (got[-64:] == 7).all() and (got[:64] == 6).all()


def test_triton_1058_stride_product_beyond_32_bits(compiled):
    """Few elements, far apart."""
    base = torch.empty(2**31 + 4096, dtype=torch.uint8)
    x = base.as_strided((3, 16), (2**30, 1))
    x.copy_(torch.arange(48, dtype=torch.uint8).view(3, 16))

    def function(x):
        return (x ^ 5) + 1

    with torch.no_grad():
        torch.testing.assert_close(compiled(function)(x), function(x))


def test_liger_272_saved_tensors_stay(compiled):
    def function(x, target):
        p = torch.softmax(x * 2, -1)
        return F.cross_entropy(p, target) + p.square().sum()

    torch.manual_seed(0)
    x, target = torch.randn(8, 24), torch.randint(0, 24, (8,))
    mine, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    loss = compiled(function)(mine, target)
    loss.backward(retain_graph=True)
    function(theirs, target).backward()
    torch.testing.assert_close(mine.grad, theirs.grad)
    torch.testing.assert_close(mine.detach(), x, rtol=0, atol=0)


def test_pytorch_119957_gradients_reach_every_input(compiled):
    def function(x, w, b):
        return F.gelu(F.layer_norm(x, (24,), w, b)) * x.sigmoid()

    args = [torch.randn(8, 24), torch.randn(24), torch.randn(24)]
    grads = []
    for f in (compiled(function), function):
        leaves = [a.clone().requires_grad_() for a in args]
        f(*leaves).square().sum().backward()
        grads.append([leaf.grad for leaf in leaves])
    torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-4)


def test_hidet_383_toggles(compiled):
    """autocast, gradients and determinism on and off: each call as eager's in the same mode."""
    model = nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16), nn.GELU())
    f, x = compiled(model), torch.randn(8, 16)
    for autocast, grad, deterministic in ((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0), (0, 0, 0)):
        torch.use_deterministic_algorithms(bool(deterministic))
        try:
            with torch.autocast("cpu", enabled=bool(autocast)), torch.set_grad_enabled(bool(grad)):
                got, want = f(x), model(x)
        finally:
            torch.use_deterministic_algorithms(False)
        assert got.requires_grad == want.requires_grad and got.dtype == want.dtype
        tolerance = 2e-2 if autocast else 1e-4
        torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("fallback", [False, True])
def test_pytorch_192635_random_order(compiled, fallback):
    """Masks and the generator's state after the call are stock Inductor's; with fallback_random, eager's."""

    def function(x):
        a = (x * 2).relu()
        mask = torch.bernoulli(a.sigmoid())
        noise = torch.rand_like(x)
        return (a + noise).exp(), mask, F.dropout(a * 3, 0.5) + 1

    x = torch.randn(8, 24)
    results = []
    with torch.no_grad(), torch._inductor.config.patch(fallback_random=fallback):
        for f in (compiled(function), lambda x: stock(function, x), function):
            torch.manual_seed(5)
            out = f(x)
            results.append((out, torch.rand(4)))
    torch.testing.assert_close(results[0], results[2 if fallback else 1])


def test_pytorch_136505_no_value_is_frozen(compiled):
    model = nn.LayerNorm(24)
    f, x = compiled(lambda x: torch.relu(model(x * 2))), torch.randn(8, 24)
    with torch.no_grad():
        for change in (
            lambda: None,
            lambda: model.weight.mul_(3),
            lambda: setattr(model.weight, "data", torch.randn(24)),
            lambda: model.load_state_dict({"weight": torch.randn(24), "bias": torch.randn(24)}, assign=True),
        ):
            change()
            torch.testing.assert_close(f(x), torch.relu(model(x * 2)))


@pytest.mark.parametrize(
    "make",
    [
        lambda z: z,
        lambda z: z.conj(),
        lambda z: z.conj().imag,
        lambda z: z.real,
        lambda z: torch.view_as_real(z)[..., 1],
    ],
    ids=["complex", "conjugate", "negative", "real", "strided"],
)
def test_pytorch_188718_complex(compiled, make):
    def function(x):
        return (x * 2 + 1) * x, (x.abs() * 2).exp()

    x = make(torch.randn(8, 16, dtype=torch.complex64))
    with torch.no_grad():
        got, want = compiled(function)(x), function(x)
    torch.testing.assert_close(got, want)
    assert [(t.dtype, t.is_neg(), t.is_conj()) for t in got] == [(t.dtype, t.is_neg(), t.is_conj()) for t in want]


def test_pytorch_167074_subclasses(compiled):
    two_tensor = pytest.importorskip("torch.testing._internal.two_tensor")

    def function(x):
        return torch.softmax(x * 2, -1) + 1

    a, b = torch.randn(8, 24), torch.randn(8, 24)
    with torch.no_grad():
        got = compiled(function)(two_tensor.TwoTensor(a, b))
    torch.testing.assert_close((got.a, got.b), (function(a), function(b)))


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.randn(0, 8),
        lambda: torch.randn(()),
        lambda: torch.randn(1, 1, 1),
        lambda: torch.randn(4, 1).as_strided((4, 1), (1, 7)),
        lambda: torch.randn(*[2] * 12),
        lambda: torch.randn(1, 3).as_strided((1, 3), (99, 1)),
        lambda: torch.randn(3, 1, 5).as_strided((3, 1, 5), (5, 0, 1)),
    ],
    ids=["empty", "scalar", "ones", "odd stride", "rank 12", "odd outer stride", "zero stride"],
)
def test_shapes_at_the_edge(compiled, make):
    def function(x):
        return (x * 2).relu() + 1, (x.exp() * 2).sum(-1), torch.tanh(x).mT * 2 if x.dim() > 1 else x * 3

    x = make()
    with torch.no_grad():
        got, want = compiled(function)(x), stock(function, x)
    torch.testing.assert_close(got, want)
    assert [t.stride() for t in got] == [t.stride() for t in want]
