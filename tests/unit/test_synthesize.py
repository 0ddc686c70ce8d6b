"""Synthesis: what is stored is never done twice, interrupting keeps what was accepted, and every verdict is kept."""

import json
import os
import sys
import time
from pathlib import Path

import pytest

from agentinductor import synthesize
from agentinductor.accept import POLICY_VERSION
from agentinductor.errors import CacheUnwritableError, EvaluationError, SchemaError
from agentinductor.kernel_cache import layout, maintenance
from agentinductor.kernel_cache.resolver import Hit, Miss
from agentinductor.kernel_cache.store import KernelCache
from agentinductor.kernel_cache.tiers import Tiers
from agentinductor.schema import Accepted, Guard, Reason, Rejected, Request, Solution, Source
from agentinductor.settings import Settings

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import cache_records as make  # noqa: E402

D = make.definition()
W = make.workload()
SOLUTIONS = [make.solution(D, number, agent="scripted") for number in range(5)]


class Scripted:
    """An agent that proposes the same solutions each time and remembers what it was told."""

    name, version = "scripted", "1"

    def __init__(self, *solutions):
        self.solutions = solutions
        self.tasks = []

    def propose(self, task):
        self.tasks.append(task)
        yield from (s for s in self.solutions if s.digest not in task.rejected())


class Judge:
    """An evaluator with a fixed verdict for each solution."""

    def __init__(self, verdicts, hook=lambda solution: None):
        self.verdicts = {SOLUTIONS[number].digest: verdict for number, verdict in verdicts.items()}
        self.hook = hook
        self.calls = []

    def __call__(self, definition, solution, workload, *, inductor_options=None):
        self.calls.append(solution)
        self.hook(solution)
        verdict = self.verdicts[solution.digest]
        rows = dict(workload.sizes)["rows"]
        if isinstance(verdict, Reason):
            return make.trace(solution, reason=verdict, rows=rows, policy=POLICY_VERSION)
        return make.trace(solution, ratio=verdict, rows=rows, policy=POLICY_VERSION)


@pytest.fixture
def tiers(tmp_path):
    return Tiers(KernelCache(tmp_path / "user"))


def generate(tiers, agent, judge, seconds=60.0, workload=W, **more):
    return synthesize.generate(D, workload, tiers, Settings(), time.monotonic() + seconds, agent=agent, environment=make.CPU,
                               evaluate=judge, **more)


def qualify(tiers, judge, seconds=60.0):
    return synthesize.qualify(D, W, tiers, Settings(), time.monotonic() + seconds, environment=make.CPU, evaluate=judge)


def test_the_first_accepted_proposal_serves_and_rejections_are_kept(tiers):
    events = []
    judge = Judge({0: Reason.WRONG_VALUES, 1: 0.9, 2: 1.6, 3: 1.2})  # proposals come best first
    outcome = generate(tiers, Scripted(*SOLUTIONS[:4]), judge, progress=events.append)
    assert isinstance(outcome.resolution, Hit) and outcome.resolution.solution == SOLUTIONS[2]
    assert (outcome.evaluated, outcome.accepted, len(outcome.rejected)) == (3, 1, 2)
    assert tiers.traces(SOLUTIONS[0].digest)[0].reason == Reason.WRONG_VALUES
    assert [e.kind for e in events].count("evaluating") == 3 and events[-1].kind == "done"
    assert tiers.user.solution(SOLUTIONS[2].digest).provenance.agent == "scripted"


def test_a_second_run_does_nothing(tiers):
    generate(tiers, Scripted(SOLUTIONS[0]), Judge({0: 1.5}))
    before = {path: os.stat(path).st_mtime_ns for path in tiers.user.root.rglob("*")}
    agent, judge = Scripted(SOLUTIONS[0]), Judge({})
    assert isinstance(generate(tiers, agent, judge).resolution, Hit) and not agent.tasks and not judge.calls
    assert {path: os.stat(path).st_mtime_ns for path in tiers.user.root.rglob("*")} == before


class Slow(Scripted):
    """Uses all of its budget."""

    def propose(self, task):
        yield from super().propose(task)
        time.sleep(task.budget)


def test_a_finished_search_without_a_winner_is_never_repeated(tiers):
    generate(tiers, Scripted(SOLUTIONS[0]), Judge({0: 0.9}), 5.0)
    agent = Scripted(SOLUTIONS[0])
    generate(tiers, agent, Judge({}), 5000.0)
    assert not agent.tasks


