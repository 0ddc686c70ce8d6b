"""The resolver: only evidence of this environment and bucket lets a solution run, and every miss says why."""

import errno
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from agentinductor.accept import POLICY_VERSION
from agentinductor.kernel_cache.resolver import Hit, Miss, Resolver, differences
from agentinductor.kernel_cache.store import KernelCache
from agentinductor.kernel_cache.tiers import Tiers
from agentinductor.schema import Guard, Reason
from agentinductor.settings import Settings

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import cache_records as make  # noqa: E402
from faults import ERRORS, fail_kth  # noqa: E402

D = make.definition()
W = make.workload()


@pytest.fixture
def cache(tmp_path):
    return KernelCache(tmp_path / "cache")


def add(cache, number=0, guards=(), of=D, **trace):
    solution = make.solution(of, number, guards)
    cache.put_definition(of)
    cache.put_solution(solution)
    if trace:
        cache.put_trace(make.trace(solution, **{"policy": POLICY_VERSION, **trace}))
    return solution


def resolve(cache, workload=W, environment=make.CPU, definition=D, **settings):
    return Resolver(Tiers(cache), environment, Settings(**settings)).resolve(definition, workload)


def test_the_fastest_accepted_solution_wins(cache):
    add(cache, 0, ratio=1.2)
    best = add(cache, 1, ratio=1.9)
    add(cache, 2, ratio=0.9)
    add(cache, 3)
    hit = resolve(cache)
    assert isinstance(hit, Hit) and hit.solution == best and hit.ratio == 1.9 and hit.trace.solution == best.digest


def test_resolving_writes_nothing(cache):
    add(cache, ratio=1.5)
    before = sorted(cache.root.rglob("*"))
    assert isinstance(resolve(cache), Hit) and sorted(cache.root.rglob("*")) == before
    empty = KernelCache(cache.root.parent / "none")
    assert resolve(empty).reason == Reason.NO_SOLUTION and not empty.root.exists()


@pytest.mark.parametrize("trace, reason, words", [
    ({}, Reason.NOT_QUALIFIED, "not yet qualified on this device"),
    ({"ratio": 0.93}, Reason.SLOWER, "slower: 0.93x"),
    ({"ratio": 1.005}, Reason.SLOWER, "slower: 1.00x"),
    ({"ratio": None}, Reason.NOT_QUALIFIED, "not timed"),
    ({"reason": Reason.WRONG_VALUES, "detail": "row 3 is 2.0, not 1.0"}, Reason.WRONG_VALUES,
     "rejected: wrong_values (row 3 is 2.0, not 1.0)"),
    ({"ratio": 1.5, "rows": 5000}, Reason.NOT_QUALIFIED, "for rows<=128; it is for rows<=8192"),
    ({"reason": Reason.CRASH, "rows": 5000}, Reason.CRASH, "rejected: crash"),
    ({"reason": Reason.TOOLCHAIN_MISSING, "rows": 5000}, Reason.NOT_QUALIFIED, "not yet qualified"),
    ({"ratio": 1.5, "policy": "old"}, Reason.NOT_QUALIFIED, "not yet qualified"),
    ({"reason": Reason.CRASH, "policy": "old"}, Reason.NOT_QUALIFIED, "not yet qualified"),
    ({"ratio": 1.5, "environment": make.OTHER_CPU}, Reason.NOT_QUALIFIED, "torch 2.14.0, this is 2.13.0"),
    ({"ratio": 1.5, "environment": replace(make.CPU, flags=("a=b",))}, Reason.NOT_QUALIFIED, "flags"),
])
def test_misses_say_why(cache, trace, reason, words):
    add(cache, **trace)
    miss = resolve(cache)
    assert isinstance(miss, Miss) and miss.reason == reason and words in miss.detail, miss
    assert [verdict.reason for verdict in miss.considered] == [reason]


@pytest.mark.parametrize("guard, words", [
    (Guard("divisible", "cols", 48), "guard failed: axis cols = 64 is not a multiple of 48"),
    (Guard("range", "rows", 1, 64), "guard failed: axis rows = 128 is outside 1 to 64"),
    (Guard("device", "cuda"), "needs device cuda"),
    (Guard("capability", low=90), "needs compute capability 90"),
    (Guard("range", "nonsense", 1, 64), "no axis nonsense"),
])
def test_guards_are_enforced(cache, guard, words):
    add(cache, guards=(guard,), ratio=3.0)
    miss = resolve(cache, force=True)
    assert miss.reason == Reason.GUARD_FAILED and words in miss.detail


def test_evidence_of_one_workload_serves_its_bucket(cache):
    add(cache, ratio=1.5, rows=128)
    assert isinstance(resolve(cache, make.workload(70)), Hit)
    assert resolve(cache, make.workload(64)).reason == Reason.NOT_QUALIFIED
    assert resolve(cache, make.workload(129)).reason == Reason.NOT_QUALIFIED


