"""Emitted CUDA C++: executed on the CPU through a shim and compared with the oracle, and compiled for real GPUs by NVRTC."""

import shutil
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import definitions as examples  # noqa: E402
import emulate_cuda

from agentinductor.codegen.cuda_builder import compile_cubin
from agentinductor.codegen.cuda_template import emit
from agentinductor.codegen.reference import evaluate
from agentinductor.codegen.schedule import Schedule, space
from agentinductor.errors import ToolchainError, UnsupportedRegionError

SIZED = ("gelu_bias_residual", "rms_norm", "add_rms_norm", "layer_norm", "add_layer_norm", "softmax", "swiglu")
ROWS = (Schedule("cuda", "rows", 1, 512, 2, vector=4), Schedule("cuda", "rows", 2, 256, 1, vector=8),
        Schedule("cuda", "loop", 1, 128, 2, vector=2, online=True), Schedule("cuda", "loop", 1, 64, 2, vector=1))
TILES = (Schedule("cuda", "tile", 1, 512, 2, vector=4), Schedule("cuda", "tile", 1, 64, 1, vector=1))


def cases() -> list:
    return list(_cases())


def _cases():
    for name, make in examples.ALL.items():
        arguments = {"cols": 200} if name in SIZED else {}
        definition = make(**arguments)
        reduces = any("axes" in dict(n.attrs) for n in definition.body)
        for schedule in ROWS if reduces else TILES:
            yield pytest.param(name, arguments, schedule, id=f"{name}-{schedule}".replace(" ", "-"))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.parametrize(("name", "arguments", "schedule"), cases())
def test_emulated_kernel_agrees_with_the_oracle(name, arguments, schedule, tmp_path):
    definition, sizes = examples.ALL[name](**arguments), examples.SIZES[name]
    try:
        solution = emit(definition, schedule)
    except UnsupportedRegionError as refusal:
        pytest.skip(str(refusal))
    every = definition.sizes(sizes)
    if any(guard.kind != "device" and guard.failure(every, "cuda", 90) for guard in solution.guards):
        pytest.skip("a guard refuses these sizes")
    for special in (False, True):
        inputs, outputs = examples.make_inputs(definition, sizes, special=special), examples.make_outputs(definition, sizes)
        emulate_cuda.run(definition, solution, inputs, outputs, tmp_path)
        for got, want in zip(outputs, evaluate(definition, inputs), strict=True):
            tolerance = 2e-2 if got.dtype == torch.bfloat16 else 1e-5
            torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", examples.ALL)
def test_compiles_without_a_gpu(name):
    definition = examples.ALL[name]()
    sizes = definition.sizes({key: value * 64 for key, value in examples.SIZES[name].items()})
    candidates = []
    for schedule in space(definition, sizes, "cuda"):
        try:
            candidates.append((schedule.form, emit(definition, schedule)))
        except UnsupportedRegionError:  # noqa: PERF203 - an op that only Triton has
            continue
    if name != "rare_functions":
        assert candidates
    for solution in dict(reversed(candidates)).values():
        try:
            assert compile_cubin(solution, 90)
        except ToolchainError as missing:  # noqa: PERF203
            pytest.skip(str(missing))


def test_refusals():
    with pytest.raises(UnsupportedRegionError):
        emit(examples.rms_norm(4097), Schedule("cuda", "rows", 1, 8192, 8, vector=8))
    with pytest.raises(UnsupportedRegionError):
        emit(examples.rms_norm(4096), Schedule("cuda", "rows", 1, 2048, 8, vector=8))
    solution = emit(examples.softmax(None), Schedule("cuda", "rows", 1, 2048, 8, vector=8))
    guards = {(guard.kind, guard.name): guard.low for guard in solution.guards}
    assert guards["divisible", "cols"] == 8
