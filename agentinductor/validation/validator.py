"""Judges a solution: builds and runs it in a child process, and compares every byte of every case with what it must be."""

import math
import secrets
from dataclasses import dataclass, field

import torch

from .. import device as machine
from ..errors import SchemaError, StaticCheckError
from ..schema import Correctness, Definition, Reason, Solution, Workload
from ..schema.axes import FLOATS
from . import compare, inputs, integrity, static_checks, tolerance
from .compare import Finding
from .inputs import Case
from .isolation import Child, ChildError, Limits

THREAD_SLACK = 2  # threads that may appear between the second case and the last


@dataclass
class _Progress:
    """What has been seen so far in one validation."""

    cases: int = 0
    max_abs: float = 0.0
    max_rel: float = 0.0
    yardstick_rel: float = 0.0
    undetected: set[str] | None = None  # null controls that no case has refused yet
    first: tuple[Case, list[torch.Tensor]] | None = None
    pairs: dict[tuple, tuple[Case, list[torch.Tensor]]] = field(default_factory=dict)

    def correctness(self) -> Correctness:
        return Correctness(self.cases, self.max_abs, self.max_rel, self.yardstick_rel)


def validate(
    definition: Definition, solution: Solution, workload: Workload, *, seed: int | None = None, limits: Limits | None = None,
    child: Child | None = None,
) -> tuple[Correctness | None, Reason | None, str]:
    """(errors, None, "") for a correct solution, else (errors so far or None, the reason, the detail).

    `seed` chooses the cases; None draws a secret one. A `child` that is given stays open.
    """
    limits = limits or Limits()
    seed = secrets.randbits(62) if seed is None else seed
    failed = precheck(definition, solution, workload)
    if failed is not None:
        return None, failed.reason, failed.detail
    progress = _Progress()
    own = child is None
    child = child or Child(solution.device_type, limits, threads=torch.get_num_threads())
    try:
        failed = _judge(definition, solution, workload, seed, limits, child, progress)
    except (ChildError, integrity.Refused) as error:
        failed = Finding(error.reason, error.detail)
    finally:
        if own:
            child.close()
    correctness = progress.correctness() if progress.cases else None
    return (correctness, failed.reason, failed.detail) if failed else (correctness, None, "")


def precheck(definition: Definition, solution: Solution, workload: Workload) -> Finding | None:
    """What can be told before anything runs: sources, device, guards."""
    if solution.definition != definition.digest:
        return Finding(Reason.WRONG_METADATA, f"the solution is for definition {solution.definition[:12]}")
    try:
        static_checks.check(solution)
    except StaticCheckError as error:
        return Finding(Reason.STATIC_CHECK, str(error))
    if solution.device_type == "cuda" and not machine.has_cuda():
        return Finding(Reason.GUARD_FAILED, "the solution needs a CUDA device")
    try:
        sizes = workload.all_sizes(definition)
    except SchemaError as error:
        return Finding(Reason.GUARD_FAILED, str(error))
    capability = machine.environment(solution.device_type).capability
    for guard in solution.guards:
        failure = guard.failure(sizes, solution.device_type, capability)
        if failure:
            return Finding(Reason.GUARD_FAILED, failure)
    return None


def build(child: Child, definition: Definition, solution: Solution, limits: Limits) -> None:
    """Build in the child. Raises Refused or ChildError."""
    answer = child.request({"op": "build", "definition": definition.to_json(), "solution": solution.to_json()}, limits.build_s)
    if not answer["ok"]:
        raise integrity.Refused(answer)


def _judge(definition: Definition, solution: Solution, workload: Workload, seed: int, limits: Limits, child: Child,
           progress: _Progress) -> Finding | None:
    child.start()
    before = _state(child)
    build(child, definition, solution, limits)
    threads = 0
    for case in inputs.cases(definition, solution, workload, seed, limits.case_elements, limits.full_elements):
        finding = _one(definition, solution, case, seed, limits, child, progress)
        if finding is not None:
            return Finding(finding.reason, f"case {progress.cases} ({case.name}): {finding.detail}")
        if progress.cases == 2:
            threads = child.tasks()[0]
    finding = _replays(definition, solution, seed, limits, child, progress)
    if finding is not None:
        return finding
    now, processes = child.tasks()
    if processes or now > threads + THREAD_SLACK:
        return Finding(Reason.STATE_LEAK, f"threads grew from {threads} to {now}; {processes} processes were left behind")
    after = _state(child)
    changed = sorted(key for key in before if key != "handles" and before[key] != after.get(key))
    if changed:
        return Finding(Reason.STATE_LEAK, f"the process changed: {', '.join(f'{k} from {before[k]} to {after.get(k)}' for k in changed)}")
    if progress.undetected:
        return Finding(Reason.UNCHECKABLE, f"{', '.join(sorted(progress.undetected))} would pass every case under these tolerances")
    return None


