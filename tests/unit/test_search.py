"""The search agent: deterministic, bounded, and it finds the best of a known landscape without trying everything."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from agentinductor.agents.request import Attempt, Task
from agentinductor.agents.search import SearchAgent, distance
from agentinductor.codegen.schedule import Schedule
from agentinductor.errors import UnsupportedRegionError
from agentinductor.schema import Launch, Reason, Solution, Source

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import cache_records as make  # noqa: E402

D = make.definition()
CUDA = replace(make.CPU, device_type="cuda", capability=90)
BEST = Schedule("triton", "rows", 8, 128, 4)
SPACE = [Schedule("triton", "rows", rows, block, warps)
         for rows in (1, 2, 4, 8, 16) for block in (64, 128, 256) for warps in (1, 2, 4, 8)]


@dataclass
class Ranked:
    solution: Solution
    latency_us: float
    reason: Reason | None = None
    detail: str = ""


def emit(definition, schedule):
    name = {"triton": "kernel.py", "cuda": "kernel.cu", "cpp": "kernel.cpp"}[schedule.language]
    launches = (Launch("run", ("1", "1", "1"), 32, ("x0", "y0")),) if schedule.language == "cuda" else ()
    return Solution(definition.digest, schedule.language, f"{name}::run", (Source(name, str(schedule)),), launches=launches)


class Bench:
    """A landscape with one best schedule, and a clock that measuring moves on."""

    def __init__(self, best=BEST, each=1.0, failing=()):
        self.best, self.each, self.failing = best, each, failing
        self.now = 0.0
        self.measured = []
        self.by_text = {str(s): s for s in SPACE}

    def clock(self):
        return self.now

    def rank(self, definition, solutions, workload, seconds):
        out = []
        for solution in solutions:
            text = solution.sources[0].content
            self.measured.append(text)
            self.now += self.each
            schedule = self.by_text.get(text)
            if text in self.failing:
                out.append(Ranked(solution, 0.0, Reason.WRONG_VALUES, "row 0"))
            else:
                out.append(Ranked(solution, self.latency(schedule) if schedule else 50.0))
        return sorted(out, key=lambda item: item.latency_us)

    def latency(self, schedule):
        mine, best = schedule.to_json(), self.best.to_json()
        return 10.0 * 1.2 ** sum(abs(mine[key].bit_length() - best[key].bit_length()) for key in ("rows", "block", "warps"))


def agent(bench, schedules=SPACE, **more):
    templates = dict.fromkeys(("triton", "cuda", "cpp"), emit)
    return SearchAgent(bench.rank, templates=templates, clock=bench.clock,
                       space=lambda d, sizes, language: [s for s in schedules if s.language == language], **more)


def task(budget=1000.0, attempts=(), environment=CUDA):
    return Task(D, (make.workload(),), environment, tuple(attempts), budget)


def test_it_climbs_to_the_best_without_trying_everything():
    bench = Bench()
    found = list(agent(bench).propose(task()))
    assert found[0].provenance.schedule == str(bench.best)
    assert len(found) == 3 and len(bench.measured) < len(SPACE)
    assert [bench.latency(bench.by_text[s.provenance.schedule]) for s in found] == sorted(
        bench.latency(bench.by_text[s.provenance.schedule]) for s in found)
    assert found[0].provenance.agent == "search" and found[0].provenance.attempts == len(bench.measured)
    assert len(set(bench.measured)) == len(bench.measured)


def test_the_same_seed_gives_the_same_search():
    runs = []
    for seed in (0, 0, 1):
        bench = Bench()
        found = [s.digest for s in agent(bench, seed=seed).propose(task())]
        runs.append((bench.measured, found))
    assert runs[0] == runs[1] and runs[0][0] != runs[2][0] and runs[0][1][0] == runs[2][1][0]


def test_the_first_batch_is_the_most_promising():
    bench = Bench()
    list(agent(bench).propose(task()))
    assert bench.measured[:8] == [str(s) for s in SPACE[:8]]


@pytest.mark.parametrize("budget", [1, 9, 20])
def test_the_budget_ends_it(budget):
    bench = Bench()
    found = list(agent(bench).propose(task(budget)))
    assert bench.now <= budget + 8 and found


def test_rejected_candidates_are_not_tried_again():
    bench = Bench()
    gone = emit(D, bench.best)
    found = list(agent(bench).propose(task(attempts=[Attempt(gone, Reason.WRONG_VALUES)])))
    assert str(bench.best) not in bench.measured and gone not in found


def test_failing_candidates_are_not_proposed():
    bench = Bench(failing=tuple(str(s) for s in SPACE[:6]))
    assert not {s.provenance.schedule for s in agent(bench).propose(task())} & set(bench.failing)
    nothing = Bench(failing=tuple(str(s) for s in SPACE))
    assert list(agent(nothing).propose(task())) == [] and len(nothing.measured) < len(SPACE)


def test_languages_follow_the_device():
    cpu = [Schedule("cpp", "rows", 1, 1024, 0, vector=v) for v in (8, 16)]
    bench = Bench()
    found = list(agent(bench, cpu + SPACE).propose(task(environment=make.CPU)))
    assert {s.language for s in found} == {"cpp"} and len(bench.measured) == 2
    cuda = [Schedule("cuda", "rows", 1, 64, 2)]
    bench = Bench(each=1.0)
    list(agent(bench, cuda + SPACE).propose(task(40)))
    assert bench.measured[0].startswith("triton") and bench.measured[-1].startswith("cuda")


def test_what_no_template_expresses_is_skipped():
    def picky(definition, schedule):
        if schedule.rows == 1:
            raise UnsupportedRegionError(Reason.UNSUPPORTED_OP, "no")
        return emit(definition, schedule)

    bench = Bench()
    searcher = agent(bench)
    searcher.templates = {"triton": picky, "cuda": picky}
    assert list(searcher.propose(task()))[0].provenance.schedule == str(bench.best)
    assert list(agent(Bench(), []).propose(task())) == []


def test_distance_counts_choices():
    assert distance(SPACE[0], SPACE[0]) == 0 and distance(SPACE[0], SPACE[1]) == 1


def test_the_same_task_is_the_same_text_and_holds_no_path():
    text = str(task(attempts=[Attempt(emit(D, SPACE[0]), None, "fine", 1.2)]).to_json())
    assert text == str(task(attempts=[Attempt(emit(D, SPACE[0]), None, "fine", 1.2)]).to_json())
    assert str(Path.home()) not in text and str(Path.cwd()) not in text


def test_the_real_templates_give_distinct_candidates():
    """The shipped spaces and templates, with made-up times: every language has something to try on a plain definition."""
    for environment, languages in ((make.CPU, {"cpp"}), (CUDA, {"triton", "cuda"})):
        bench = Bench(each=0.1)
        digests = []

        def rank(definition, solutions, workload, seconds, bench=bench, digests=digests):
            digests.extend((s.language, s.digest) for s in solutions)
            bench.now += 0.1
            return [Ranked(s, float(index + 1)) for index, s in enumerate(solutions)]

        found = list(SearchAgent(rank, clock=bench.clock).propose(task(environment=environment)))
        assert {language for language, _ in digests} == languages
        assert len({digest for _, digest in digests}) == len(digests) and len(found) == 3
