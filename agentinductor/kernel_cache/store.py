"""KernelCache: one root of definitions, solutions, traces, plans and requests.

Reading takes no lock, never raises for what it finds on disk, and writes nothing, but that a damaged entry is moved
aside where the root is ours to write. Writing raises CacheUnwritableError when the root cannot be written.
"""

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import filelock

from ..errors import CacheUnwritableError, DamagedEntryError, SchemaError
from ..observability import count, log, warn_once
from ..schema import Definition, Plan, Reason, Request, Solution, Trace
from ..schema.digest import short
from . import entry, layout, ownership, records
from .records import Quarantined, Search

LOCK_TIMEOUT = 600.0  # seconds
_TRIES = 8  # against others who write or remove the same entry


class KernelCache:
    """`root`: any absolute directory; it is made at the first write. `writable=False`: a tier that is only read."""

    def __init__(self, root: Path | str, writable: bool = True, check_owner: bool = True):
        self.root = Path(root)
        self.base = layout.base(self.root)
        self.writable = writable
        self.check_owner = check_owner
        self._refusal: str | None = None
        self._checked = False

    def __repr__(self) -> str:
        return f"KernelCache({str(self.root)!r})"

    # --- definitions

    def put_definition(self, definition: Definition) -> str:
        data = records.dump(definition.to_json())
        self._put((layout.DEFINITIONS, definition.digest), {records.RECORD: data})
        return definition.digest

    def definition(self, digest: str) -> Definition | None:
        return self._record(Definition, (layout.DEFINITIONS, digest), lambda d: d.digest == digest)

    def definitions(self) -> list[Definition]:
        found = (self.definition(name) for name in self._names(layout.DEFINITIONS))
        return [definition for definition in found if definition]

    # --- solutions

    def put_solution(self, solution: Solution) -> str:
        parts = (layout.SOLUTIONS, _plain(solution.definition), solution.digest)
        self._put(parts, records.solution_files(solution))
        return solution.digest

    def solution(self, digest: str) -> Solution | None:
        for definition in self._names(layout.SOLUTIONS):
            if layout.is_digest(digest) and os.path.lexists(self.base / layout.SOLUTIONS / definition / digest):
                return self._solution(definition, digest)
        return None

    def solutions(self, definition: str) -> list[Solution]:
        """The solutions of a definition, in the order of their digests."""
        if not layout.is_digest(definition):
            return []
        found = (self._solution(definition, name) for name in self._names(layout.SOLUTIONS, definition))
        return [solution for solution in found if solution]

    def solution_directory(self, solution: Solution) -> Path:
        """Where a person finds the sources."""
        return self.base / layout.SOLUTIONS / solution.definition / solution.digest

    def _solution(self, definition: str, digest: str) -> Solution | None:
        def decode(files: dict[str, bytes]) -> Solution:
            try:
                solution = records.solution_from(files)
            except SchemaError as error:
                raise DamagedEntryError(str(error)) from error
            if (solution.definition, solution.digest) != (definition, digest):
                raise DamagedEntryError("the solution's digest is not the entry's name")
            return solution

        return self._get((layout.SOLUTIONS, definition, digest), decode)

    # --- traces

    def put_trace(self, trace: Trace) -> str:
        data = records.dump(trace.to_json())
        self._put((layout.TRACES, _plain(trace.solution), trace.digest), {records.RECORD: data})
        return trace.digest

    def traces(self, solution: str) -> list[Trace]:
        """The evidence on a solution, in the order of creation as far as the traces tell."""
        if not layout.is_digest(solution):
            return []
        names = self._names(layout.TRACES, solution)
        found = [self._record(Trace, (layout.TRACES, solution, name), _same_trace(solution, name)) for name in names]
        return sorted((trace for trace in found if trace), key=lambda trace: (trace.created, trace.digest))

    # --- plans: the highest generation counts

    def put_plan(self, plan: Plan) -> None:
        """Keep `plan` in place of the one of the same key."""
        data = records.dump(plan.to_json())
        directory = _plain(plan.key)
        old = self._names(layout.PLANS, directory)
        if self.plan(plan.key) == plan:
            return
        generation = max((int(name.split("-")[0]) for name in old if name[:1].isdigit() and "-" in name), default=0) + 1
        name = f"{generation:08d}-{records.content_key(plan.to_json())}"
        self._put((layout.PLANS, directory, name), {records.RECORD: data})
        for stale in old:
            with contextlib.suppress(CacheUnwritableError):
                entry.take_away(self.base, self.base / layout.PLANS / directory / stale)

    def plan(self, key: str) -> Plan | None:
        for name in reversed(self._names(layout.PLANS, key) if layout.is_name(key) else []):
            plan = self._record(Plan, (layout.PLANS, key, name), _same_plan(key, name))
            if plan:
                return plan
        return None

    def plans(self) -> list[Plan]:
        found = (self.plan(key) for key in self._names(layout.PLANS))
        return [plan for plan in found if plan]

    # --- requests

    def put_request(self, request: Request) -> None:
        """Leave a request, or add to the occurrences of the same one."""
        key = records.request_key(request)
        old = self._record(Request, (layout.REQUESTS, key), _same_request(key))
        if old:
            times = old.occurrences + request.occurrences
            request = Request(request.definition, old.workload, request.device_type, times, old.origin or request.origin)
        self._replace((layout.REQUESTS, key), {records.RECORD: records.dump(request.to_json())})

    def requests(self) -> list[Request]:
        """Most frequent first."""
        found = [self._record(Request, (layout.REQUESTS, name), _same_request(name)) for name in self._names(layout.REQUESTS)]
        return sorted((r for r in found if r), key=lambda r: (-r.occurrences, r.definition, r.workload.bucket()))

    def drop_request(self, request: Request) -> bool:
        self._writable()
        return entry.take_away(self.base, self.base / layout.REQUESTS / records.request_key(request))

    # --- searches that ran to their end

    def put_search(self, search: Search) -> None:
        self._replace((layout.SEARCHES, search.key), {records.RECORD: records.dump(search.to_json())})

    def searched(self, search: Search) -> Search | None:
        """The stored search that makes `search` pointless: the same, with at least its budget."""
        found = self._record(Search, (layout.SEARCHES, search.key), lambda s: s.key == search.key)
        return found if found and found.budget_class >= search.budget_class else None

    # --- quarantine

    def quarantine(self, solution: str, reason: Reason | str, detail: str = "") -> None:
        """Deny a solution, in this cache, until `release` is called."""
        reason = reason.value if isinstance(reason, Reason) else str(reason)
        raw = Quarantined(_plain(solution), reason, detail[:4000]).to_json()
        self._put((layout.QUARANTINE, solution), {records.RECORD: records.dump(raw)})
        count("cache_quarantined")

    def quarantined(self, solution: str) -> str | None:
        """Why a solution is denied, or None. A record that is damaged or cannot be read still denies."""
        if not layout.is_digest(solution) or self._refused():
            return None
        path = self.base / layout.QUARANTINE / solution
        try:
            os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            return f"the quarantine cannot be read ({error.strerror})"
        try:
            files = entry.read(path, layout.QUARANTINE, solution, self.check_owner)
            record = records.record_from(files, Quarantined) if files is not None else None
        except (DamagedEntryError, entry.EntryUnreadable):
            return "quarantined (its record cannot be read)"
        return f"{record.reason}: {record.detail}" if record else None

    def quarantines(self) -> dict[str, str]:
        """Solution digest -> why, of all that are denied."""
        found = {name: self.quarantined(name) for name in self._names(layout.QUARANTINE) if name != layout.DAMAGED}
        return {name: why for name, why in found.items() if why}

    def release(self, solution: str) -> bool:
        """Take a solution out of quarantine."""
        self._writable()
        return entry.take_away(self.base, self.base / layout.QUARANTINE / _plain(solution))

    # --- the rest

    def build_directory(self, key: str) -> Path:
        """A private directory for compiler output. What lies there is convenience, never evidence."""
        self._writable()
        path = self.base / layout.BUILDS / _plain(key)
        try:
            entry.make_directory(path)
        except OSError as error:
            raise CacheUnwritableError(f"cannot write {path}: {error.strerror or error}") from error
        return path

    @contextlib.contextmanager
    def lock(self, key: str, timeout: float = LOCK_TIMEOUT) -> Iterator[bool]:
        """Single flight for `key`: yields False where somebody else kept the lock for `timeout` seconds.

        It only saves double work; nothing is less correct without it. So where the file system knows no locks it yields True.
        """
        held = None
        mine = True
        try:
            self._writable()
            path = self.base / layout.LOCKS / f"{_plain(key)}.lock"
            entry.make_directory(path.parent)
            held = filelock.FileLock(str(path), timeout=max(timeout, 0), mode=0o600)
            held.acquire(poll_interval=0.05)
        except NotImplementedError as error:
            held = None
            warn_once(f"lock:{self.root}", f"agentinductor goes on without locks in {self.root}: {error}")
        except (OSError, CacheUnwritableError) as error:  # filelock.Timeout is an OSError
            held, mine = None, False
            count("cache_lock_missed")
            log.debug("lock %s: %s", short(key), error)
        try:
            yield mine
        finally:
            if held is not None:
                with contextlib.suppress(OSError):
                    held.release()

    def touch(self, solution: Solution) -> None:
        """Mark a solution as used today, so that pruning keeps it. Never fails."""
        if self.writable:
            with contextlib.suppress(OSError):
                os.utime(self.solution_directory(solution))

    def content_digest(self) -> str:
        """Digest of the names of all that selection depends on; the names are digests of the content."""
        text = hashlib.sha256(layout.LAYOUT.encode())
        for kind in (layout.SOLUTIONS, layout.TRACES, layout.PLANS):
            for group in self._names(kind):
                text.update(f"\n{kind}/{group}:{','.join(self._names(kind, group))}".encode())
        denied = [name for name in self._names(layout.QUARANTINE) if name != layout.DAMAGED]
        text.update(f"\n{layout.QUARANTINE}:{','.join(denied)}".encode())
        return text.hexdigest()

    def usable(self) -> str | None:
        """None where the root can be read (or made), else why not."""
        return self._refused()

    # --- entries

    def _refused(self) -> str | None:
        if not self.check_owner:
            return None
        if not self._checked:
            self._refusal = ownership.refusal(self.root)
            self._checked = True
            if self._refusal:
                count("cache_foreign")
                warn_once(f"foreign:{self.root}", f"agentinductor ignores the kernel cache {self.root}: {self._refusal}")
        return self._refusal

    def _writable(self) -> None:
        if not self.writable:
            raise CacheUnwritableError(f"{self.root} is used read-only")
        if not os.path.lexists(self.root):
            self._checked = False
        refusal = self._refused()
        if refusal:
            raise CacheUnwritableError(refusal)

    def _names(self, *parts: str) -> list[str]:
        """Sorted names of the entries (or groups) below `parts`."""
        if self._refused():
            return []
        path = self.base.joinpath(*parts)
        try:
            return sorted(filter(layout.is_name, os.listdir(path)))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            self._unreadable(f"{path}: {error.strerror}")
            return []

    def _put(self, parts: tuple[str, ...], files: dict[str, bytes]) -> None:
        """Publish an entry; where a sound one of that name is there, it is the winner."""
        self._writable()
        path = self.base.joinpath(*parts)
        for attempt in range(_TRIES):  # a damaged entry is moved out of the way by reading it, a removed one is written again
            if os.path.lexists(path) and self._get(parts, lambda found: found) is not None:
                return
            if entry.publish(self.base, parts, parts[0], files):
                return
            if attempt == _TRIES // 2:  # unreadable all this time, or its manifest claims another version under our digest
                self._set_aside(path, parts, f"{'/'.join(parts)}: cannot be read")
        raise CacheUnwritableError(f"cannot write {path}: something is in the way that cannot be moved")

    def _replace(self, parts: tuple[str, ...], files: dict[str, bytes]) -> None:
        """Publish an entry in place of any of that name. Between the two a reader finds none."""
        self._writable()
        for _ in range(_TRIES):
            entry.take_away(self.base, self.base.joinpath(*parts))
            if entry.publish(self.base, parts, parts[0], files):
                return

    def _record(self, cls: type, parts: tuple[str, ...], belongs: Callable[[Any], bool]) -> Any:
        def decode(files: dict[str, bytes]) -> Any:
            record = records.record_from(files, cls)
            try:
                mine = belongs(record)
            except (ValueError, TypeError, AttributeError) as error:
                raise DamagedEntryError(f"malformed {cls.__name__}: {error!r}") from error
            if not mine:
                raise DamagedEntryError(f"the {cls.__name__.lower()} is another entry's")
            return record

        return self._get(parts, decode)

    def _get(self, parts: tuple[str, ...], decode: Callable[[dict[str, bytes]], Any]) -> Any:
        if not all(map(layout.is_name, parts)) or self._refused():
            return None
        path = self.base.joinpath(*parts)
        try:
            files = entry.read(path, parts[0], parts[-1], self.check_owner)
            return decode(files) if files is not None else None
        except DamagedEntryError as error:
            self._set_aside(path, parts, str(error))
        except entry.EntryOfAnotherVersion:
            count("cache_other_version")
        except entry.EntryUnreadable as error:
            self._unreadable(str(error))
        return None

    def _unreadable(self, message: str) -> None:
        count("cache_unreadable")
        warn_once(f"unreadable:{self.root}", f"agentinductor cannot read part of the kernel cache {self.root}: {message}")

    def _set_aside(self, path: Path, parts: tuple[str, ...], message: str) -> None:
        """A damaged entry: say so once, count it, and move it where a person can look at it."""
        count("cache_damaged")
        warn_once(f"damaged:{path}", f"agentinductor ignores a damaged entry of the kernel cache {self.root}: {message}")
        if not self.writable:
            return
        away = self.base / layout.QUARANTINE / layout.DAMAGED / f"{parts[0]}-{parts[-1][:64]}-{layout.temporary_name()[-8:]}"
        with contextlib.suppress(OSError):
            entry.make_directory(away.parent)
            os.rename(path, away)


def _plain(name: str) -> str:
    if not layout.is_name(name):
        raise SchemaError(f"{str(name)[:80]!r} cannot name an entry of the kernel cache")
    return name


def _same_trace(solution: str, name: str) -> Callable[[Trace], bool]:
    return lambda trace: (trace.solution, trace.digest) == (solution, name)


def _same_plan(key: str, name: str) -> Callable[[Plan], bool]:
    return lambda plan: plan.key == key and name.endswith("-" + records.content_key(plan.to_json()))


def _same_request(key: str) -> Callable[[Request], bool]:
    return lambda request: records.request_key(request) == key
