"""Synthesis: a definition and a workload -> candidates -> evaluation -> decision -> the cache. Resumable at every step.

    qualify    evaluate stored solutions that have no evidence here
    generate   qualify, then let an agent propose, until a solution is accepted or the budget ends
    submit     the door for everybody else: one solution, evaluated and stored like any other

Whatever is stored is never done again: each trace is written as soon as it is there, and a search that ran to its end
leaves a record. Interrupting loses at most the evaluation in flight. All of it is single-flight for each definition, bucket and
environment, so processes that warm one cache share the work.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from . import __version__, device
from . import evaluate as evaluation
from .accept import POLICY_VERSION, decide
from .agents.agent import Agent
from .agents.request import Attempt, Task
from .agents.search import SearchAgent
from .errors import CacheUnwritableError, EvaluationError, SchemaError
from .kernel_cache import maintenance
from .kernel_cache.publish import publish_library
from .kernel_cache.records import FINISHED, Search
from .kernel_cache.resolver import Hit, Miss, Resolver
from .kernel_cache.submission import read_submission
from .kernel_cache.tiers import Tiers
from .observability import count, log, warn_once
from .schema import Accepted, Definition, Environment, Reason, Rejected, Solution, Trace, Workload
from .schema.digest import digest, short
from .settings import Settings

__all__ = ["Event", "Outcome", "generate", "known_workloads", "publish_library", "qualify", "search_agent", "submit"]
_LEAST_SECONDS = 1.0  # an evaluation is not begun with less left
_SEARCH_SHARE = 0.7  # of the time left: the evaluations after the search have to fit as well

Evaluate = Callable[..., Trace]


@dataclass(frozen=True)
class Event:
    """Progress, for a person: `kind` is one of "waiting", "searching", "evaluating", "accepted", "rejected", "done"."""

    kind: str
    definition: Definition
    workload: Workload
    solution: Solution | None = None
    detail: str = ""


Progress = Callable[[Event], None]


@dataclass
class Outcome:
    """What a call did, and where it ended."""

    resolution: Hit | Miss
    evaluated: int = 0
    accepted: int = 0
    rejected: list[tuple[Solution, Rejected]] = field(default_factory=list)
    waited: bool = False  # another process was at it, and this one timed out waiting


def qualify(definition: Definition, workload: Workload, tiers: Tiers, settings: Settings, deadline: float, *,
            environment: Environment | None = None, progress: Progress | None = None, evaluate: Evaluate | None = None,
            inductor_options: dict | None = None) -> Outcome:
    """Evaluate the stored solutions that have no evidence for `workload` here. `deadline`: time.monotonic()."""
    session = _Session(definition, workload, tiers, settings, deadline, environment, progress, evaluate, inductor_options)
    if not session.pending():
        return session.outcome()
    with session.single_flight() as mine:
        if mine:
            session.qualify()
    return session.outcome()


def generate(definition: Definition, workload: Workload, tiers: Tiers, settings: Settings, deadline: float, *,
             agent: Agent | None = None, environment: Environment | None = None, progress: Progress | None = None,
             evaluate: Evaluate | None = None, inductor_options: dict | None = None, effort: float | None = None) -> Outcome:
    """Make sure that an accepted solution is stored, or that what the budget allows was tried. `deadline`: time.monotonic().

    A search that was cut short is taken up again only with more effort than it had: `effort` in seconds, by default what is
    left until the deadline. A caller that shares one budget among many definitions gives the whole of it.
    """
    agent = agent or search_agent(settings, inductor_options)
    session = _Session(definition, workload, tiers, settings, deadline, environment, progress, evaluate, inductor_options)
    search = session.search_record(agent, effort)
    if isinstance(session.resolve(), Hit) or (tiers.user.searched(search) and not session.pending()):
        return session.outcome()
    with session.single_flight() as mine:
        if mine and isinstance(session.resolve(), Miss):  # look again: whoever had the lock may have found one
            tiers.user.put_definition(definition)
            session.qualify()
            if isinstance(session.resolve(), Miss) and not tiers.user.searched(search):
                session.search(agent, search)
            maintenance.prune(tiers.user)
    return session.outcome()


def submit(solution: Solution | Path | str, tiers: Tiers, settings: Settings, *, workloads: Sequence[Workload] = (),
           environment: Environment | None = None, progress: Progress | None = None, evaluate: Evaluate | None = None,
           inductor_options: dict | None = None) -> list[tuple[Trace, Accepted | Rejected]]:
    """Evaluate one solution (or the directory it lies in) on `workloads`, or on the requested ones; store it with its traces.

    Workloads outside its guards are left out. Raises SchemaError where the submission, its definition or its workloads are
    missing or malformed, or where it can run on none of them.
    """
    solution = solution if isinstance(solution, Solution) else read_submission(Path(solution))
    definition = tiers.definition(solution.definition)
    if definition is None:
        raise SchemaError(f"definition {short(solution.definition)} is not in the cache: compile a model that has it first")
    if environment is None:
        if solution.device_type == "cuda" and not device.has_cuda():
            raise EvaluationError(f"{short(solution.digest)} is {solution.language}: there is no CUDA device here")
        environment = device.environment(solution.device_type)
    workloads = list(workloads) or known_workloads(definition, tiers)
    if not workloads:
        raise SchemaError(f"no workload of {definition.name} is known: compile a model that has it first, or give one")
    tiers.user.put_definition(definition)
    tiers.user.put_solution(solution)
    sessions = [_Session(definition, workload, tiers, settings, math.inf, environment, progress, evaluate, inductor_options)
                for workload in workloads]
    refusals = [session.resolver.refusal(definition, session.workload, solution) for session in sessions]
    first = refusals[0]
    if first is not None and all(refusals):
        raise SchemaError(f"{short(solution.digest)} cannot run on {workloads[0].bucket()} here: {first.detail}")
    return [session.judge(solution) for session, refusal in zip(sessions, refusals, strict=True) if refusal is None]


def known_workloads(definition: Definition, tiers: Tiers) -> list[Workload]:
    """The workloads that compiles asked for; where there are none, those of earlier traces."""
    asked = [request.workload for request in tiers.requests() if request.definition == definition.digest]
    traced = [trace.workload for solution in tiers.solutions(definition.digest) for trace in tiers.traces(solution.digest)]
    return list(dict.fromkeys(asked or traced))


def search_agent(settings: Settings, inductor_options: dict | None = None) -> SearchAgent:
    """The built-in agent, with the evaluator's quick ranking as its clock."""

    def rank(definition: Definition, solutions: Sequence[Solution], workload: Workload, seconds: float):
        return evaluation.rank(definition, solutions, workload, seconds, inductor_options=inductor_options)

    return SearchAgent(rank, seed=settings.seed, version=f"{__version__}, seed {settings.seed}")