def test_a_search_that_was_cut_short_is_not_repeated_until_the_budget_grows(tiers):
    verdicts = {0: 0.9, 1: Reason.CRASH}
    first = generate(tiers, Slow(*SOLUTIONS[:2]), Judge(verdicts), 2.0, effort=64.0)
    assert isinstance(first.resolution, Miss) and first.resolution.reason == Reason.SLOWER
    for seconds, effort, asked in ((60.0, None, 0), (10.0, None, 0), (500.0, 60.0, 0), (500.0, None, 1)):
        agent, judge = Scripted(*SOLUTIONS[:2]), Judge(verdicts)
        generate(tiers, agent, judge, seconds, effort=effort)
        assert len(agent.tasks) == asked and not judge.calls
    told = agent.tasks[0].attempts
    assert {a.solution: a.reason for a in told} == {SOLUTIONS[0]: Reason.SLOWER, SOLUTIONS[1]: Reason.CRASH}
    agent = Scripted(SOLUTIONS[2])
    agent.version = "2"  # a new agent may know better
    assert isinstance(generate(tiers, agent, Judge({2: 1.5}), 10.0).resolution, Hit)


def test_another_bucket_is_another_search(tiers):
    generate(tiers, Scripted(SOLUTIONS[0]), Judge({0: 0.9}))
    agent = Scripted(SOLUTIONS[1])
    judge = Judge({0: 1.1, 1: 1.5})
    assert isinstance(generate(tiers, agent, judge, workload=make.workload(5000)).resolution, Hit)
    assert judge.calls == [SOLUTIONS[0]] and not agent.tasks  # the stored one was tried first, and it was enough


def test_interrupting_keeps_what_was_accepted_and_the_rest_is_taken_up_again(tiers):
    def interrupt(solution):
        if solution == SOLUTIONS[1]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generate(tiers, Scripted(*SOLUTIONS[:3]), Judge({0: 0.5, 1: 1.5, 2: 1.2}, interrupt))
    assert len(tiers.traces(SOLUTIONS[0].digest)) == 1
    judge = Judge({0: 0.5, 1: 1.5, 2: 1.2})
    assert isinstance(generate(tiers, Scripted(*SOLUTIONS[:3]), judge).resolution, Hit)
    assert SOLUTIONS[0] not in judge.calls and SOLUTIONS[1] in judge.calls
    with tiers.user.lock("anything", timeout=0.1) as free:
        assert free


def test_no_time_no_work(tiers):
    agent, judge = Scripted(SOLUTIONS[0]), Judge({0: 1.5})
    assert isinstance(generate(tiers, agent, judge, 0.0).resolution, Miss) and not judge.calls and not agent.tasks
    tiers.user.put_solution(SOLUTIONS[0])
    qualify(tiers, judge, 0.0)
    assert not judge.calls


def test_qualify_tries_what_has_no_evidence_here_the_best_elsewhere_first(tiers, tmp_path):
    shared = KernelCache(tmp_path / "shared")
    shared.put_definition(D)
    for number, ratio in ((0, 1.1), (1, 2.0), (2, None)):
        shared.put_solution(SOLUTIONS[number])
        if ratio:
            shared.put_trace(make.trace(SOLUTIONS[number], ratio, environment=make.OTHER_CPU, policy=POLICY_VERSION))
    tiers.read_only.append(KernelCache(shared.root, writable=False))
    before = sorted(shared.root.rglob("*"))
    judge = Judge({0: 1.2, 1: 0.8, 2: Reason.TIMEOUT})
    outcome = qualify(tiers, judge)
    assert judge.calls == [SOLUTIONS[1], SOLUTIONS[0], SOLUTIONS[2]] or judge.calls[0] == SOLUTIONS[1]
    assert outcome.evaluated == 3 and outcome.resolution.solution == SOLUTIONS[0]
    again = Judge({})
    assert isinstance(qualify(tiers, again).resolution, Hit) and not again.calls
    assert sorted(shared.root.rglob("*")) == before


def test_a_forged_trace_of_another_environment_is_only_a_candidate(tiers):
    tiers.user.put_definition(D)
    tiers.user.put_solution(SOLUTIONS[0])
    tiers.user.put_trace(make.trace(SOLUTIONS[0], 9.9, environment=make.OTHER_CPU, policy=POLICY_VERSION))
    outcome = qualify(tiers, Judge({0: Reason.WRONG_VALUES}))
    assert outcome.resolution.reason == Reason.WRONG_VALUES


