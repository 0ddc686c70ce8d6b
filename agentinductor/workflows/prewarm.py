"""prewarm: find a model's regions, prove or make a kernel for each, gate the whole model, store the plan.

Every step is stored as soon as it is done: an interrupted prewarm goes on where it stopped, a finished one finds all in the
cache and does nothing.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch

from .. import device, synthesize
from ..backend.report import GraphReport
from ..bench import endtoend
from ..bench.endtoend import COMPILED, COMPILED_KERNELS, Comparison
from ..kernel_cache.resolver import Hit
from ..kernel_cache.tiers import Tiers, open_tiers
from ..observability import aligned
from ..schema import Plan, Reason, Rejected
from ..schema.digest import short
from ..settings import Settings, split_options
from . import compile as compiling
from .bench import compare_mode
from .harvest import Found, distinct, harvest

_OPEN = (Reason.NO_SOLUTION, Reason.NOT_QUALIFIED, Reason.SLOWER, Reason.GUARD_FAILED, Reason.PLAN_REJECTED)
_GATE_SECONDS = 20.0


@dataclass(frozen=True)
class Prepared:
    """One region's outcome."""

    name: str
    occurrences: int
    kernel: str
    ratio: float
    detail: str
    evaluated: int


@dataclass(frozen=True)
class PrewarmReport:
    """What prewarm did. `evaluated` 0 and `gated` False: everything was in the cache."""

    regions: tuple[Prepared, ...]
    evaluated: int
    gated: bool
    plan_accepted: bool | None  # None: no kernel, nothing to gate
    plan_reason: str
    comparison: Comparison | None
    seconds: float

    def to_json(self) -> dict:
        return {"regions": [asdict(r) for r in self.regions], "evaluated": self.evaluated, "gated": self.gated,
                "plan_accepted": self.plan_accepted, "plan_reason": self.plan_reason, "seconds": self.seconds,
                "comparison": self.comparison.to_json() if self.comparison else None}

    def __str__(self) -> str:
        head = ("region", "x", "kernel", "ratio", "")
        rows = [(r.name, str(r.occurrences), short(r.kernel) or "-", f"{r.ratio:.2f}x" if r.ratio else "-", r.detail) for r in self.regions]
        lines = aligned([head, *rows])
        if self.comparison:
            lines += ["", str(self.comparison)]
        if self.plan_accepted is not None:
            lines.append("plan accepted: the model runs on these kernels" if self.plan_accepted else f"plan rejected: {self.plan_reason}")
        lines.append(f"{self.evaluated} candidates evaluated in {self.seconds:.0f} s" if self.evaluated or self.gated
                     else "everything was in the cache")
        return "\n".join(lines)


def prewarm(model: Callable, *args: Any, budget: float = 600.0, mode: str | None = None, options: Mapping[str, Any] | None = None,
            reset: Callable[[], None] | None = None, progress: Callable[[str], None] | None = None, **kwargs: Any) -> PrewarmReport:
    """Prepare `model` for these inputs, within about `budget` seconds. Mode and options as for torch.compile.

    Raises CacheUnwritableError where nothing could be kept. KeyboardInterrupt keeps what was accepted.
    """
    started = time.monotonic()
    say = progress or _silent
    chosen, mode_name, _ = compiling.read_options(mode, options)
    _, theirs = split_options(options)
    tiers = open_tiers(chosen)
    say("finding regions")
    reports = harvest(model, args, kwargs, mode, options, reset)
    work = [item for item in distinct(reports) if item.record.definition is not None and
            (item.record.reason is None or item.record.reason in _OPEN)]
    prepared = _prepare(work, tiers, chosen, theirs, started + budget, budget, say)
    gated, comparison = False, None
    plans = _plans(reports, tiers)
    if any(r.kernel for r in prepared) and any(plan is None for plan in plans.values()):
        say("gating the whole model")
        comparison = _gate(model, args, kwargs, mode_name, options, reset, tiers, list(plans), say)
        gated, plans = True, _plans(reports, tiers)
    verdicts = [plan for plan in plans.values() if plan is not None] if any(r.kernel for r in prepared) else []
    return PrewarmReport(tuple(prepared), sum(r.evaluated for r in prepared), gated,
                         all(p.accepted for p in verdicts) if verdicts else None,
                         next((p.reason for p in verdicts if not p.accepted), ""), comparison, time.monotonic() - started)