class _Session:
    """The work on one definition and workload."""

    def __init__(self, definition: Definition, workload: Workload, tiers: Tiers, settings: Settings, deadline: float,
                 environment: Environment | None, progress: Progress | None, evaluate: Evaluate | None,
                 inductor_options: dict | None):
        self.definition = definition
        self.workload = workload
        self.tiers = tiers
        self.deadline = deadline
        self.environment = environment or _environment()
        self.resolver = Resolver(tiers, self.environment, settings)
        self.inductor_options = inductor_options
        self._progress = progress
        self._evaluate = evaluate or evaluation.evaluate
        self._outcome = Outcome(Miss(Reason.NO_SOLUTION, ""))

    def say(self, kind: str, solution: Solution | None = None, detail: str = "") -> None:
        log.info("%s %s: %s %s", self.definition.name, self.workload.bucket(), kind, detail)
        if self._progress:
            self._progress(Event(kind, self.definition, self.workload, solution, detail))

    def left(self) -> float:
        return self.deadline - time.monotonic()

    def resolve(self) -> Hit | Miss:
        return self.resolver.resolve(self.definition, self.workload)

    def outcome(self) -> Outcome:
        self._outcome.resolution = self.resolve()
        self.say("done", detail=_words(self._outcome.resolution))
        return self._outcome

    @contextlib.contextmanager
    def single_flight(self) -> Iterator[bool]:
        """True with the lock. False where another process kept it until our deadline: its work is not repeated."""
        key = digest("flight", [self.definition.digest, self.workload.bucket(), self.environment.digest])
        user = self.tiers.user
        reason = user.usable()
        if reason or not user.writable:
            raise CacheUnwritableError(reason or f"{user.root} is used read-only")
        user.put_definition(self.definition)  # raises where the root cannot be written: nothing could be kept
        with user.lock(key, timeout=0) as mine:
            if mine:
                yield True
                return
        self.say("waiting", detail="another process works on it")
        with user.lock(key, timeout=min(max(self.left(), 0), 3600)) as mine:
            self._outcome.waited = not mine
            yield mine

    def pending(self) -> list[Solution]:
        """Stored solutions without evidence here, those that did best elsewhere first."""
        verdicts = [v for v in self.resolver.judge(self.definition, self.workload) if v.reason == Reason.NOT_QUALIFIED]
        return [v.solution for v in sorted(verdicts, key=lambda v: (-self._promise(v.solution), v.solution.digest))]

    def _promise(self, solution: Solution) -> float:
        return max((trace.performance.ratio for trace in self.tiers.traces(solution.digest) if trace.performance), default=0.0)

    def qualify(self) -> None:
        for solution in self.pending():
            if self.left() < _LEAST_SECONDS:
                return
            self.judge(solution)

    def search_record(self, agent: Agent, effort: float | None) -> Search:
        seconds = max(self.left() if effort is None else effort, 1.0)
        who = f"{agent.name} {agent.version}, policy {POLICY_VERSION}"
        return Search(self.definition.digest, self.workload.bucket(), self.environment.digest, who,
                      math.ceil(math.log2(seconds) - 0.01))

    def search(self, agent: Agent, record: Search) -> None:
        """Judge what the agent proposes. A search that ends, by itself or by its budget, leaves `record`."""
        self.say("searching", detail=agent.name)
        if self.left() < _LEAST_SECONDS:
            return
        task = self.task(max(self.left() * _SEARCH_SHARE, _LEAST_SECONDS))
        proposals = agent.propose(task)
        thinking, proposed, cut = 0.0, 0, False
        while not cut:
            start = time.monotonic()
            solution = next(proposals, None)
            thinking += time.monotonic() - start
            if solution is None:
                break
            proposed += 1
            self._consider(solution)
            if self._outcome.accepted:  # proposals come best first
                break
            cut = self.left() < _LEAST_SECONDS
        finished = not cut and thinking < 0.9 * task.budget  # of its own accord: more time would change nothing
        self.tiers.user.put_search(replace(record, budget_class=FINISHED if finished else record.budget_class, proposed=proposed,
                                           accepted=self._outcome.accepted))

    def _consider(self, solution: Solution) -> None:
        if self.tiers.quarantined(solution.digest) or solution.definition != self.definition.digest:
            return
        self.tiers.user.put_solution(solution)
        if not self.resolver.refusal(self.definition, self.workload, solution):
            self.judge(solution)

    def task(self, budget: float) -> Task:
        """What the agent is told: earlier attempts are those whose verdict holds here."""
        attempts = tuple(Attempt(v.solution, v.reason, v.detail, v.ratio)
                         for v in self.resolver.judge(self.definition, self.workload)
                         if v.trace is not None or v.reason == Reason.QUARANTINED)
        return Task(self.definition, (self.workload,), self.environment, attempts, budget)

    def judge(self, solution: Solution) -> tuple[Trace, Accepted | Rejected]:
        """Evaluate, decide, store."""
        self.say("evaluating", solution, solution.provenance.schedule)
        count("synthesize_evaluated")
        try:
            trace = self._evaluate(self.definition, solution, self.workload, inductor_options=self.inductor_options)
        except EvaluationError as error:  # our own failure says nothing about the candidate: no trace
            warn_once("evaluation", f"agentinductor could not evaluate {short(solution.digest)}: {error}")
            self._outcome.rejected.append((solution, Rejected(Reason.INTERNAL_ERROR, str(error))))
            raise
        self.tiers.user.put_trace(trace)
        decision = decide([trace])
        self._outcome.evaluated += 1
        if isinstance(decision, Accepted):
            self._outcome.accepted += 1
            self.say("accepted", solution, f"{decision.ratio:.2f}x")
        else:
            self._outcome.rejected.append((solution, decision))
            self.say("rejected", solution, f"{decision.reason.value} {decision.detail}".strip())
        return trace, decision


def _words(resolution: Hit | Miss) -> str:
    if isinstance(resolution, Hit):
        return f"{short(resolution.solution.digest)} at {resolution.ratio:.2f}x"
    return resolution.detail


def _environment() -> Environment:
    """The accelerator's where there is one: callers that compile for the CPU beside a GPU give theirs."""
    return device.environment("cuda" if device.has_cuda() else "cpu")
