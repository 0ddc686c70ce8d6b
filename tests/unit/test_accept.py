"""Acceptance is a pure function: each rule with one trace that breaks it."""

from dataclasses import replace

import pytest

from agentinductor import accept, device
from agentinductor.schema import Accepted, Correctness, Performance, Reason, Rejected, Trace, Workload

GOOD = Performance(50.0, 60.0, 1.2, 1.15, 1.25, 1 << 20, 1 << 20, 40.0)


def trace(performance=GOOD, created="2030-01-01", **changes):
    base = Trace("d", "s", Workload.of({"rows": 8}), device.environment("cpu"), accept.POLICY_VERSION,
                 Correctness(10, 0.0, 0.0, 0.0), performance, created=created)
    return replace(base, **changes)


def test_a_clear_win_is_accepted():
    assert accept.decide([trace()]) == Accepted(1.2)


@pytest.mark.parametrize("changes, reason", [
    ({"reason": Reason.CRASH}, Reason.CRASH),
    ({"correctness": None}, Reason.NO_EVIDENCE),
    ({"performance": None}, Reason.NOT_QUALIFIED),
    ({"policy": "0"}, Reason.NO_EVIDENCE),
    ({"performance": replace(GOOD, ratio_low=0.99)}, Reason.SLOWER),
    ({"performance": replace(GOOD, ratio=1.01, ratio_low=1.005)}, Reason.SLOWER),
    ({"performance": replace(GOOD, ratio=float("nan"))}, Reason.SLOWER),
    ({"performance": replace(GOOD, peak_bytes=4 << 20)}, Reason.MORE_MEMORY),
])
def test_each_rule_rejects(changes, reason):
    verdict = accept.decide([trace(**changes)])
    assert isinstance(verdict, Rejected) and verdict.reason is reason


def test_nothing_is_no_evidence():
    assert accept.decide([]) == Rejected(Reason.NO_EVIDENCE, "no evaluation under policy 1")


def test_one_failure_outweighs_every_success():
    assert accept.decide([trace(), trace(reason=Reason.WRONG_VALUES)]).reason is Reason.WRONG_VALUES


def test_the_newest_timing_of_a_workload_counts_and_the_worst_workload_decides():
    old = trace(replace(GOOD, ratio=2.0), created="2029-01-01")
    other = trace(replace(GOOD, ratio=1.1), workload=Workload.of({"rows": 4096}))
    assert accept.decide([trace(), old]) == Accepted(1.2)
    assert accept.decide([trace(), other]) == Accepted(1.1)


def test_the_environment_names_what_changes_speed():
    here = device.environment("cpu")
    assert here.device_type == "cpu" and here.capability == 0 and any(f.startswith("threads=") for f in here.flags)
    assert device.environment("cpu") is here