def test_quarantined_and_guarded_solutions_are_not_evaluated(tiers):
    guarded = make.solution(D, 9, (Guard("range", "rows", 1, 2),))
    tiers.user.quarantine(SOLUTIONS[0].digest, Reason.CRASH)
    judge = Judge({1: 1.5})
    outcome = generate(tiers, Scripted(SOLUTIONS[0], guarded, SOLUTIONS[1]), judge)
    assert judge.calls == [SOLUTIONS[1]] and isinstance(outcome.resolution, Hit)


def test_an_evaluator_that_fails_blames_nobody(tiers):
    def fail(solution):
        raise EvaluationError("no child process")

    with pytest.raises(EvaluationError):
        generate(tiers, Scripted(SOLUTIONS[0]), Judge({}, fail))
    assert tiers.traces(SOLUTIONS[0].digest) == []
    assert isinstance(generate(tiers, Scripted(SOLUTIONS[0]), Judge({0: 1.5})).resolution, Hit)


def test_an_unwritable_cache_is_found_out_before_any_work(tmp_path):
    tiers = Tiers(KernelCache("/proc/nowhere/cache"))
    agent, judge = Scripted(SOLUTIONS[0]), Judge({0: 1.5})
    with pytest.raises(CacheUnwritableError):
        generate(tiers, agent, judge)
    assert not agent.tasks and not judge.calls


def test_two_processes_do_the_work_once(tmp_path):
    def work(pipe):
        judge = Judge({0: 1.5}, lambda solution: time.sleep(0.5))
        tiers = Tiers(KernelCache(tmp_path / "user"))
        outcome = generate(tiers, Scripted(SOLUTIONS[0]), judge)
        os.write(pipe, f"{len(judge.calls)}{type(outcome.resolution).__name__} ".encode())

    receive, send = os.pipe()
    children = []
    for _ in range(3):
        child = os.fork()
        if child == 0:
            try:
                work(send)
            finally:
                os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    os.close(send)
    assert sorted(os.read(receive, 1000).decode().split()) == ["0Hit", "0Hit", "1Hit"]
    os.close(receive)


def test_a_busy_definition_costs_the_budget_and_no_more(tiers):
    tiers.user.put_definition(D)
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        judge = Judge({0: 1.5}, lambda solution: (os.write(send, b"x"), time.sleep(30)))
        try:
            generate(Tiers(KernelCache(tiers.user.root)), Scripted(SOLUTIONS[0]), judge)
        finally:
            os._exit(0)
    os.read(receive, 1)
    start = time.monotonic()
    outcome = generate(tiers, Scripted(SOLUTIONS[0]), Judge({0: 1.5}), 0.5)
    assert outcome.waited and isinstance(outcome.resolution, Miss) and time.monotonic() - start < 5
    os.kill(child, 9)
    os.waitpid(child, 0)


# --- the door for everybody else

def write(directory, solution, **change):
    raw = solution.to_json()
    raw["sources"] = [{"path": s.path} for s in solution.sources]
    raw.update(change)
    directory.mkdir(exist_ok=True)
    (directory / "solution.json").write_text(json.dumps(raw))
    for source in solution.sources:
        (directory / source.path).write_text(source.content)
    (directory / "README").write_text("notes")
    return directory


def submit(what, tiers, judge, **more):
    return synthesize.submit(what, tiers, Settings(), environment=make.CPU, evaluate=judge, **more)


def test_submitting_a_directory(tiers, tmp_path):
    tiers.user.put_definition(D)
    tiers.user.put_request(Request(D.digest, W, "cpu"))
    ((trace, decision),) = submit(write(tmp_path / "s", SOLUTIONS[0]), tiers, Judge({0: 1.5}))
    assert isinstance(decision, Accepted) and trace.workload == W and tiers.solutions(D.digest) == [SOLUTIONS[0]]
    ((_, decision),) = submit(SOLUTIONS[1], tiers, Judge({1: Reason.INPUT_MODIFIED}), workloads=[make.workload(1000)])
    assert decision == Rejected(Reason.INPUT_MODIFIED, "") and tiers.traces(SOLUTIONS[1].digest)


def test_workloads_outside_the_guards_are_left_out(tiers):
    tiers.user.put_definition(D)
    for rows in (128, 4000):
        tiers.user.put_request(Request(D.digest, make.workload(rows), "cpu"))
    guarded = make.solution(D, 0, (Guard("range", "rows", 1, 1000),))
    judge = Judge({})
    judge.verdicts[guarded.digest] = 1.5
    ((trace, _),) = submit(guarded, tiers, judge)
    assert trace.workload == make.workload(128)


