"""KernelCache: records come back as they went in, damage is noticed, and nothing that fails to write is half there."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agentinductor import observability
from agentinductor.errors import CacheUnwritableError, DamagedEntryError, SchemaError
from agentinductor.kernel_cache import entry, layout, maintenance, strict_json
from agentinductor.kernel_cache.records import Search
from agentinductor.kernel_cache.store import KernelCache
from agentinductor.kernel_cache.tiers import LIBRARY, Tiers, library, open_tiers
from agentinductor.schema import Correctness, Plan, Provenance, Reason, Request, Solution, Source, Trace
from agentinductor.settings import Settings

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import cache_records as make  # noqa: E402
from faults import ERRORS, fail_kth  # noqa: E402

D = make.definition()
S = make.solution(D)
T = make.trace(S)


@pytest.fixture
def cache(tmp_path):
    observability.counters.clear()
    observability._warned.clear()
    return KernelCache(tmp_path / "cache")


def filled(cache: KernelCache) -> KernelCache:
    cache.put_definition(D)
    cache.put_solution(S)
    cache.put_trace(T)
    return cache


def snapshot(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() if path.is_file() else b"" for path in sorted(root.rglob("*"))}


def solution_path(cache: KernelCache, solution: Solution = S) -> Path:
    return cache.solution_directory(solution)


def test_records_come_back(cache):
    filled(cache)
    assert cache.definition(D.digest) == D and cache.definitions() == [D]
    found = cache.solution(S.digest)
    assert found == S and found.provenance == S.provenance
    assert cache.solutions(D.digest) == [S] and cache.traces(S.digest) == [T]
    assert (solution_path(cache) / "kernel.cpp").read_text() == S.source("kernel.cpp")
    assert maintenance.verify(cache).sound


def test_an_empty_cache_has_nothing_and_makes_nothing(cache):
    assert cache.definitions() == [] and cache.solution("0" * 64) is None and cache.plan("k") is None
    assert cache.quarantined(S.digest) is None and cache.requests() == [] and cache.traces(S.digest) == []
    assert cache.content_digest() and not cache.root.exists()


def test_names_that_leave_the_root_are_refused(cache):
    filled(cache)
    for name in ("../x", "a/b", "", ".", "..", "x" * 200, "/etc/passwd"):
        assert cache.definition(name) is None and cache.solution(name) is None and cache.plan(name) is None
        assert cache.solutions(name) == [] and cache.traces(name) == [] and cache.quarantined(name) is None
        with pytest.raises(SchemaError):
            cache.quarantine(name, Reason.CRASH)
        with pytest.raises(SchemaError):
            cache.put_plan(Plan(name, (), True, {}))


@pytest.mark.parametrize("name", ["solution.json", "manifest.json", "a\nb", "ä.cpp", "x" * 140])
def test_source_names_that_collide_are_refused(cache, name):
    bad = Solution(D.digest, "cpp", f"{name}::run", (Source(name, "x"),))
    with pytest.raises(SchemaError):
        cache.put_solution(bad)
    assert not list(cache.root.rglob("*.cpp"))


def test_first_writer_wins_and_nothing_is_rewritten(cache):
    filled(cache)
    before = os.stat(solution_path(cache) / "solution.json").st_ino
    again = Solution(S.definition, S.language, S.entry_point, S.sources, provenance=Provenance("other"))
    assert cache.put_solution(again) == S.digest
    assert os.stat(solution_path(cache) / "solution.json").st_ino == before


def test_errors_that_are_not_numbers_survive(cache):
    trace = Trace(D.digest, S.digest, make.workload(), make.CPU, "p", Correctness(1, float("inf"), float("nan"), 0.0),
                  reason=Reason.WRONG_VALUES)
    cache.put_trace(trace)
    (found,) = cache.traces(S.digest)
    assert found.correctness.max_abs_error == float("inf") and found.correctness.max_rel_error != found.correctness.max_rel_error


def test_plans_are_replaced(cache):
    first, second = Plan("k1", (("a", "b"),), True, {"x": 1}), Plan("k1", (), False, {}, "slower")
    cache.put_plan(first)
    digest = cache.content_digest()
    cache.put_plan(first)
    assert cache.plan("k1") == first and cache.content_digest() == digest
    cache.put_plan(second)
    assert cache.plan("k1") == second and cache.plans() == [second] and cache.content_digest() != digest
    cache.put_plan(first)
    assert cache.plan("k1") == first


def test_requests_are_merged_and_dropped(cache):
    cache.put_request(Request(D.digest, make.workload(100), "cpu", 2, "Model"))
    cache.put_request(Request(D.digest, make.workload(120), "cpu", 3))
    cache.put_request(Request(D.digest, make.workload(1000), "cpu"))
    first, second = cache.requests()
    assert first.occurrences == 5 and first.origin == "Model" and second.occurrences == 1
    assert cache.drop_request(first) and not cache.drop_request(first)
    assert cache.requests() == [second]


def test_quarantine_until_release(cache):
    filled(cache)
    digest = cache.content_digest()
    cache.quarantine(S.digest, Reason.WRONG_VALUES, "row 3")
    assert cache.quarantined(S.digest) == "wrong_values: row 3" and cache.content_digest() != digest
    record = cache.base / layout.QUARANTINE / S.digest / "record.json"
    record.write_text("{")
    assert "cannot be read" in cache.quarantined(S.digest)  # damage does not let it out
    assert list(cache.quarantines()) == [S.digest]
    assert cache.release(S.digest) and cache.quarantined(S.digest) is None and cache.content_digest() == digest


def test_searches_count_up_to_their_budget(cache):
    search = Search(D.digest, "rows<=128", make.CPU.digest, "search 1", 6)
    cache.put_search(search)
    assert cache.searched(Search(D.digest, "rows<=128", make.CPU.digest, "search 1", 5)) == search
    assert cache.searched(Search(D.digest, "rows<=128", make.CPU.digest, "search 1", 7)) is None
    assert cache.searched(Search(D.digest, "rows<=128", make.CPU.digest, "search 2", 5)) is None


# --- damage

def mutations():
    """(name, what it does to a sound entry directory)."""
    def flip(file, at):
        def run(path):
            data = bytearray((path / file).read_bytes())
            data[int(at * (len(data) - 1))] ^= 1
            (path / file).write_bytes(data)
        return run

    def write(file, data):
        return lambda path: (path / file).write_bytes(data)

    def truncate(file, size):
        def run(path):
            data = (path / file).read_bytes()
            (path / file).write_bytes(data[: int(size * len(data))])
        return run

    def replace(file, action):
        def run(path):
            (path / file).unlink()
            action(path / file)
        return run

    def swap_files(path):
        a, b = (path / "kernel.cpp"), (path / "solution.json")
        first, second = a.read_bytes(), b.read_bytes()
        a.write_bytes(second)
        b.write_bytes(first)

    def link(path):
        copy = path.parent / "elsewhere"
        shutil.copy(path, copy)
        path.unlink()
        path.symlink_to(copy)

    def forge(**change):
        def run(path):
            raw = json.loads((path / "manifest.json").read_bytes())
            raw.update(change)
            (path / "manifest.json").write_text(json.dumps(raw))
        return run

    def sparse(path):
        (path / "kernel.cpp").unlink()
        with open(path / "kernel.cpp", "wb") as file:
            file.truncate(10 << 30)

    for file in ("manifest.json", "solution.json", "kernel.cpp"):
        for at in (0, 0.3, 0.6, 1):
            yield f"flip {file} {at}", flip(file, at)
        for size in (0, 0.01, 0.5, 0.99):
            yield f"truncate {file} {size}", truncate(file, size)
        yield f"missing {file}", lambda path, file=file: (path / file).unlink()
        yield f"directory {file}", replace(file, lambda p: p.mkdir())
        yield f"fifo {file}", replace(file, os.mkfifo)
        yield f"symlink {file}", replace(file, lambda p: p.symlink_to("/etc/passwd"))
        yield f"dangling {file}", replace(file, lambda p: p.symlink_to("/nonexistent"))
        yield f"good symlink {file}", lambda path, file=file: link(path / file)
    yield "swap files", swap_files
    yield "extra file", write("extra", b"x")
    yield "extra directory", lambda path: (path / "extra").mkdir()
    yield "sparse", sparse
    yield "deep", write("manifest.json", b'{"a":' * 100_000)
    yield "deep list", write("manifest.json", b"[" * 100_000 + b"]" * 100_000)
    yield "big number", write("manifest.json", b'{"schema_version": ' + b"9" * 10_000 + b"}")
    yield "nan", write("manifest.json", b'{"schema_version": NaN}')
    yield "overflow", write("manifest.json", b'{"schema_version": 1e999}')
    yield "twice", write("manifest.json", b'{"schema_version": 1, "schema_version": 1}')
    yield "binary", write("manifest.json", bytes(range(256)))
    yield "list", write("manifest.json", b"[]")
    yield "huge", write("manifest.json", b" " * (strict_json.MAX_BYTES + 1))
    yield "no files", forge(files={})
    yield "files list", forge(files=[])
    yield "escape", forge(files={"../../x": {"sha256": "0" * 64, "size": 1}})
    yield "odd item", forge(files={"kernel.cpp": 3})
    yield "negative", forge(files={"kernel.cpp": {"sha256": "0" * 64, "size": -1}})
    yield "no schema", forge(schema_version=None)
    yield "text schema", forge(schema_version="1")
    yield "kind", forge(kind="plans")
    yield "name", forge(name="0" * 64)
    yield "empty", lambda path: [child.unlink() for child in path.iterdir()]


@pytest.mark.parametrize("mutate", [m for _, m in mutations()], ids=[name for name, _ in mutations()])
def test_damage_is_noticed_set_aside_and_repaired(cache, mutate, tmp_path, caplog):
    filled(cache)
    path = solution_path(cache)
    mutate(path)
    before = snapshot_names(cache.root)
    reader = KernelCache(cache.root, writable=False)
    assert reader.solution(S.digest) is None and reader.solutions(D.digest) == []
    assert snapshot_names(cache.root) == before  # a read-only tier changes nothing
    assert not maintenance.verify(cache).sound
    assert cache.solution(S.digest) is None
    assert observability.counters["cache_damaged"] and "damaged" in caplog.text
    assert not os.path.lexists(path) and maintenance.verify(cache).sound
    assert len(maintenance.verify(cache).set_aside) == 1
    cache.put_solution(S)
    assert cache.solution(S.digest) == S and cache.definition(D.digest) == D


def snapshot_names(root: Path) -> list[str]:
    return sorted(str(path) for path in root.rglob("*"))


def test_a_damaged_entry_in_the_way_is_replaced_by_the_writer(cache):
    filled(cache)
    (solution_path(cache) / "kernel.cpp").write_text("evil")
    cache.put_solution(S)
    assert cache.solution(S.digest) == S


def test_entries_that_were_swapped(cache):
    other = make.solution(D, 1)
    filled(cache)
    cache.put_solution(other)
    a, b = solution_path(cache), solution_path(cache, other)
    os.rename(a, a.parent / "aside")
    os.rename(b, a)
    os.rename(a.parent / "aside", b)
    assert cache.solutions(D.digest) == []


def test_a_manifest_rewritten_around_a_changed_source_is_noticed(cache):
    """Whoever forges the manifest as well still does not have the digest in the entry's name."""
    filled(cache)
    path = solution_path(cache)
    files = {"kernel.cpp": b"evil", "solution.json": (path / "solution.json").read_bytes()}
    (path / "kernel.cpp").write_bytes(b"evil")
    (path / "manifest.json").write_bytes(entry.manifest(layout.SOLUTIONS, S.digest, files))
    assert cache.solution(S.digest) is None


