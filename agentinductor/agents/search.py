"""The built-in agent: schedule templates around a definition's own body, searched by measuring.

For each language that suits the device it takes the schedule space in its own order (the most promising first), has a
batch built and timed, then alternates: the neighbours of the best so far (one choice changed), and the next untried
ones. The same task, seed and timings give the same candidates. It ends with its budget, with the space, or when several
batches in a row bring nothing.
"""

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Protocol

from .. import __version__
from ..codegen import cpp_template, cuda_template, triton_template
from ..codegen.schedule import Schedule, space
from ..errors import UnsupportedRegionError
from ..observability import count, log
from ..schema import Definition, Provenance, Reason, Solution, Workload
from .request import Task

LANGUAGES = {"cuda": ("triton", "cuda"), "cpu": ("cpp",)}  # device type -> in the order they are searched
TEMPLATES: Mapping[str, Callable[[Definition, Schedule], Solution]] = {
    "triton": triton_template.emit, "cuda": cuda_template.emit, "cpp": cpp_template.emit,
}
_BATCH = 8
_KEEP = 3  # solutions proposed at most
_PATIENCE = 3  # batches in a row that bring nothing
_GAIN = 0.99  # what counts as better: a time below this fraction of the best
_SHARES = {"triton": 0.65}  # of the budget, where another language follows


class Ranked(Protocol):
    """What a ranker says of one candidate. `reason` is None for one that was quick-checked and timed."""

    solution: Solution
    latency_us: float
    reason: Reason | None
    detail: str


Ranker = Callable[[Definition, Sequence[Solution], Workload, float], Sequence[Ranked]]


@dataclass
class _Tried:
    schedule: Schedule
    solution: Solution
    latency_us: float


# Outside a CUDA graph the custom op that carries a CUDA C++ kernel keeps the host busy for longer than one of Inductor's launches:
# in BERT-large it cost more than the kernels gained. So such a kernel has to be clearly faster than Triton's to come first.
HANDICAP = {"cuda": 1.08}


@dataclass
class SearchAgent:
    """`rank(definition, solutions, workload, seconds)` builds, quick-checks and times candidates in a process of its own."""

    rank: Ranker
    seed: int = 0
    batch: int = _BATCH
    keep: int = _KEEP
    templates: Mapping[str, Callable[[Definition, Schedule], Solution]] = field(default_factory=lambda: TEMPLATES)
    space: Callable[[Definition, dict[str, int], str], list[Schedule]] = space
    clock: Callable[[], float] = time.monotonic
    name: str = "search"
    version: str = __version__

    def propose(self, task: Task) -> Iterator[Solution]:
        """The fastest `keep` candidates over all languages, fastest first."""
        start = self.clock()
        languages = LANGUAGES[task.environment.device_type]
        found: list[_Tried] = []
        attempts = 0
        for position, language in enumerate(languages):
            left = start + task.budget - self.clock()
            last = position == len(languages) - 1
            until = self.clock() + (left if last else left * _SHARES.get(language, 0.5))
            search = _LanguageSearch(self, task, language, until)
            found += search.run()
            attempts += search.attempts
        found.sort(key=lambda tried: (tried.latency_us * HANDICAP.get(tried.schedule.language, 1.0), tried.solution.digest))
        for tried in found[: self.keep]:
            yield replace(tried.solution, provenance=Provenance(
                "search", author="agentinductor", schedule=str(tried.schedule), attempts=attempts,
                seconds=round(self.clock() - start, 1), created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
                device=task.environment.device_name, version=__version__))


class _LanguageSearch:
    """The search in one language."""

    def __init__(self, agent: SearchAgent, task: Task, language: str, until: float):
        self.agent = agent
        self.task = task
        self.until = until
        self.emit = agent.templates[language]
        sizes = task.workload.all_sizes(task.definition)
        self.order = agent.space(task.definition, sizes, language)
        self.untried = list(self.order)
        self.random = random.Random(f"{agent.seed}/{task.definition.digest}/{language}")
        self.seen = set(task.rejected())
        self.tried: list[_Tried] = []
        self.attempts = 0

    def run(self) -> list[_Tried]:
        """Everything that was timed."""
        idle = 0
        explore = True
        while self.untried and idle < _PATIENCE and self.agent.clock() < self.until:
            best = min((tried.latency_us for tried in self.tried), default=float("inf"))
            batch = self._take(self._next() if explore else self._neighbours())
            if not batch and not explore:
                explore = True
                continue
            if batch:
                self._measure(batch)
                better = min((tried.latency_us for tried in self.tried), default=float("inf")) < best * _GAIN
                idle = 0 if better else idle + 1
            explore = not explore if self.tried else True
        return self.tried

    def _next(self) -> list[Schedule]:
        """Untried schedules: the first batch in the space's own order, later ones with some of the tail mixed in."""
        if not self.tried:
            return list(self.untried)
        half = self.agent.batch // 2
        head, tail = self.untried[:half], self.untried[half:]
        return head + self.random.sample(tail, len(tail))

    def _neighbours(self) -> list[Schedule]:
        """Untried schedules that differ from one of the two best in one choice; the closest to the best first."""
        best = sorted(self.tried, key=lambda tried: tried.latency_us)[:2]
        near = [(distance(tried.schedule, schedule), rank, index, schedule) for rank, tried in enumerate(best)
                for index, schedule in enumerate(self.untried)]
        return list(dict.fromkeys(schedule for apart, _, _, schedule in sorted(near, key=lambda item: item[:3]) if apart <= 1))

    def _take(self, candidates: Sequence[Schedule]) -> list[tuple[Schedule, Solution]]:
        """The next batch of `candidates` as solutions: those that a template can express and nobody rejected before."""
        batch: list[tuple[Schedule, Solution]] = []
        for schedule in candidates:
            if len(batch) == self.agent.batch:
                break
            self.untried.remove(schedule)
            solution = self._solution(schedule)
            if solution is not None and solution.digest not in self.seen:
                self.seen.add(solution.digest)
                batch.append((schedule, solution))
        return batch

    def _solution(self, schedule: Schedule) -> Solution | None:
        try:
            return self.emit(self.task.definition, schedule)
        except UnsupportedRegionError as error:
            log.debug("search: %s cannot express %s: %s", schedule, self.task.definition.name, error)
            return None

    def _measure(self, batch: Sequence[tuple[Schedule, Solution]]) -> None:
        self.attempts += len(batch)
        count("search_candidates", len(batch))
        schedules = {solution.digest: schedule for schedule, solution in batch}
        left = max(self.until - self.agent.clock(), 1.0)
        ranked = self.agent.rank(self.task.definition, [solution for _, solution in batch], self.task.workload, left)
        for item in ranked:
            schedule = schedules[item.solution.digest]
            if item.reason is None:
                self.tried.append(_Tried(schedule, item.solution, item.latency_us))
            else:
                count(f"search_rejected_{item.reason.value}")
                log.debug("search: %s: %s %s", schedule, item.reason.value, item.detail)


def distance(one: Schedule, other: Schedule) -> int:
    """In how many choices two schedules differ."""
    a, b = one.to_json(), other.to_json()
    return sum(a[key] != b[key] for key in a)