def test_one_wrong_result_outweighs_a_fast_one(cache):
    solution = add(cache, ratio=1.5)
    cache.put_trace(make.trace(solution, reason=Reason.WRONG_VALUES, rows=1000, policy=POLICY_VERSION))
    assert resolve(cache).reason == Reason.WRONG_VALUES
    assert resolve(cache, force=True).reason == Reason.WRONG_VALUES


def test_switches(cache):
    solution = add(cache, ratio=1.5)
    assert resolve(cache, enabled=False).reason == Reason.DISABLED
    miss = resolve(cache, disable_kernels=(solution.digest[:8],))
    assert miss.reason == Reason.DISABLED and solution.digest[:8] in miss.detail
    cache.quarantine(solution.digest, Reason.STATE_LEAK, "seen in production")
    miss = resolve(cache, force=True)
    assert miss.reason == Reason.QUARANTINED and "seen in production" in miss.detail
    cache.release(solution.digest)
    assert isinstance(resolve(cache), Hit)


def test_force_runs_what_is_correct_but_no_faster(cache):
    add(cache, ratio=0.5)
    assert resolve(cache).reason == Reason.SLOWER and isinstance(resolve(cache, force=True), Hit)


def test_the_reason_to_act_on_comes_first(cache):
    add(cache, 0, ratio=0.5)
    add(cache, 1, reason=Reason.CRASH)
    assert resolve(cache).reason == Reason.SLOWER
    add(cache, 2)
    miss = resolve(cache)
    assert miss.reason == Reason.NOT_QUALIFIED and len(miss.considered) == 3


def test_solutions_for_another_device_do_not_count(cache):
    add(cache, ratio=1.5)
    assert resolve(cache, environment=replace(make.CPU, device_type="cuda", capability=90)).reason == Reason.NO_SOLUTION


def test_a_cache_copied_from_another_machine_is_a_set_of_candidates(cache, tmp_path):
    """Forged or honest, what was accepted elsewhere is not accepted here."""
    solution = add(cache, ratio=9.0, environment=replace(make.CPU, device_name="Another Processor"))
    user = KernelCache(tmp_path / "user")
    tiers = Tiers(user, [KernelCache(cache.root, writable=False)])
    miss = Resolver(tiers, make.CPU, Settings()).resolve(D, W)
    assert miss.reason == Reason.NOT_QUALIFIED and "Another Processor" in miss.detail
    user.put_trace(make.trace(solution, ratio=1.1, policy=POLICY_VERSION))  # qualified here
    hit = Resolver(tiers, make.CPU, Settings()).resolve(D, W)
    assert isinstance(hit, Hit) and hit.ratio == 1.1


def test_shipped_evidence_counts_where_the_environment_is_the_same(cache, tmp_path):
    add(cache, ratio=1.4)
    tiers = Tiers(KernelCache(tmp_path / "user"), [KernelCache(cache.root, writable=False, check_owner=False)])
    assert isinstance(Resolver(tiers, make.CPU, Settings()).resolve(D, W), Hit)


def test_a_trace_moved_to_another_solution_proves_nothing(cache):
    good, bad = add(cache, 0, ratio=1.5), add(cache, 1)
    source = cache.base / "traces" / good.digest
    source.rename(cache.base / "traces" / bad.digest)
    assert resolve(cache).reason == Reason.NOT_QUALIFIED


def test_near_definitions_are_explained(cache):
    add(cache, of=make.definition(cols=64, dtype="float16"))
    add(cache, of=make.definition(cols=32))
    add(cache, of=make.definition(cols=64, kind="other"))
    near = Resolver(Tiers(cache), make.CPU, Settings()).near(D)
    assert len(near) == 2 and near[0].definition == make.definition(cols=32) and near[0].solutions == 1
    assert near[0].differences == ("axes cols.value: 64, there 32",)
    assert 'inputs x0.dtype: "float32", there "float16"' in near[1].differences
    assert differences(D, D) == ()
    assert 'axes cols.type: "const", there "var"' in differences(D, make.definition(cols=None))


def test_every_failing_call_is_a_miss_at_worst(cache, monkeypatch):
    """Whatever the file system does, resolving answers, and never with a solution that is denied.

    ENOENT is left out: it says that nothing is there, and has to be believed.
    """
    errors = [code for code in ERRORS if code != errno.ENOENT]
    good, denied = add(cache, 0, ratio=1.5), add(cache, 1, ratio=9.0)
    cache.quarantine(denied.digest, Reason.CRASH)
    kth, done = 0, False
    while not done:
        kth += 1
        with monkeypatch.context() as patch:
            seen = fail_kth(patch, kth, errors[kth % len(errors)])
            reader = KernelCache(cache.root, writable=False)
            found = Resolver(Tiers(reader), make.CPU, Settings(force=True)).resolve(D, W)
            done = seen[0] < kth
        assert isinstance(found, Miss) or found.solution in (good, denied)
        if isinstance(found, Hit) and found.solution == denied:
            raise AssertionError(f"call {kth} let a denied solution run")
    assert kth > 30