@pytest.mark.parametrize("raw", [
    {}, {"definition": 1}, {"axes": 3}, {"schema_version": 2}, {"schema_version": 1, "axes": [{"name": "a", "type": "var"}] * 2,
                                                                  "inputs": [], "body": [], "outputs": [], "results": []},
])
def test_a_well_packed_but_malformed_record(cache, raw):
    for kind, read in ((layout.DEFINITIONS, cache.definition), (layout.PLANS, cache.plan)):
        parts = (kind, "a" * 64) if kind == layout.DEFINITIONS else (kind, "a" * 64, "00000001-x")
        entry.publish(cache.base, parts, kind, {"record.json": json.dumps(raw).encode()})
        assert read("a" * 64) is None
    entry.publish(cache.base, (layout.TRACES, "a" * 64, "b" * 64), layout.TRACES, {"record.json": json.dumps(raw).encode()})
    entry.publish(cache.base, (layout.REQUESTS, "c" * 64), layout.REQUESTS, {"record.json": json.dumps(raw).encode()})
    assert cache.traces("a" * 64) == [] and cache.requests() == []
    assert observability.counters["cache_damaged"] == 4


def test_a_record_that_is_not_json_is_not_written(cache):
    with pytest.raises(SchemaError):
        cache.put_plan(Plan("k", (), True, {"ratio": float("nan")}))


