"""Every solution that ships with the package: intact, explained, proven, and right wherever this machine can tell."""

import shutil
import sys
from collections import defaultdict
from pathlib import Path

import pytest
import torch

SUPPORT = Path(__file__).parents[1] / "support"
sys.path.insert(0, str(SUPPORT))
import definitions as examples  # noqa: E402
import emulate_cuda  # noqa: E402
import interpreter  # noqa: E402

from agentinductor.accept import decide  # noqa: E402
from agentinductor.codegen.builder import build  # noqa: E402
from agentinductor.codegen.cross_compile import cross_compile  # noqa: E402
from agentinductor.codegen.reference import evaluate  # noqa: E402
from agentinductor.errors import ToolchainError  # noqa: E402
from agentinductor.kernel_cache import maintenance  # noqa: E402
from agentinductor.kernel_cache.tiers import library  # noqa: E402
from agentinductor.schema import Accepted, Definition, Solution  # noqa: E402
from agentinductor.validation.static_checks import check  # noqa: E402

SHIPPED = [(definition, solution) for definition in library().definitions() for solution in library().solutions(definition.digest)]


def shipped(*languages: str):
    return pytest.mark.parametrize(("definition", "solution"), [
        pytest.param(definition, solution, id=f"{definition.kind}-{solution.language}-{solution.digest[:8]}")
        for definition, solution in SHIPPED if solution.language in languages])


def small_sizes(definition: Definition, solution: Solution, least: int = 5) -> dict[str, int]:
    """The smallest size of each var axis, `least` or more, that the guards admit."""
    out = {}
    for axis in definition.var_axes:
        mine = [guard for guard in solution.guards if guard.name == axis.name]
        step = max([guard.low for guard in mine if guard.kind == "divisible"], default=1)
        low = max([guard.low for guard in mine if guard.kind == "range"], default=1)
        out[axis.name] = -(-max(low, least) // step) * step
    device, every = "cpu" if solution.language == "cpp" else "cuda", definition.sizes(out)
    refusals = [guard.failure(every, device, 90) for guard in solution.guards]
    assert not any(refusals), refusals
    return out


def assert_right(definition: Definition, inputs: list, outputs: list) -> None:
    for got, want in zip(outputs, evaluate(definition, inputs), strict=True):
        tolerance = {torch.bfloat16: 2e-2, torch.float16: 2e-3}.get(got.dtype, 1e-5)
        torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance, equal_nan=True)


def test_manifests_verify_and_every_entry_is_served():
    root = library()
    report = maintenance.verify(root)
    assert report.sound, report
    traces = sum(len(root.traces(solution.digest)) for _, solution in SHIPPED)
    assert report.entries == len(root.definitions()) + len(SHIPPED) + traces


@shipped("triton", "cuda", "cpp")
def test_static_checks_pass_and_evidence_is_there(definition, solution):
    check(solution)
    made = solution.provenance
    assert made.agent and made.author and made.created and made.device and made.version
    evidence = defaultdict(list)
    for trace in library().traces(solution.digest):
        assert (trace.definition, trace.solution) == (definition.digest, solution.digest)
        every = trace.workload.all_sizes(definition)
        assert not any(g.failure(every, trace.environment.device_type, trace.environment.capability) for g in solution.guards)
        evidence[trace.environment].append(trace)
    assert any(isinstance(decide(traces), Accepted) for traces in evidence.values())


@pytest.mark.parametrize("capability", [80, 90, 100])
@shipped("triton", "cuda")
def test_compiles_for_gpus_that_are_not_here(definition, solution, capability, tmp_path):
    try:
        reports = cross_compile(definition, solution, capability, tmp_path)
    except ToolchainError as missing:
        pytest.skip(str(missing))
    assert reports and all(report.binary and report.capability == capability for report in reports)


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@shipped("cpp")
def test_cpp_is_right_here(definition, solution, special, tmp_path):
    sizes = small_sizes(definition, solution)
    inputs, outputs = examples.make_inputs(definition, sizes, special=special), examples.make_outputs(definition, sizes)
    build(definition, solution, tmp_path)(inputs, outputs)
    assert_right(definition, inputs, outputs)


@pytest.fixture(scope="module")
def interpreted() -> dict[str, str]:
    """{solution: problem}, from one process that runs them all; libdevice is not in the interpreter."""
    known = [(d, s) for d, s in SHIPPED if s.language == "triton" and "libdevice" not in s.source(s.entry_file)]
    lines = interpreter.problems([{"shipped": s.digest, "sizes": small_sizes(d, s)} for d, s in known])
    return dict(zip([s.digest for _, s in known], lines, strict=False)) | ({"": lines[-1]} if len(lines) != len(known) else {})


@shipped("triton")
def test_triton_is_right_in_the_interpreter(definition, solution, interpreted):
    if "libdevice" in solution.source(solution.entry_file):
        pytest.skip("needs libdevice")
    assert solution.digest in interpreted, interpreted[""]
    assert not interpreted[solution.digest]


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@shipped("cuda")
def test_cuda_is_right_in_the_emulator(definition, solution, tmp_path):
    if solution.provenance.agent != "search" or len(solution.launches) != 1:
        pytest.skip("the emulator knows what the template emits")
    sizes = small_sizes(definition, solution, least=3)
    inputs, outputs = examples.make_inputs(definition, sizes, special=True), examples.make_outputs(definition, sizes)
    emulate_cuda.run(definition, solution, inputs, outputs, tmp_path)
    assert_right(definition, inputs, outputs)