def _progress(say: Callable[[str], Any], label: str) -> Callable[[Any], Any]:
    return lambda event: say(f"{label}: {event.kind} {event.detail}")


def _prepare(work: list[Found], tiers: Tiers, chosen: Settings, theirs: dict, deadline: float, effort: float, say) -> list[Prepared]:
    out = []
    for index, found in enumerate(work):
        record = found.record
        assert record.definition is not None and record.workload is not None
        now = time.monotonic()
        share = now + max(deadline - now, 0.0) / (len(work) - index)
        label = f"{index + 1}/{len(work)} {record.name} x{found.occurrences}"
        say(label)
        outcome = synthesize.generate(record.definition, record.workload, tiers, chosen, share,
                                      environment=device.environment(record.device_type), inductor_options=theirs, effort=effort,
                                      progress=_progress(say, label))
        hit = outcome.resolution if isinstance(outcome.resolution, Hit) else None
        detail = "" if hit else f"{outcome.resolution.reason.value}: {outcome.resolution.detail}"  # type: ignore[union-attr]
        out.append(Prepared(record.name, found.occurrences, hit.solution.digest if hit else "", hit.ratio if hit else 0.0, detail,
                            outcome.evaluated))
    return out


def _plans(reports: list[GraphReport], tiers: Tiers) -> dict[str, Plan | None]:
    return {report.key: tiers.plan(report.key) for report in reports if report.key}


def _gate(model, args, kwargs, mode: str, options, reset, tiers: Tiers, keys: list[str], say) -> Comparison:
    """Measure, decide, and store one plan for each graph. A plan that loses is retried without its weaker half."""
    truth = endtoend.truth_of(model, args, kwargs) if isinstance(model, torch.nn.Module) else None
    left_out: tuple[str, ...] = ()
    while True:
        trial = {**(options or {}), "agentinductor.gate": False, "agentinductor.disable_kernels": left_out,
                 "agentinductor.on_miss": "ignore"}
        torch._dynamo.reset()
        with torch.no_grad():
            comparison = compare_mode(model, args, kwargs, mode, trial, truth, reset, 30, _GATE_SECONDS, say,
                                      names=(COMPILED, COMPILED_KERNELS))
        decision = endtoend.gate(comparison)
        used = _used(harvest(model, args, kwargs, None, {**trial, "agentinductor.mode": mode}, reset))
        weaker = sorted(used, key=lambda item: item[2])[:max(len(used) // 2, 1)]
        if not isinstance(decision, Rejected) or len(weaker) >= len(used):
            break
        say(f"{decision.reason.value}: {decision.detail}; trying without {len(weaker)} kernels")
        left_out += tuple(solution for _, solution, _ in weaker)
    accepted = not isinstance(decision, Rejected)
    solutions = tuple(sorted({definition: solution for definition, solution, _ in used}.items())) if accepted else ()
    reason = "" if accepted else f"{decision.reason.value}: {decision.detail}"  # type: ignore[union-attr]
    for key in keys:
        tiers.user.put_plan(Plan(key, solutions, accepted, comparison.to_json(), reason))
    return comparison


def _used(reports: list[GraphReport]) -> list[tuple[str, str, float]]:
    """(definition, solution, microseconds saved) of every kernel that a harvest ran."""
    return [(f.record.digest, f.record.kernel, (f.record.baseline_us - f.record.kernel_us) * f.occurrences)
            for f in distinct(reports) if f.record.kernel]


def _silent(_: str) -> None:
    return None


