"""Resolver: a definition and a workload -> the solution that may run here, or why there is none. It only reads."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .. import accept
from ..observability import count
from ..schema import Accepted, Definition, Environment, Reason, Rejected, Solution, Trace, Workload
from ..schema.digest import canonical_json, short
from ..settings import Settings
from .tiers import Tiers

# A correct kernel that does not pay, or was not timed: `force` runs these all the same.
VALUE_REASONS = (Reason.SLOWER, Reason.MORE_MEMORY, Reason.NOT_QUALIFIED)
# What a candidate does once, it may do again at any size.
_FAULTS = frozenset((
    Reason.STATIC_CHECK, Reason.FORBIDDEN_LAUNCHER, Reason.COMPILE_ERROR, Reason.RUNTIME_ERROR, Reason.CRASH, Reason.WRONG_VALUES,
    Reason.WRONG_METADATA, Reason.SPECIAL_VALUES, Reason.UNWRITTEN_OUTPUT, Reason.OUT_OF_BOUNDS, Reason.INPUT_MODIFIED,
    Reason.NONDETERMINISTIC, Reason.STATE_LEAK))
# Which reason stands for a miss when the candidates have several: the one that somebody can act on first.
_TELLING = (Reason.NOT_QUALIFIED, Reason.SLOWER, Reason.MORE_MEMORY, Reason.GUARD_FAILED, Reason.DISABLED, Reason.QUARANTINED)

Decide = Callable[[Sequence[Trace]], "Accepted | Rejected"]


@dataclass(frozen=True)
class Verdict:
    """What was decided about one candidate. `reason` is None for one that may run."""

    solution: Solution
    reason: Reason | None
    detail: str
    trace: Trace | None = None
    ratio: float = 0.0


@dataclass(frozen=True)
class Hit:
    """`solution` may run; `trace` is the evidence, `ratio` what it promises."""

    solution: Solution
    trace: Trace
    ratio: float = 1.0


@dataclass(frozen=True)
class Miss:
    """No solution may run. `considered` has the verdict on each candidate."""

    reason: Reason
    detail: str
    considered: tuple[Verdict, ...] = ()


@dataclass(frozen=True)
class Near:
    """Another definition of the same kind, and what sets it apart, in words."""

    definition: Definition
    differences: tuple[str, ...]
    solutions: int


class Resolver:
    """Chooses among stored solutions by evidence that was gathered in `environment`."""

    def __init__(self, tiers: Tiers, environment: Environment, settings: Settings, decide: Decide = accept.decide):
        self.tiers = tiers
        self.environment = environment
        self.settings = settings
        self._decide = decide

    def resolve(self, definition: Definition, workload: Workload) -> Hit | Miss:
        if not self.settings.enabled:
            return Miss(Reason.DISABLED, "agentinductor.enabled is off")
        verdicts = self.judge(definition, workload)
        runnable = [verdict for verdict in verdicts if verdict.reason is None and verdict.trace]
        if runnable:
            best = max(runnable, key=lambda verdict: (verdict.ratio, verdict.solution.digest))
            count("cache_hit")
            return Hit(best.solution, best.trace, best.ratio)  # type: ignore[arg-type]
        count("cache_miss")
        if not verdicts:
            return Miss(Reason.NO_SOLUTION, f"no solution for {definition.name} on {self.environment.device_type}")
        telling = min(verdicts, key=lambda v: (_TELLING.index(v.reason) if v.reason in _TELLING else len(_TELLING), -v.ratio,
                                               v.solution.digest))
        return Miss(telling.reason or Reason.INTERNAL_ERROR, telling.detail, tuple(verdicts))

    def judge(self, definition: Definition, workload: Workload) -> list[Verdict]:
        """The verdict on every stored solution of this device type."""
        return [self._judge(definition, workload, solution) for solution in self.tiers.solutions(definition.digest)
                if solution.device_type == self.environment.device_type]

    def evidence(self, solution: Solution, workload: Workload) -> list[Trace]:
        """Traces of this environment that speak about `workload`: of its bucket, or proof of a wrong result in any."""
        bucket = workload.bucket()
        mine = [trace for trace in self.tiers.traces(solution.digest)
                if trace.environment.digest == self.environment.digest and trace.definition == solution.definition]
        return [trace for trace in mine if trace.workload.bucket() == bucket or damning(trace)]

    def _judge(self, definition: Definition, workload: Workload, solution: Solution) -> Verdict:
        refusal = self.refusal(definition, workload, solution)
        if refusal:
            return Verdict(solution, refusal.reason, refusal.detail)
        evidence = self.evidence(solution, workload)
        decision = self._decide(evidence)
        trace = max(evidence, key=lambda t: (t.performance.ratio if t.performance else 0.0, t.digest), default=None)
        ratio = trace.performance.ratio if trace and trace.performance else 0.0
        if isinstance(decision, Accepted):
            return Verdict(solution, None, f"{decision.ratio:.2f}x", trace, decision.ratio)
        if decision.reason == Reason.NO_EVIDENCE:
            return Verdict(solution, Reason.NOT_QUALIFIED, self._unqualified(solution, workload), trace)
        if decision.reason in VALUE_REASONS:
            detail = f"slower: {ratio:.2f}x" if decision.reason == Reason.SLOWER else decision.detail
            return Verdict(solution, None if self.settings.force else decision.reason, detail, trace, ratio)
        detail = f"rejected: {decision.reason.value}" + (f" ({decision.detail})" if decision.detail else "")
        return Verdict(solution, decision.reason, detail, trace, ratio)

    def refusal(self, definition: Definition, workload: Workload, solution: Solution) -> Rejected | None:
        """Why a solution may not even be tried here, or None: switched off, denied, or outside its guards."""
        switched_off = next((entry for entry in self.settings.disable_kernels if solution.digest.startswith(entry)), None)
        if switched_off:
            return Rejected(Reason.DISABLED, f"agentinductor.disable_kernels names {switched_off}")
        denied = self.tiers.quarantined(solution.digest)
        if denied:
            return Rejected(Reason.QUARANTINED, f"quarantined: {denied}")
        sizes = workload.all_sizes(definition)
        for guard in solution.guards:
            if guard.name not in sizes and guard.kind in ("range", "divisible"):
                return Rejected(Reason.GUARD_FAILED, f"guard failed: the definition has no axis {guard.name}")
            failure = guard.failure(sizes, self.environment.device_type, self.environment.capability)
            if failure:
                return Rejected(Reason.GUARD_FAILED, f"guard failed: {failure}")
        return None

    def _unqualified(self, solution: Solution, workload: Workload) -> str:
        """Where a candidate without evidence was tried before, so that a person sees what is missing."""
        traces = self.tiers.traces(solution.digest)
        if not traces:
            return f"{short(solution.digest)} is not yet qualified on this device: it has no trace"
        here = [trace for trace in traces if trace.environment.digest == self.environment.digest]
        if here:
            buckets = ", ".join(sorted({trace.workload.bucket() for trace in here}))
            return f"not yet qualified on this device for {workload.bucket()}; it is for {buckets}"
        changed = _changed(traces[-1].environment, self.environment)
        return f"not yet qualified on this device: its evidence has {changed}"

    def near(self, definition: Definition, limit: int = 3) -> list[Near]:
        """Other stored definitions of the same kind, the most alike first."""
        found = [Near(other, differences(definition, other), len(self.tiers.solutions(other.digest)))
                 for other in self.tiers.definitions() if other.kind == definition.kind and other.digest != definition.digest]
        return sorted(found, key=lambda near: (len(near.differences), near.definition.digest))[:limit]


def differences(mine: Definition, other: Definition) -> tuple[str, ...]:
    """What differs between two definitions, each as "<field>: <mine>, there <other>"."""
    out = []
    for field in ("axes", "inputs", "outputs"):
        here = {item["name"]: item for item in mine.to_json()[field]}
        there = {item["name"]: item for item in other.to_json()[field]}
        for name in sorted({*here, *there}):
            out.extend(_item_differences(f"{field} {name}", here.get(name), there.get(name)))
    first = next((pair for pair in zip(mine.body, other.body, strict=False) if pair[0] != pair[1]), None)
    if len(mine.body) != len(other.body):
        out.append(f"body: {len(mine.body)} nodes, there {len(other.body)}")
    if first:
        changed = _item_differences(f"body {first[0].name}", first[0].to_json(), first[1].to_json())
        out.append(changed[0] if changed else f"body {first[0].name}")
    if mine.results != other.results:
        out.append(f"results: {', '.join(mine.results)}, there {', '.join(other.results)}")
    return tuple(out)


def _item_differences(what: str, here: dict | None, there: dict | None) -> list[str]:
    if here is None or there is None:
        return [f"{what}: {'absent' if here is None else 'present'}, there {'absent' if there is None else 'present'}"]
    return [f"{what}.{key}: {canonical_json(here.get(key))}, there {canonical_json(there.get(key))}"
            for key in sorted({*here, *there}) if here.get(key) != there.get(key)]


def damning(trace: Trace) -> bool:
    """The candidate itself was at fault, so that no other bucket can make it right."""
    return trace.reason in _FAULTS


def _changed(old: Environment, new: Environment) -> str:
    here, there = new.to_json(), old.to_json()
    changed = [f"{key} {there[key] or 'none'!s}, this is {here[key] or 'none'!s}" for key in here if here[key] != there[key]]
    return "; ".join(changed[:3]) or "nothing in common"
