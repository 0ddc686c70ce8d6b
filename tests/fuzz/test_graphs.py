"""Random graphs with C++ kernels forced into every region: values, dtypes, shapes, strides, aliases and mutations as stock's.

The oracle is three-way: eager, and where a result is not eager's, stock Inductor; values are held against float64.
AGENTINDUCTOR_FUZZ_GRAPHS=2000 runs that many graphs, AGENTINDUCTOR_FUZZ_SEED draws others.
"""

import os
from dataclasses import dataclass

import hypothesis
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from agentinductor import device
from agentinductor.backend import graph_pass, operators
from tests.fuzz.programs import Program, programs
from tests.support.forced import Forced, Interpreted

pytestmark = pytest.mark.skipif(device.compiler() is None, reason="no C++ compiler on this machine")

GRAPHS = int(os.environ.get("AGENTINDUCTOR_FUZZ_GRAPHS", "60"))
SEED = int(os.environ.get("AGENTINDUCTOR_FUZZ_SEED", "0"))
MODES = ("static", "static", "static", "dynamic", "training")
PATCHES = {"cpp.simdlen": 1, "cpp.threads": 1, "compile_threads": 1}  # scalar code compiles fast, and means the same
EPSILON = {torch.float64: 1e-13, torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


@dataclass
class Outcome:
    """What a call left behind: its results, its arguments afterwards, and gradients."""

    outputs: list[torch.Tensor]
    inputs: list[torch.Tensor]
    gradients: list[torch.Tensor | None]


def call(function, program: Program, training: bool, truth: bool = False, grow: int = 0) -> Outcome:
    inputs = [spec.make(truth, grow) for spec in program.inputs]
    if not training:
        with torch.no_grad():
            return Outcome(list(function(*inputs)), inputs, [])
    for tensor in inputs:
        tensor.requires_grad_(tensor.is_floating_point())
    outputs = list(function(*inputs))
    total = sum(out.double().square().sum() for out in outputs if out.is_floating_point() and out.requires_grad)
    if isinstance(total, torch.Tensor):
        total.backward()
    return Outcome([out.detach() for out in outputs], [tensor.detach() for tensor in inputs], [tensor.grad for tensor in inputs])


def compiled(program: Program, backend, mode: str):
    torch._dynamo.reset()
    if backend == "inductor":
        return torch.compile(program.compiled(), dynamic=mode == "dynamic", options=PATCHES)
    return torch.compile(program.compiled(), backend=backend, dynamic=mode == "dynamic")


def layout(outcome: Outcome) -> list:
    """Everything but values: types, strides, and which tensors share memory where."""
    tensors = [*outcome.inputs, *outcome.outputs]
    starts = [t.untyped_storage().data_ptr() for t in tensors]
    shared = [
        (starts.index(start), tensor.storage_offset() - tensors[starts.index(start)].storage_offset())
        for start, tensor in zip(starts, tensors, strict=True)
    ]
    return [(t.dtype, tuple(t.shape), strides(t), where) for t, where in zip(tensors, shared, strict=True)] + [
        None if g is None else (g.dtype, tuple(g.shape)) for g in outcome.gradients
    ]


def strides(tensor: torch.Tensor) -> tuple:
    return tensor.stride()


def error(got: torch.Tensor, truth: torch.Tensor) -> float:
    """The largest difference to the truth; infinite where only one of them is finite."""
    a, b = got.double(), truth.double()
    odd = ~(a.isfinite() & b.isfinite())
    if odd.any() and not torch.equal(torch.nan_to_num(a[odd], 1.0, 2.0, 3.0), torch.nan_to_num(b[odd], 1.0, 2.0, 3.0)):
        return float("inf")
    return float((a - b)[~odd].abs().max()) if (~odd).any() else 0.0


def values(outcome: Outcome) -> list[torch.Tensor]:
    return [*outcome.outputs, *outcome.inputs, *[g for g in outcome.gradients if g is not None]]


def worse(mine: Outcome, theirs: Outcome, truth: Outcome) -> str | None:
    """Where `mine` is further from the truth than `theirs`, in words."""
    for i, (a, b, t) in enumerate(zip(values(mine), values(theirs), values(truth), strict=True)):
        scale = float(t.double().abs().max()) if t.numel() else 0.0
        allowed = 4 * error(b, t) + EPSILON.get(a.dtype, 0.0) * max(scale, 1.0)
        if error(a, t) > allowed:
            return f"value {i}: off by {error(a, t):.3g}, the other by {error(b, t):.3g}, scale {scale:.3g}"
    return None


def difference(mine: Outcome, theirs: Outcome, truth: Outcome) -> str | None:
    if layout(mine) != layout(theirs):
        return f"layout {layout(mine)} is not {layout(theirs)}"
    return worse(mine, theirs, truth)


def exact(program: Program, training: bool, grow: int) -> Outcome:
    """The program with every float in float64."""
    torch.set_default_dtype(torch.float64)
    try:
        return call(program.compiled(truth=True), program, training, truth=True, grow=grow)
    finally:
        torch.set_default_dtype(torch.float32)


def stock_fails(program: Program, mode: str, training: bool, grow: int) -> bool:
    try:
        call(compiled(program, "inductor", mode), program, training, grow=grow)
    except RuntimeError:
        return True
    return False


def check(program: Program, mode: str, backend) -> None:
    """`program` under `backend` against eager, and where it is not eager's result, against stock."""
    training, grow = mode == "training" and not program.mutates, 3 if mode == "dynamic" and program.generic else 0
    mine = compiled(program, backend, mode)
    for extra in (0, grow) if grow else (0,):
        try:
            eager = call(program.compiled(), program, training, grow=extra)
        except (RuntimeError, IndexError):
            continue  # these sizes do not go together
        try:
            got = call(mine, program, training, grow=extra)
        except RuntimeError as error:
            assert stock_fails(program, mode, training, extra), f"{mode}\n{program}{error}"
            return
        truth = exact(program, training, extra)
        found = difference(got, eager, truth)
        if found is not None:
            stock = call(compiled(program, "inductor", mode), program, training, grow=extra)
            against = difference(got, stock, truth)
            assert against is None, f"{mode}\n{program}eager: {found}\nstock: {against}"


@pytest.fixture
def every_region(monkeypatch):
    """Regions are taken even where Inductor would fuse them with something else."""
    monkeypatch.setattr(graph_pass, "fused_neighbour", lambda region: None)


def drawn(graphs: int):
    """The decorator of a test over `graphs` random programs."""

    def decorate(test):
        for wrap in (
            given(program=programs(), mode=st.sampled_from(MODES)),
            settings(
                max_examples=graphs,
                deadline=None,
                database=None,
                derandomize=SEED == 0,
                phases=(Phase.generate,),
                suppress_health_check=list(HealthCheck),
            ),
        ):
            test = wrap(test)
        return hypothesis.seed(SEED)(test) if SEED else test

    return decorate


@drawn(GRAPHS)
def test_random_graph(every_region, tmp_path_factory, program, mode):
    check(program, mode, Forced("cpp", tmp_path_factory.getbasetemp() / "kernels", PATCHES))


@drawn(GRAPHS * 3)
def test_random_graph_interpreted(every_region, tmp_path_factory, program, mode):
    """Partition, lowering and rewrite alone: no kernel is built."""
    backend = Interpreted("cpp", tmp_path_factory.getbasetemp() / "kernels")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(operators, "prepare", backend.prepare)
        check(program, mode, backend)