def test_an_entry_removed_while_it_is_read_is_absent_not_damaged(cache, monkeypatch):
    filled(cache)
    path = solution_path(cache)
    plain = entry._read_file

    def vanish(directory, name, size, check_owner):
        if name == "solution.json":
            shutil.rmtree(path, ignore_errors=True)
        return plain(directory, name, size, check_owner)

    monkeypatch.setattr(entry, "_read_file", vanish)
    assert cache.solution(S.digest) is None and not observability.counters["cache_damaged"]


def test_strict_json_refuses_bytes_that_are_not_an_object():
    for data in (b"", b"[]", b"1", b"\xff", b'{"a": Infinity}', b'{"a": 1, "a": 2}', b'{"a":' * 40 + b"1" + b"}" * 40):
        with pytest.raises(DamagedEntryError):
            strict_json.parse(data, "x")
    assert strict_json.parse(b'{"a": "[[[[[\\"[", "b": [1, 2.5]}', "x") == {"a": '[[[[["[', "b": [1, 2.5]}


# --- who may write, who may read

def test_a_read_only_tier_never_writes(cache):
    filled(cache)
    before = snapshot(cache.root)
    reader = KernelCache(cache.root, writable=False)
    assert reader.solutions(D.digest) == [S] and reader.content_digest() == cache.content_digest()
    for write in (lambda: reader.put_solution(make.solution(D, 9)), lambda: reader.quarantine(S.digest, "crash"),
                  lambda: reader.release(S.digest), lambda: reader.build_directory("k")):
        with pytest.raises(CacheUnwritableError):
            write()
    with reader.lock("k", timeout=0.1) as held:
        assert not held
    assert snapshot(cache.root) == before


