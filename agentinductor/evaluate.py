"""Evaluates solutions in child processes: one thoroughly (`evaluate`), or many quickly (`rank`).

`evaluate` validates in one child, times in another, and returns a Trace whatever happens to them. `rank` is for a search over
templates: one child for all, a few cases each, short timings; a candidate that kills the child costs one restart.
"""

import atexit
import json
import math
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

import torch

from . import accept, device
from .bench import roofline
from .bench import worker as bench_worker
from .bench.baseline import MODES
from .errors import EvaluationError
from .schema import Definition, Performance, Reason, Solution, Trace, Workload
from .validation import compare, inputs, integrity, validator
from .validation import worker as validation_worker
from .validation.compare import Finding
from .validation.inputs import Case
from .validation.isolation import Child, ChildError, Limits
from .validation.tolerance import Truth

__all__ = ["Limits", "Ranked", "evaluate", "rank", "release"]

TIMING_SECONDS = 1.5  # of interleaved samples
TIMING_LIMIT = 300.0  # for the whole request, the baseline's compilation included
QUICK_CASES = ("workload, normal", "special", "shifted")
QUICK_SAMPLES, FINAL_SAMPLES, FINALISTS = 3, 15, 5


@dataclass(frozen=True)
class Ranked:
    """What the quick loop found out about one solution."""

    solution: Solution
    ok: bool
    latency_us: float = math.nan
    baseline_us: float = math.nan  # Inductor's, where it was asked for
    reason: Reason | None = None
    detail: str = ""


def main(given: dict) -> None:
    """The child's entry: validation's requests and bench's."""
    validation_worker.main(given, {**validation_worker.HANDLERS, **bench_worker.HANDLERS})


_spare: dict[str, Child] = {}  # started ahead, so that torch loads while something else is measured; never used twice


def _child(device_type: str, limits: Limits) -> Child:
    """A fresh child. On CUDA machines the next one starts at once: its imports keep no GPU busy."""
    child = _spare.pop(device_type, None) or _new_child(device_type, limits)
    if device_type == "cuda":
        _spare[device_type] = _new_child(device_type, limits)
    return child


def _new_child(device_type: str, limits: Limits) -> Child:
    return Child(device_type, limits, module=__name__, baseline_cache=True, threads=torch.get_num_threads())


def evaluate(
    definition: Definition, solution: Solution, workload: Workload, *, inductor_options: Mapping[str, object] | None = None,
    modes: Sequence[str] | None = None, seed: int | None = None, bench: bool = True, limits: Limits | None = None,
) -> Trace:
    """The evidence on one solution. Raises EvaluationError when the evaluation itself fails, never for what a candidate does."""
    limits = limits or Limits()
    seed = secrets.randbits(62) if seed is None else seed
    environment = device.environment("cuda" if solution.device_type == "cuda" and device.has_cuda() else "cpu")
    trace = Trace(definition.digest, solution.digest, workload, environment, accept.POLICY.version,
                  created=datetime.now(timezone.utc).isoformat(timespec="seconds"))
    with _child(solution.device_type, limits) as child:
        correctness, reason, detail = validator.validate(definition, solution, workload, seed=seed, limits=limits, child=child)
    trace = replace(trace, correctness=correctness, reason=reason, detail=detail)
    if reason is not None or not bench:
        return trace
    performance, found = _time(definition, solution, workload, _plain(inductor_options), modes, limits)
    return replace(trace, performance=performance, reason=found.reason if found else None, detail=found.detail if found else "")


def _plain(options: Mapping[str, object] | None) -> dict:
    """Those options that can travel: passes and callables of the user's stay out of the baseline."""
    return {key: value for key, value in (options or {}).items() if isinstance(value, (bool, int, float, str))}


def _time(definition: Definition, solution: Solution, workload: Workload, options: dict, modes: Sequence[str] | None,
          limits: Limits) -> tuple[Performance | None, Finding | None]:
    modes = list(modes or (MODES if solution.device_type == "cuda" else MODES[:1]))
    message = {"op": "time", "key": solution.digest, "workload": workload.to_json(), "modes": modes, "options": options,
               "seconds": TIMING_SECONDS, "seed": secrets.randbits(31)}
    try:
        with _child(solution.device_type, limits) as child:
            validator.build(child, definition, solution, limits)
            answer = child.request(message, TIMING_LIMIT)
            if not answer["ok"]:
                raise integrity.Refused(answer)
    except (ChildError, integrity.Refused) as error:
        if "EvaluationError" in error.detail:
            raise EvaluationError(error.detail) from error
        return None, Finding(error.reason, f"while it was timed: {error.detail}")
    fields: dict[str, Any] = {name: answer.get(name) for name in Performance.__dataclass_fields__}
    numbers = [value for name, value in fields.items() if name != "baseline_mode"]
    if not all(isinstance(value, (int, float)) and math.isfinite(value) and value > 0 for value in numbers):
        return None, Finding(Reason.RUNTIME_ERROR, f"the timing is not a timing: {json.dumps(fields)[:300]}")
    performance = Performance(**fields)
    fast = roofline.faster_than_hardware(definition, workload, performance.latency_us, performance.floor_us,
                                         int(answer.get("cache_bytes", 0)), solution.device_type)
    return performance, Finding(Reason.FASTER_THAN_HARDWARE, fast) if fast else None


