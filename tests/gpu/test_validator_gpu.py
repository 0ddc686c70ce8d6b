"""The validator, the ranker and the timer on a GPU, with hand-written Triton kernels: honest ones and cheats."""

import pytest
import torch

from agentinductor import device, evaluate
from agentinductor.schema import Reason, Solution, Source, Workload
from agentinductor.validation import static_checks, validator
from agentinductor.validation.isolation import Limits
from tests.support import definitions

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not device.has_cuda(), reason="needs a CUDA device")]
COLS = 1024
KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x, w, y, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    mask = c < cols
    v = tl.load(x + row * cols + c, mask=mask, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(v * v, axis=0) / cols + 1e-5)
    g = tl.load(w + c, mask=mask, other=0.0).to(tl.float32)
    out = v * scale * g
{each}
    tl.store(y + row * cols + c, out, mask={mask})


def run(x, w, y):
    rows, cols = x.shape
{before}
    kernel[(rows,)](x, w, y, cols, BLOCK=2048, num_warps=4)
"""
HONEST = {"each": "", "mask": "mask", "before": ""}
CHEATS = {
    "past the end": ({"mask": "c < cols + 1"}, {Reason.OUT_OF_BOUNDS, Reason.NONDETERMINISTIC, Reason.WRONG_VALUES}),
    "the last element": ({"mask": "c < cols - 1"}, {Reason.UNWRITTEN_OUTPUT}),
    "low precision": ({"each": "    out = out.to(tl.float8e5).to(tl.float32)"}, {Reason.WRONG_VALUES, Reason.SPECIAL_VALUES}),
    "no NaN": ({"each": "    out = tl.where(out == out, out, 0.0)"}, {Reason.SPECIAL_VALUES}),
    "the input": ({"each": "    tl.store(x + row * cols + c, v + 1, mask=mask)"}, {Reason.INPUT_MODIFIED}),
    "PyTorch computes": ({"before": "    y.copy_(torch.nn.functional.rms_norm(x, (cols,), w, 1e-5))"}, {Reason.FORBIDDEN_LAUNCHER}),
    "does not compile": ({"each": "    out = undefined_name"}, {Reason.COMPILE_ERROR, Reason.RUNTIME_ERROR, Reason.FORBIDDEN_LAUNCHER}),
    "a wild address": ({"each": "    tl.store(x + 1000000000000 + c, v.to(tl.bfloat16))"}, {Reason.CRASH}),
}


def solution(definition, **parts) -> Solution:
    return Solution(definition.digest, "triton", "kernel.py::run", (Source("kernel.py", KERNEL.format(**{**HONEST, **parts})),))


def test_the_honest_kernel_passes():
    definition = definitions.rms_norm(cols=COLS)
    correctness, reason, detail = validator.validate(definition, solution(definition), Workload.of({"rows": 512}), seed=3)
    assert reason is None, detail
    assert correctness.cases > 25


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_is_found(monkeypatch, name):
    monkeypatch.setattr(static_checks, "check", lambda solution: None)
    parts, reasons = CHEATS[name]
    definition = definitions.rms_norm(cols=COLS)
    found = validator.validate(definition, solution(definition, **parts), Workload.of({"rows": 64}), seed=3, limits=Limits(request_s=60.0))
    assert found[1] in reasons, found


def test_a_trace_has_times_and_memory():
    definition = definitions.rms_norm(cols=COLS)
    trace = evaluate.evaluate(definition, solution(definition), Workload.of({"rows": 8192}))
    assert trace.reason is None, trace.detail
    assert trace.performance.ratio_low <= trace.performance.ratio <= trace.performance.ratio_high
    assert trace.performance.latency_us > 0.7 * trace.performance.floor_us
    assert trace.performance.peak_bytes >= 8192 * COLS * 2


def test_ranking_survives_a_candidate_that_kills_the_child():
    definition = definitions.rms_norm(cols=COLS)
    bad = solution(definition, each=CHEATS["a wild address"][0]["each"])
    wrong = solution(definition, each="    out = out * 2")
    good = solution(definition)
    try:
        ranked = evaluate.rank(definition, [bad, wrong, good], Workload.of({"rows": 2048}), 120.0)
    finally:
        evaluate.release()
    assert ranked[0].solution == good and ranked[0].ok, ranked
    assert {r.reason for r in ranked[1:]} == {Reason.CRASH, Reason.WRONG_VALUES}


def test_two_graph_samplers_of_one_call_agree():
    from agentinductor.bench import speedup, timing

    where = torch.device("cuda")
    definition, workload = definitions.rms_norm(cols=4096), Workload.of({"rows": 4096})
    sets = timing.buffer_sets(definition, workload, where, 0)
    one, other = (timing.sampler(lambda buffers: torch.relu(buffers[0]), sets, where) for _ in range(2))
    assert isinstance(one, timing._Graph)
    assert 0.98 < speedup.interleaved(one, other, 0.5).ratio < 1.02