@pytest.mark.parametrize("mode, fine", [(0o700, True), (0o755, True), (0o777, False), (0o1777, False), (0o702, False)])
def test_a_root_that_others_may_write_is_ignored(cache, mode, fine, caplog):
    filled(cache)
    os.chmod(cache.root, mode)
    again = KernelCache(cache.root)
    assert (again.solution(S.digest) == S) is fine
    if not fine:
        assert "writable by others" in caplog.text
        with pytest.raises(CacheUnwritableError, match="chmod"):
            again.put_solution(make.solution(D, 2))


def test_a_parent_that_others_may_write_is_ignored_but_sticky_is_fine(tmp_path):
    for mode, fine in ((0o777, False), (0o1777, True)):
        parent = tmp_path / f"shared{mode}"
        parent.mkdir()
        os.chmod(parent, mode)
        assert (KernelCache(parent / "mine").usable() is None) is fine


def test_a_linked_root_and_a_file_for_a_root_are_ignored(cache, tmp_path):
    filled(cache)
    (tmp_path / "link").symlink_to(cache.root)
    (tmp_path / "file").write_text("x")
    for root in (tmp_path / "link", tmp_path / "file"):
        assert KernelCache(root).usable() and KernelCache(root).definitions() == []
        with pytest.raises(CacheUnwritableError):
            KernelCache(root).put_definition(D)


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to give a file away")
def test_what_belongs_to_another_user_is_ignored(cache):
    filled(cache)
    os.chown(solution_path(cache) / "kernel.cpp", 12345, 12345)
    assert cache.solution(S.digest) is None
    os.chown(cache.root, 12345, 12345)
    assert "12345" in KernelCache(cache.root).usable()


def test_a_home_that_is_unknown_is_not_a_directory_called_tilde(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for root in ("~/.cache/agentinductor", "relative", "/~/x"):
        with pytest.raises(CacheUnwritableError, match="AGENTINDUCTOR_CACHE_DIR"):
            KernelCache(root).put_definition(D)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("mask", [0o000, 0o077, 0o002])
def test_made_private_whatever_the_umask(cache, mask):
    old = os.umask(mask)
    try:
        filled(cache)
    finally:
        os.umask(old)
    assert all(os.stat(path).st_mode & 0o077 == 0 for path in [cache.root, *cache.root.rglob("*")])
    assert KernelCache(cache.root).solution(S.digest) == S


def as_nobody(code: str, *args: str) -> subprocess.CompletedProcess:
    """Run `code` without root's power to write anywhere."""
    drop = ("import os, encodings.idna\nfrom agentinductor.kernel_cache import maintenance, tiers\n"
            "if os.getuid() == 0:\n    os.setgid(65534); os.setuid(65534)\n")
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("HOME", "XDG"))}
    return subprocess.run([sys.executable, "-c", drop + code, *args], capture_output=True, text=True, timeout=60,
                          env={**environ, "HOME": "/nonexistent"}, cwd="/")


