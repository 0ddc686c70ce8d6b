"""kernels list, and how a kernel is found by its first characters. Needs no torch."""

import argparse
from collections.abc import Sequence

from ..errors import AgentInductorError
from ..kernel_cache.tiers import Tiers, open_tiers
from ..schema import Definition, Solution, Trace
from ..schema.digest import short
from . import display
from .main import OK


def list_(args: argparse.Namespace) -> int:
    tiers = open_tiers(display.settings_of(args))
    definitions = [d for d in tiers.definitions() if not args.definition or _matches(d, args.definition)]
    if args.definition and not definitions:
        raise AgentInductorError(f"no definition {args.definition!r}; `agentinductor kernels list` shows all")
    found = [(d, s, tiers.traces(s.digest)) for d in definitions for s in tiers.solutions(d.digest)]
    if args.json:
        display.print_json([{"definition": d.digest, "kind": d.kind, "solution": s.digest, "language": s.language,
                             "tier": tier_of(tiers, s), "quarantined": tiers.quarantined(s.digest),
                             "provenance": s.provenance.to_json(), "traces": [t.to_json() for t in traces]}
                            for d, s, traces in found])
        return OK
    if not found:
        print("no kernels yet: `agentinductor prewarm TARGET` makes some")
        return OK
    rows = [[d.name, short(s.digest), s.language, s.provenance.agent, tier_of(tiers, s), _summary(tiers, s, traces)]
            for d, s, traces in found]
    display.table(("definition", "kernel", "language", "agent", "tier", "evidence"), rows)
    return OK


def _matches(definition: Definition, text: str) -> bool:
    return definition.digest.startswith(text) or text in (definition.kind, definition.name)


def tier_of(tiers: Tiers, solution: Solution) -> str:
    if tiers.user.solution(solution.digest):
        return "user"
    holder = next((cache for cache in tiers.read_only if cache.solution(solution.digest)), None)
    return "shared" if holder is not None and holder.check_owner else "shipped"


def _summary(tiers: Tiers, solution: Solution, traces: Sequence[Trace]) -> str:
    quarantined = tiers.quarantined(solution.digest)
    if quarantined:
        return f"quarantined: {quarantined}"
    if not traces:
        return "none: not judged yet"
    last = traces[-1]
    if last.reason is not None:
        return f"rejected: {last.reason.value}"
    timed = [trace.performance.ratio for trace in traces if trace.performance]
    return f"correct; {max(timed):.2f}x Inductor at best, {len(traces)} traces" if timed else f"correct, {len(traces)} traces"


def find(tiers: Tiers, prefix: str) -> tuple[Definition, list[Solution]]:
    """The definition, and the solutions that `prefix` (of either's digest, or a definition's name) stands for."""
    definitions = tiers.definitions()
    for definition in definitions:
        if definition.name == prefix or (len(prefix) >= 4 and definition.digest.startswith(prefix)):
            return definition, tiers.solutions(definition.digest)
    found = [(d, s) for d in definitions for s in tiers.solutions(d.digest) if s.digest.startswith(prefix)]
    if len(found) == 1:
        return found[0][0], [found[0][1]]
    problem = f"stands for {len(found)} kernels; give more characters" if found else "is no kernel and no definition"
    raise AgentInductorError(f"{prefix!r} {problem}; `agentinductor kernels list` shows them")