def test_submissions_that_are_refused(tiers, tmp_path):
    with pytest.raises(SchemaError, match="not in the cache"):
        submit(SOLUTIONS[0], tiers, Judge({}))
    tiers.user.put_definition(D)
    with pytest.raises(SchemaError, match="no workload"):
        submit(SOLUTIONS[0], tiers, Judge({}))
    tiers.user.put_request(Request(D.digest, W, "cpu"))
    good = SOLUTIONS[0]
    for change in ({"language": "fortran"}, {"sources": []}, {"sources": [{"path": "../../etc/passwd"}]}, {"sources": 3},
                   {"sources": [{"path": "missing.cpp"}]}, {"guards": [{"kind": "moon"}]}, {"entry_point": "x"}):
        with pytest.raises(SchemaError):
            submit(write(tmp_path / "bad", good, **change), tiers, Judge({}))
    with pytest.raises(SchemaError, match="solution.json"):
        submit(tmp_path / "nothing", tiers, Judge({}))
    linked = write(tmp_path / "linked", good)
    (linked / "kernel.cpp").unlink()
    (linked / "kernel.cpp").symlink_to("/etc/passwd")
    with pytest.raises(SchemaError):
        submit(linked, tiers, Judge({}))
    with pytest.raises(SchemaError, match="guard"):
        submit(make.solution(D, 9, (Guard("range", "rows", 1, 2),)), tiers, Judge({}))


def test_a_solution_is_judged_on_the_device_it_is_for(tiers, monkeypatch):
    tiers.user.put_definition(D)
    asked = []
    monkeypatch.setattr(synthesize.device, "environment", lambda kind: asked.append(kind) or make.CPU)
    monkeypatch.setattr(synthesize.device, "has_cuda", lambda: True)
    synthesize.submit(SOLUTIONS[0], tiers, Settings(), workloads=[W], evaluate=Judge({0: 1.5}))
    assert asked == ["cpu"]
    triton = Solution(D.digest, "triton", "kernel.py::run", (Source("kernel.py", ""),))
    monkeypatch.setattr(synthesize.device, "has_cuda", lambda: False)
    with pytest.raises(EvaluationError, match="no CUDA device"):
        synthesize.submit(triton, tiers, Settings(), workloads=[W], evaluate=Judge({}))


# --- publishing

def judged(tiers, verdicts):
    tiers.user.put_definition(D)
    for number in verdicts:
        submit(SOLUTIONS[number], tiers, Judge(verdicts), workloads=[W])


def test_a_library_receives_the_winners_and_serves_them(tiers, tmp_path):
    judged(tiers, {0: 1.2, 1: 1.8, 2: 0.7, 3: Reason.CRASH})
    other = make.definition(32)
    tiers.user.put_definition(other)
    tiers.user.put_trace(make.trace(SOLUTIONS[0], 1.4, environment=make.OTHER_CPU, policy=POLICY_VERSION))
    published = synthesize.publish_library(tiers.user, tmp_path / "library")
    assert {s.digest for s in published.solutions} == {SOLUTIONS[0].digest, SOLUTIONS[1].digest}
    assert (published.definitions, published.dropped, published.traces) == (1, 2, 2)
    library = KernelCache(tmp_path / "library", writable=False, check_owner=False)
    assert maintenance.verify(library).sound and library.definitions() == [D]
    assert sorted(path.name for path in library.base.iterdir()) == [layout.DEFINITIONS, layout.SOLUTIONS, layout.TRACES]
    agent, judge = Scripted(), Judge({})
    outcome = generate(Tiers(KernelCache(tmp_path / "fresh"), [library]), agent, judge)
    assert outcome.resolution.solution == SOLUTIONS[1] and not (tmp_path / "fresh").exists()
    assert all(os.stat(path).st_mode & 0o044 == 0o044 for path in library.root.rglob("*"))
    synthesize.publish_library(tiers, tmp_path / "library")  # again changes nothing


def test_a_quarantined_or_wrong_solution_is_not_published(tiers, tmp_path):
    judged(tiers, {0: 1.2, 1: 1.8})
    tiers.user.quarantine(SOLUTIONS[1].digest, Reason.STATE_LEAK)
    tiers.user.put_trace(make.trace(SOLUTIONS[0], reason=Reason.WRONG_VALUES, rows=1))
    assert synthesize.publish_library(tiers.user, tmp_path / "library").solutions == []