def test_an_unwritable_root_reads_and_says_so_when_it_writes(cache):
    filled(cache)
    for directory, _, files in os.walk(cache.root):
        os.chmod(directory, 0o555)
        for file in files:
            os.chmod(os.path.join(directory, file), 0o444)
    parent = cache.root.parent
    for directory in (parent, *parent.parents):
        if str(directory).startswith("/tmp/"):
            os.chmod(directory, 0o755)
    code = f"""
import sys
from agentinductor.kernel_cache.store import KernelCache
from agentinductor.errors import CacheUnwritableError
cache = KernelCache(sys.argv[1])
assert cache.solution({S.digest!r}) is not None, cache.usable()
assert cache.definitions() and cache.traces({S.digest!r})
for write in (lambda: cache.quarantine({S.digest!r}, "crash"), lambda: cache.build_directory("b"),
              lambda: KernelCache("/proc/nothing/here").put_definition(cache.definitions()[0])):
    try:
        write()
    except CacheUnwritableError as error:
        print("said", error)
with cache.lock("k", timeout=0.2) as held:
    assert not held
"""
    done = as_nobody(code, str(cache.root))
    for directory, _, _ in os.walk(cache.root):
        os.chmod(directory, 0o755)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("said") == 3


# --- failing system calls



def test_every_failing_call_while_writing(tmp_path, monkeypatch):
    """Either the write succeeds or CacheUnwritableError comes; the entry is whole or absent; a retry works."""
    kth, done = 0, False
    while not done:
        kth += 1
        cache = KernelCache(tmp_path / str(kth))
        with monkeypatch.context() as patch:
            seen = fail_kth(patch, kth, ERRORS[kth % len(ERRORS)])
            try:
                filled(cache)
                cache.put_request(Request(D.digest, make.workload(), "cpu"))
                cache.quarantine(S.digest, "crash")
            except CacheUnwritableError:
                pass
            done = seen[0] < kth
        fresh = KernelCache(cache.root)
        assert fresh.solution(S.digest) in (None, S) and fresh.traces(S.digest) in ([], [T])
        assert maintenance.verify(fresh).sound
        filled(fresh)
        assert fresh.solution(S.digest) == S and fresh.traces(S.digest) == [T]
    assert kth > 100


def test_every_failing_call_while_reading(cache, monkeypatch):
    """A reader sees the entry or nothing, never an exception; nothing sound is called damaged for good."""
    filled(cache)
    cache.put_plan(Plan("k", (), True, {}))
    kth, done = 0, False
    while not done:
        kth += 1
        with monkeypatch.context() as patch:
            seen = fail_kth(patch, kth, ERRORS[kth % len(ERRORS)])
            reader = KernelCache(cache.root, writable=False)
            assert reader.solutions(D.digest) in ([], [S]) and reader.traces(S.digest) in ([], [T])
            assert reader.definition(D.digest) in (None, D)
            assert reader.quarantined(S.digest) is None or seen[0] >= kth  # in doubt it denies
            assert reader.plan("k") in (None, Plan("k", (), True, {})) and reader.content_digest()
            done = seen[0] < kth
    assert kth > 30 and cache.solution(S.digest) == S


# --- versions, upkeep, tiers

def test_two_layouts_share_a_root(cache):
    newer = cache.root / "v2" / "solutions" / "x"
    newer.mkdir(parents=True)
    (newer / "anything").write_text("newer")
    os.chmod(cache.root, 0o700)
    filled(cache)
    assert cache.solutions(D.digest) == [S]
    maintenance.prune(cache, 0)
    assert (newer / "anything").read_text() == "newer" and maintenance.verify(cache).other_layouts == ["v2"]


@pytest.mark.parametrize("version", [0, 2])
def test_two_schemas_share_a_layout(cache, version):
    """An entry of another schema is absent for us and stays for its own package."""
    filled(cache)
    manifest = solution_path(cache) / "manifest.json"
    raw = json.loads(manifest.read_bytes())
    manifest.write_text(json.dumps({**raw, "schema_version": version}))
    before = snapshot(cache.root)
    assert cache.solution(S.digest) is None and cache.solutions(D.digest) == [] and snapshot(cache.root) == before
    report = maintenance.verify(cache)
    assert report.sound and len(report.other_versions) == 1
    assert observability.counters["cache_other_version"] and not observability.counters["cache_damaged"]
    cache.put_solution(S)  # under a digest of our own version it can only be damage
    assert cache.solution(S.digest) == S