# ---- ranking --------------------------------------------------------------------------------------------------------------

_idle: dict[str, Child] = {}  # one warm child for each device type


def release() -> None:
    """Close the child that `rank` keeps warm between calls, and the one that was started ahead."""
    for kept in (_idle, _spare):
        while kept:
            kept.popitem()[1].close()


atexit.register(release)


@dataclass
class _Ranking:
    """One call of `rank`."""

    definition: Definition
    workload: Workload
    limits: Limits
    device_type: str
    until: float
    cases: list[tuple[Case, list[Truth]]] = field(default_factory=list)
    failed: dict[str, Finding] = field(default_factory=dict)
    latency: dict[str, float] = field(default_factory=dict)
    built: set[str] = field(default_factory=set)
    child: Child | None = None

    def left(self) -> float:
        return self.until - time.monotonic()

    def ask(self, message: dict, timeout: float) -> dict:
        """A request to a living child; the next one gets a new child after ChildError, in which nothing is built."""
        if self.child is None or not self.child.alive:
            self.child, self.built = _child(self.device_type, self.limits), set()
        return self.child.request(message, timeout)


def rank(
    definition: Definition, solutions: Sequence[Solution], workload: Workload, budget_s: float = 60.0, *,
    inductor_options: Mapping[str, object] | None = None, baseline: bool = False, limits: Limits | None = None, seed: int = 0,
) -> list[Ranked]:
    """Quick-check and time `solutions` (of one device type, from trusted templates), fastest first, then the failures.

    Stops when the budget is spent: what was not reached has Reason.NO_EVIDENCE.
    """
    if not solutions:
        return []
    limits = limits or Limits(build_s=60.0, request_s=20.0)
    device_type = solutions[0].device_type
    ranking = _Ranking(definition, workload, limits, device_type, time.monotonic() + budget_s, child=_idle.pop(device_type, None))
    for solution in solutions:
        early = validator.precheck(definition, solution, workload)
        if early is not None:
            ranking.failed[solution.digest] = early
    baseline_us = math.nan
    try:
        _build_all(ranking, [s for s in solutions if s.digest not in ranking.failed])
        for solution in solutions:
            if solution.digest not in ranking.failed:
                _attempt(ranking, solution, _check_and_time)
        finalists = sorted((s for s in solutions if s.digest in ranking.latency), key=lambda s: ranking.latency[s.digest])[:FINALISTS]
        for solution in finalists if len(finalists) > 1 else ():
            _attempt(ranking, solution, _time_longer)
        if baseline and ranking.left() > 0:
            baseline_us = _baseline(ranking, solutions, _plain(inductor_options))
    finally:
        if ranking.child is not None and ranking.child.alive:
            _idle[device_type] = ranking.child
    return _results(ranking, solutions, baseline_us)


def _results(ranking: _Ranking, solutions: Sequence[Solution], baseline_us: float) -> list[Ranked]:
    out = []
    for solution in solutions:
        finding = ranking.failed.get(solution.digest)
        if finding is None and solution.digest not in ranking.latency:
            finding = Finding(Reason.NO_EVIDENCE, "not reached within the budget")
        if finding is None:
            out.append(Ranked(solution, True, ranking.latency[solution.digest], baseline_us))
        else:
            out.append(Ranked(solution, False, math.nan, baseline_us, finding.reason, finding.detail))
    return sorted(out, key=lambda r: r.latency_us if r.ok else math.inf)


def _attempt(ranking: _Ranking, solution: Solution, step) -> None:
    """`step(ranking, solution)` with the candidate's failures recorded; nothing once the budget is spent."""
    if ranking.left() <= 0:
        return
    try:
        finding = step(ranking, solution)
    except (ChildError, integrity.Refused) as error:
        finding = Finding(error.reason, error.detail)
    if finding is not None:
        ranking.failed[solution.digest] = finding
        ranking.latency.pop(solution.digest, None)


