"""Kernels inside compiled graphs on a GPU: Triton as Inductor's own launches, CUDA C++ through the custom op."""

import pytest
import torch
from torch._dynamo.utils import counters as dynamo_counters

from agentinductor.backend import inductor, report
from agentinductor.targets import load
from tests.support.forced import Forced
from tests.unit.test_lower import CASES

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")]
NAMES = ["rms_norm", "add_rms_norm", "layer_norm_2d", "qk_norm_rope", "masked_softmax", "channels_first_norm", "transposed_output",
         "window_view", "bool_reduction", "gelu_bias_residual"]


def on_gpu(args, dtype=None):
    return tuple(a.cuda().to(dtype) if dtype and a.is_floating_point() else a.cuda() for a in args)


@pytest.mark.parametrize("language", ["triton", "cuda"])
@pytest.mark.parametrize("name", NAMES)
def test_equals_eager(name, language, tmp_path):
    function, args = CASES[name]
    args = on_gpu(args)
    torch._dynamo.reset()
    with report.collecting() as reports, torch.no_grad():
        got = torch.compile(function, backend=Forced(language, tmp_path), dynamic=False)(*args)
        want = function(*args)
    if language == "triton":
        assert sum(r.kernels for r in reports) >= 1
    tolerance = 2e-2 if args[0].dtype == torch.bfloat16 else 2e-5
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize("language", ["triton", "cuda"])
@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune-no-cudagraphs"])
def test_modes_and_changing_inputs(mode, language, tmp_path):
    """Under CUDA graphs each replay reads the new inputs, and outputs of earlier calls were cloned by the caller."""
    function, _ = CASES["add_rms_norm"]
    torch._dynamo.reset()
    compiled = torch.compile(function, backend=Forced(language, tmp_path, inductor.config_patches(mode, None)), dynamic=False)
    w = torch.randn(512, device="cuda", dtype=torch.bfloat16)
    with torch.no_grad():
        for seed in range(5):
            torch.manual_seed(seed)
            x, y = torch.randn(2, 64, 512, device="cuda").bfloat16()
            got = [t.clone() for t in compiled(x, y, w)]
            torch.testing.assert_close(got, list(function(x, y, w)), rtol=2e-2, atol=2e-2)


def test_replayed_from_inductors_cache(tmp_path):
    function, args = CASES["add_rms_norm"]
    args = on_gpu(args)
    backend = Forced("triton", tmp_path)
    with torch.no_grad():
        want = torch.compile(function, backend=backend, dynamic=False)(*args)
        torch._dynamo.reset()
        before = dynamo_counters["inductor"]["fxgraph_cache_hit"]
        got = torch.compile(function, backend=backend, dynamic=False)(*args)
    assert dynamo_counters["inductor"]["fxgraph_cache_hit"] == before + 1
    torch.testing.assert_close(got, want, rtol=0, atol=0)


def test_side_stream(tmp_path):
    function, args = CASES["gelu_bias_residual"]
    args = on_gpu(args)
    torch._dynamo.reset()
    compiled = torch.compile(function, backend=Forced("cuda", tmp_path), dynamic=False)
    with torch.no_grad():
        compiled(*args)
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)
            x = args[0] * 3
            got = compiled(x, *args[1:])
        stream.synchronize()
        torch.testing.assert_close(got, function(x, *args[1:]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("language", ["triton", "cuda"])
def test_misaligned_view_inside_the_graph(language, tmp_path):
    """A region whose input starts one element into its buffer: no kernel may assume 16-byte alignment there."""
    whole = CASES["gelu_bias_residual"][0]

    def function(base, b, y):
        return whole(base[1:].view(7, 48), b, y)

    args = torch.randn(7 * 48 + 1, device="cuda"), torch.randn(48, device="cuda"), torch.randn(7, 48, device="cuda")
    torch._dynamo.reset()
    with torch.no_grad():
        got = torch.compile(function, backend=Forced(language, tmp_path), dynamic=False)(*args)
        torch.testing.assert_close(got, function(*args), rtol=2e-5, atol=2e-5)
        shifted = torch.randn(7 * 48 + 2, device="cuda")[1:]  # the graph's own input misaligned too
        got = torch.compile(function, backend=Forced(language, tmp_path), dynamic=False)(shifted, *args[1:])
        torch.testing.assert_close(got, function(shifted, *args[1:]), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("language", ["triton", "cuda"])
def test_batch_sizes_share_one_graph(language, tmp_path):
    function, w = CASES["rms_norm"][0], torch.randn(512, device="cuda", dtype=torch.bfloat16)
    torch._dynamo.reset()
    compiled = torch.compile(function, backend=Forced(language, tmp_path))
    with report.collecting() as reports, torch.no_grad():
        for batch in (3, 2, 5, 17, 1, 8, 1024):
            x = torch.randn(batch, 6, 512, device="cuda").bfloat16()
            if batch > 1:
                torch._dynamo.mark_dynamic(x, 0)
            torch.testing.assert_close(compiled(x, w), function(x, w), rtol=2e-2, atol=2e-2)
    assert all(r.kernels == 1 for r in reports)
    assert len(reports) == 2  # one for batch 1, one for all others


@pytest.mark.parametrize("target, task", [("hf:llama-tiny", "decode"), ("hf:bert-tiny", "encode"), ("hf:gemma2-tiny", "prefill")])
def test_models(target, task, tmp_path):
    pytest.importorskip("transformers")
    made = load(target, task=task, batch=2, length=32, device="cuda", dtype="bfloat16")
    reset = made.reset or (lambda: None)

    def logits(run):
        reset()
        out = run(*made.args, **made.kwargs)
        return (out.logits if hasattr(out, "logits") else out.last_hidden_state).float().clone()

    with torch.no_grad():
        want = logits(made.model)
        torch._dynamo.reset()
        stock = logits(torch.compile(made.model))
        torch._dynamo.reset()
        with report.collecting() as reports:
            got = logits(torch.compile(made.model, backend=Forced("triton", tmp_path)))
    assert sum(r.kernels for r in reports) >= 2
    assert (got - want).norm() <= max(1.5 * (stock - want).norm(), 1e-2 * want.norm())