def _state(child: Child) -> dict:
    answer = child.request({"op": "snapshot"}, 60.0)
    if not answer["ok"] or not isinstance(answer.get("state"), dict):
        raise ChildError(Reason.CRASH, "no snapshot of the process's state")
    return answer["state"]


def _one(definition: Definition, solution: Solution, case: Case, seed: int, limits: Limits, child: Child,
         progress: _Progress) -> Finding | None:
    """Run and judge one case."""
    try:
        truths = judge_inputs(definition, case, solution.device_type, seed + progress.cases)
    except (IndexError, RuntimeError, SchemaError):
        if progress.cases == 0:
            raise
        return None  # sizes that the definition has no meaning for
    outputs, finding = integrity.run_case(definition, case, child, solution.digest, limits.request_s)
    progress.cases += 1
    if finding is not None:
        return finding
    here = truths[0].value.device if truths else torch.device("cpu")
    errors, finding = compare.compare(definition, truths, [o.to(here) for o in outputs])
    progress.max_abs = max(progress.max_abs, errors.max_abs)
    if errors.max_rel >= progress.max_rel:
        progress.max_rel, progress.yardstick_rel = errors.max_rel, errors.yardstick_rel
    if finding is not None:
        return finding
    _controls(definition, case, truths, here, progress)
    if progress.first is None:
        progress.first = case, outputs
    key = (tuple(sorted(case.sizes.items())), case.placements)
    progress.pairs.setdefault(key, (case, outputs))
    return None


def judge_inputs(definition: Definition, case: Case, device_type: str, seed: int) -> list[tolerance.Truth]:
    """Truth for a case, computed where it is quick: on the device, in this process."""
    where = torch.device("cuda" if device_type == "cuda" and machine.has_cuda() else "cpu")
    return tolerance.truths(definition, [t.to(where) for t in case.inputs], seed)


def _controls(definition: Definition, case: Case, truths: list[tolerance.Truth], where: torch.device, progress: _Progress) -> None:
    """Strike off the null controls that this case refuses."""
    if any(t.value.numel() == 0 for t in truths) or progress.undetected is not None and not progress.undetected:
        return
    controls = compare.null_controls(definition, [t.to(where) for t in case.inputs], truths)
    passing = {name for name, outputs in controls.items() if compare.compare(definition, truths, outputs)[1] is None}
    if progress.undetected is None:
        progress.undetected = set(controls)
    refused = {name for name in controls if name not in passing}
    progress.undetected -= refused


def _replays(definition: Definition, solution: Solution, seed: int, limits: Limits, child: Child, progress: _Progress) -> Finding | None:
    """Single elements moved in place, calls in a row, and the first case again."""
    key = solution.digest
    sizes, places = next(iter(progress.pairs)) if len(progress.pairs) == 1 else min(
        progress.pairs, key=lambda k: abs(math.log2(1 + math.prod(size for _, size in k[0])) - 14))
    case, outputs = progress.pairs[sizes, places]
    floats = [i for i, spec in enumerate(definition.inputs) if spec.dtype in FLOATS] or list(range(len(definition.inputs)))
    for number, where in enumerate((0.0, 0.5, 1.0)):
        if not floats:
            break
        moved = inputs.settle(Case(f"{case.name}, one element moved", case.sizes,
                                   inputs.perturbed(case.inputs, floats[number % len(floats)], where), case.placements))
        finding = _one(definition, solution, moved, seed + 1000, limits, child, progress)
        if finding is None:
            alone, finding = integrity.run_case(definition, moved, child, key, limits.request_s)
            finding = finding or integrity.replay(definition, case, moved, (outputs, alone), child, key, limits.request_s)
        if finding is not None:
            return Finding(finding.reason, f"{moved.name}: {finding.detail}")
    assert progress.first is not None  # the first case ran
    case, outputs = progress.first
    again, finding = integrity.run_case(definition, case, child, key, limits.request_s)
    if finding is None and not all(integrity.same_bits(a, b) for a, b in zip(again, outputs, strict=True)):
        finding = Finding(Reason.STATE_LEAK, "the first case gives another result after the others")
    return finding

