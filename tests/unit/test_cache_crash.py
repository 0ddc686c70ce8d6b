"""Writers that die, at any call and at any moment, and many of them at once: a reader sees whole entries or none."""

import os
import random
import signal
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agentinductor.kernel_cache import layout, maintenance
from agentinductor.kernel_cache.store import KernelCache
from agentinductor.schema import Plan, Request

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import cache_records as make  # noqa: E402

D = make.definition()
SOLUTIONS = [make.solution(D, number) for number in range(12)]
CALLS = ("open", "write", "fsync", "rename", "mkdir", "rmdir", "unlink", "close", "listdir", "scandir")


def fork(work) -> int:
    """Run `work` in a child that leaves without cleaning up. Returns its process id; its status is 0 only on success."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(status)
    return child


def status(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def write_everything(cache: KernelCache, number: int) -> None:
    cache.put_definition(D)
    cache.put_solution(SOLUTIONS[number])
    cache.put_trace(make.trace(SOLUTIONS[number]))
    cache.put_plan(Plan("k", ((D.digest, SOLUTIONS[number].digest),), True, {}))
    cache.put_request(Request(D.digest, make.workload(), "cpu"))
    cache.quarantine(SOLUTIONS[number].digest, "crash")
    cache.release(SOLUTIONS[number].digest)


def die_at(kth: int) -> None:
    """SIGKILL this process right before or right after its kth file system call."""
    seen = 0

    def wrap(plain):
        def call(*args, **kwargs):
            nonlocal seen
            seen += 1
            if seen == kth and kth % 2:
                os.kill(os.getpid(), signal.SIGKILL)
            out = plain(*args, **kwargs)
            if seen == kth:
                os.kill(os.getpid(), signal.SIGKILL)
            return out
        return call

    for name in CALLS:
        setattr(os, name, wrap(getattr(os, name)))


def check(cache: KernelCache) -> None:
    report = maintenance.verify(cache)
    assert report.sound, report
    assert all(solution in SOLUTIONS for solution in cache.solutions(D.digest))


def test_killed_at_every_call(tmp_path):
    kth = 0
    while True:
        kth += 1
        root = tmp_path / str(kth)
        ended = status(fork(lambda kth=kth, root=root: (die_at(kth), write_everything(KernelCache(root), 0))))
        cache = KernelCache(root)
        check(cache)
        assert cache.solution(SOLUTIONS[0].digest) in (None, SOLUTIONS[0])
        write_everything(cache, 0)
        assert cache.solution(SOLUTIONS[0].digest) == SOLUTIONS[0] and cache.plan("k") is not None
        if ended == 0:
            break
        assert ended == -signal.SIGKILL
    assert kth > 60


def work_at_random(root: Path, seed: int, seconds: float) -> None:
    rng = random.Random(seed)
    cache = KernelCache(root)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        number = rng.randrange(len(SOLUTIONS))
        action = rng.randrange(4)
        if action == 0:
            write_everything(cache, number)
        elif action == 1:
            assert cache.solution(SOLUTIONS[number].digest) in (None, SOLUTIONS[number])
            assert cache.traces(SOLUTIONS[number].digest) in ([], [make.trace(SOLUTIONS[number])])
            plan = cache.plan("k")
            assert plan is None or plan.key == "k"
        elif action == 2:
            with cache.lock("key", timeout=0.02):
                cache.put_trace(make.trace(SOLUTIONS[number]))
        else:
            assert all(solution in SOLUTIONS for solution in cache.solutions(D.digest))
            if rng.random() < 0.1:
                maintenance.prune(cache, 20_000)


@pytest.mark.parametrize("locks", ["locked", "unlocked"])
def test_many_writers_and_readers_some_of_which_are_killed(tmp_path, locks, monkeypatch):
    """Locks save work, no more: everything holds without them."""
    if locks == "unlocked":
        monkeypatch.setattr("filelock.FileLock.acquire", lambda self, **kw: None)
    root = tmp_path / "cache"
    rng = random.Random(7)
    children = [fork(lambda seed=seed: work_at_random(root, seed, 60.0 if seed < 3 else 2.5)) for seed in range(8)]
    victims = children[:3]
    for victim in victims:
        time.sleep(rng.uniform(0.2, 0.6))
        os.kill(victim, signal.SIGKILL)
    assert {status(victim) for victim in victims} == {-signal.SIGKILL}
    assert [status(child) for child in children[3:]] == [0] * 5
    cache = KernelCache(root)
    check(cache)
    report = maintenance.verify(cache)
    assert not report.set_aside, "a sound entry was taken for a damaged one"
    write_everything(cache, 0)
    assert cache.solution(SOLUTIONS[0].digest) == SOLUTIONS[0]


def test_a_stopped_holder_of_the_lock_costs_a_timeout_not_a_hang(tmp_path):
    cache = KernelCache(tmp_path / "cache")

    def hold():
        with cache.lock("key", timeout=1):
            os.kill(os.getpid(), signal.SIGSTOP)

    child = fork(hold)
    os.waitpid(child, os.WUNTRACED)
    start = time.monotonic()
    with cache.lock("key", timeout=0.3) as held:
        assert not held
    assert time.monotonic() - start < 5
    os.kill(child, signal.SIGKILL)
    status(child)
    with cache.lock("key", timeout=5) as held:  # the lock of a dead process is free
        assert held


def test_killed_writers_leave_only_what_sweeping_takes(tmp_path):
    cache = KernelCache(tmp_path / "cache")
    for kth in range(20, 40):
        status(fork(lambda kth=kth: (die_at(kth), write_everything(cache, 0))))
    temporary = cache.base / layout.TEMPORARY
    left = list(temporary.iterdir())
    assert left
    for path in left:
        os.utime(path, (1, 1))
    maintenance.sweep(cache)
    assert not list(temporary.iterdir())
    check(cache)


def test_concurrent_requests_never_raise(tmp_path):
    root = tmp_path / "cache"

    def ask():
        cache = KernelCache(root)
        for _ in range(30):
            cache.put_request(Request(D.digest, make.workload(), "cpu"))

    assert [status(child) for child in [fork(ask) for _ in range(4)]] == [0] * 4
    (request,) = KernelCache(root).requests()
    assert request.occurrences >= 1


def test_threads_share_a_cache(tmp_path):
    cache = KernelCache(tmp_path / "cache")

    def work(seed: int) -> bool:
        for number in range(len(SOLUTIONS)):
            write_everything(cache, (number + seed) % len(SOLUTIONS))
        return set(cache.solutions(D.digest)) == set(SOLUTIONS)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))
    check(cache)