def _build_all(ranking: _Ranking, solutions: Sequence[Solution]) -> None:
    """Build side by side; whatever goes wrong with all of them is found one by one later."""
    if len(solutions) < 2:
        return
    sample = inputs.full_sizes(ranking.definition, solutions[0], ranking.workload, ranking.limits.case_elements)
    places = inputs.place(ranking.definition, sample, ranking.workload, 0)
    specs = ranking.definition.inputs + ranking.definition.outputs
    tensors = []
    for spec, placement in zip(specs, places, strict=True):
        slot = integrity.Slot.of(spec, ranking.definition.shape(spec, sample), placement)
        tensors.append({"dtype": spec.dtype, "shape": list(slot.shape), "strides": list(slot.strides), "size": slot.stop - slot.start})
    count = len(ranking.definition.inputs)
    message = {"op": "build_many", "definition": ranking.definition.to_json(), "solutions": [s.to_json() for s in solutions],
               "inputs": tensors[:count], "outputs": tensors[count:]}
    try:
        answer = ranking.ask(message, max(ranking.left(), 1.0))
    except ChildError:
        return
    failures = answer.get("failures") if answer["ok"] else None
    if not isinstance(failures, dict):
        return
    ranking.built = {s.digest for s in solutions if s.digest not in failures}
    for digest, (reason, detail) in failures.items():
        refused = integrity.Refused({"reason": reason, "detail": detail})
        ranking.failed[digest] = Finding(refused.reason, refused.detail)


def _ensure_built(ranking: _Ranking, solution: Solution) -> None:
    if ranking.child is not None and ranking.child.alive and solution.digest in ranking.built:
        return
    message = {"op": "build", "definition": ranking.definition.to_json(), "solution": solution.to_json()}
    answer = ranking.ask(message, ranking.limits.build_s)
    if not answer["ok"]:
        raise integrity.Refused(answer)
    ranking.built.add(solution.digest)


def _check_and_time(ranking: _Ranking, solution: Solution) -> Finding | None:
    _ensure_built(ranking, solution)
    child = ranking.child
    assert child is not None  # built just now
    for case, truths in _quick_cases(ranking, solution):
        if not inputs.admits(solution, case.sizes):
            continue
        outputs, finding = integrity.run_case(ranking.definition, case, child, solution.digest, ranking.limits.request_s)
        if finding is None:
            _, finding = compare.compare(ranking.definition, truths, [o.to(truths[0].value.device) for o in outputs])
        if finding is not None:
            return Finding(finding.reason, f"{case.name}: {finding.detail}")
    return _quick_time(ranking, solution, QUICK_SAMPLES)


def _time_longer(ranking: _Ranking, solution: Solution) -> Finding | None:
    _ensure_built(ranking, solution)
    return _quick_time(ranking, solution, FINAL_SAMPLES)


def _quick_time(ranking: _Ranking, solution: Solution, samples: int) -> Finding | None:
    message = {"op": "quick", "key": solution.digest, "workload": ranking.workload.to_json(), "samples": samples, "seed": 1}
    answer = ranking.ask(message, ranking.limits.request_s)
    if not answer["ok"]:
        raise integrity.Refused(answer)
    latency = answer.get("latency_us")
    if not isinstance(latency, float) or not latency > 0:
        return Finding(Reason.RUNTIME_ERROR, f"the timing is not a timing: {latency!r}")
    ranking.latency[solution.digest] = latency
    return None


def _quick_cases(ranking: _Ranking, solution: Solution) -> list[tuple[Case, list[Truth]]]:
    """A few small cases and one of ragged sizes, with their truths: made once for all candidates."""
    if not ranking.cases:
        elements = min(ranking.limits.case_elements, 1 << 16)
        ragged = False
        for case in inputs.cases(ranking.definition, solution, ranking.workload, secrets.randbits(62), elements, elements):
            wanted = case.name in QUICK_CASES or (not ragged and "=" in case.name and 0 not in case.sizes.values())
            if not wanted:
                continue
            ragged = ragged or case.name not in QUICK_CASES
            ranking.cases.append((case, validator.judge_inputs(ranking.definition, case, ranking.device_type, len(ranking.cases))))
            if ragged:
                break
    return ranking.cases


def _baseline(ranking: _Ranking, solutions: Sequence[Solution], options: dict) -> float:
    """Inductor's time in the same child; NaN when it cannot be had."""
    modes = list(MODES if ranking.device_type == "cuda" else MODES[:1])
    try:
        _ensure_built(ranking, solutions[0])
        message = {"op": "baseline", "workload": ranking.workload.to_json(), "modes": modes, "options": options, "seed": 1}
        answer = ranking.ask(message, TIMING_LIMIT)
    except (ChildError, integrity.Refused):
        return math.nan
    latency = answer.get("latency_us")
    return latency if answer["ok"] and isinstance(latency, float) else math.nan