def test_pruning_drops_the_least_recently_used_with_its_traces(cache):
    solutions = [make.solution(D, number) for number in range(4)]
    for age, solution in enumerate(solutions):
        cache.put_solution(solution)
        cache.put_trace(make.trace(solution))
        os.utime(cache.solution_directory(solution), (1000 + age, 1000 + age))
    (cache.build_directory("b") / "kernel.so").write_bytes(b"x" * 100_000)
    cache.touch(solutions[0])
    size = maintenance.size(cache)
    assert maintenance.prune(cache, size) == 0
    maintenance.prune(cache, size - 100_000)
    assert len(cache.solutions(D.digest)) == 4 and not list((cache.base / layout.BUILDS).iterdir())
    maintenance.prune(cache, maintenance.size(cache) - 1)
    assert {s.digest for s in cache.solutions(D.digest)} == {solutions[i].digest for i in (0, 2, 3)}
    assert cache.traces(solutions[1].digest) == [] and cache.traces(solutions[0].digest)
    maintenance.prune(cache, 0)
    assert cache.solutions(D.digest) == [] and maintenance.verify(cache).sound


def test_sweeping_takes_dead_writers_only(cache):
    filled(cache)
    temporary = cache.base / layout.TEMPORARY
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    host = layout.local_host()
    owners = {"dead": (host, dead.pid), "alive": (host, os.getpid()), "fresh": (host, dead.pid),
              "elsewhere": ("another", dead.pid), "old": ("another", 1)}
    names = {which: f"{owner}-{process}-{len(which):032x}" for which, (owner, process) in owners.items()}
    for name in names.values():
        (temporary / name).mkdir()
        (temporary / name / "half").write_text("x")
    for which, age in (("dead", 7200), ("alive", 7200), ("elsewhere", 7200), ("old", 30 * 86400)):
        when = time.time() - age
        os.utime(temporary / names[which], (when, when))
    assert maintenance.sweep(cache) == 2
    assert sorted(path.name for path in temporary.iterdir()) == sorted(names[w] for w in ("alive", "fresh", "elsewhere"))


@pytest.mark.parametrize("when", [0, 2**40, -(2**31)])
def test_clocks_decide_nothing(cache, when):
    filled(cache)
    for path in cache.root.rglob("*"):
        os.utime(path, (when, when))
    assert cache.solutions(D.digest) == [S] and cache.traces(S.digest) == [T]


def test_tiers_read_all_and_write_the_user(cache, tmp_path):
    shared = filled(KernelCache(tmp_path / "shared"))
    mine = make.solution(D, 5)
    cache.put_solution(mine)
    tiers = Tiers(cache, [KernelCache(shared.root, writable=False)])
    assert {s.digest for s in tiers.solutions(D.digest)} == {S.digest, mine.digest}
    assert tiers.definition(D.digest) == D and tiers.traces(S.digest) == [T] and tiers.solution(S.digest) == S
    digest = tiers.content_digest()
    shared.quarantine(S.digest, "crash")
    assert tiers.quarantined(S.digest).startswith("crash") and tiers.content_digest() != digest
    settings = Settings(cache_dir=str(tmp_path / "x"), shared_dirs=(str(shared.root),))
    opened = open_tiers(settings)
    assert [c.root for c in opened.caches] == [tmp_path / "x", shared.root, LIBRARY] and not (tmp_path / "x").exists()
    assert len(open_tiers(Settings(library=False)).caches) == 1


def test_the_shipped_library_is_sound():
    assert maintenance.verify(library()).sound


def test_what_installing_leaves_beside_a_shipped_kernel_is_passed_over(cache):
    (solution_path(filled(cache)) / "__pycache__").mkdir()
    (solution_path(cache) / "__pycache__/kernel.cpython-311.pyc").write_bytes(b"never read")
    assert maintenance.verify(cache).sound and cache.solution(S.digest) == S


def test_the_lock_is_exclusive_and_times_out(cache):
    with cache.lock("key", timeout=1) as first:
        assert first
        other = KernelCache(cache.root)
        with other.lock("key", timeout=0.1) as second:
            assert not second
        with other.lock("another", timeout=0.1) as third:
            assert third
    with cache.lock("key", timeout=0.1) as again:
        assert again


def test_nothing_here_pickles_or_evaluates():
    package = Path(entry.__file__).parent
    text = "".join(path.read_text() for path in package.glob("*.py"))
    assert not any(word in text for word in ("pickle", "eval(", "exec(", "marshal", "import torch"))
