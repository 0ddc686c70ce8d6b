"""From a user's cache to a library: the winners, with their definitions and their evidence, and nothing else."""

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from ..accept import decide
from ..schema import Accepted, Definition, Solution, Trace
from . import layout
from .resolver import damning
from .store import KernelCache
from .tiers import Tiers


@dataclass
class Published:
    """What a library received."""

    definitions: int = 0
    solutions: list[Solution] = field(default_factory=list)
    traces: int = 0
    dropped: int = 0  # solutions that win nowhere


def publish_library(source: KernelCache | Tiers, destination: Path | str) -> Published:
    """Copy each solution that is the best accepted one for some environment and bucket. Raises CacheUnwritableError.

    What the library holds already stays. Quarantined solutions are left out, and so are traces that speak against a
    solution elsewhere only in speed; a solution with a wrong result anywhere is left out altogether.
    """
    library = KernelCache(Path(destination).absolute(), check_owner=False)
    out = Published()
    for definition in source.definitions():
        stored = source.solutions(definition.digest)
        winners = _winners(source, definition, stored)
        out.dropped += len(stored) - len(winners)
        if not winners:
            continue
        library.put_definition(definition)
        out.definitions += 1
        for solution in stored:
            if solution.digest in winners:
                library.put_solution(solution)
                out.solutions.append(solution)
                for trace in winners[solution.digest]:
                    library.put_trace(trace)
                    out.traces += 1
    _open_up(library)
    return out


def _open_up(library: KernelCache) -> None:
    """Readable by everybody, as what is shipped or shared has to be; no work in progress left behind."""
    with contextlib.suppress(OSError):
        (library.base / layout.TEMPORARY).rmdir()
    for directory, _, files in os.walk(library.base):
        os.chmod(directory, 0o755)
        for name in files:
            os.chmod(os.path.join(directory, name), 0o644)


def _winners(source: KernelCache | Tiers, definition: Definition, stored: Iterable[Solution]) -> dict[str, list[Trace]]:
    """Solution digest -> the traces that make it the best somewhere."""
    best: dict[tuple[str, str], tuple[float, str, list[Trace]]] = {}
    for solution in stored:
        traces = [trace for trace in source.traces(solution.digest) if trace.definition == definition.digest]
        if source.quarantined(solution.digest) or any(map(damning, traces)):
            continue
        groups: dict[tuple[str, str], list[Trace]] = {}
        for trace in traces:
            groups.setdefault((trace.environment.digest, trace.workload.bucket()), []).append(trace)
        for place, group in groups.items():
            decision = decide(group)
            if isinstance(decision, Accepted):
                claim = (decision.ratio, solution.digest, group)
                best[place] = max(best.get(place, claim), claim, key=lambda item: item[:2])
    winners: dict[str, list[Trace]] = {}
    for _, digest, group in best.values():
        winners.setdefault(digest, []).extend(group)
    return winners
