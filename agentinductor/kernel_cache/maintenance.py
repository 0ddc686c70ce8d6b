"""Upkeep of a cache root: rehash everything, drop the least recently used, sweep what dead writers left.

Clocks decide only what is thrown away, never what is believed.
"""

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import DamagedEntryError
from . import entry, layout
from .store import KernelCache

DEFAULT_MAX_BYTES = 2 << 30
_HOUR = 3600.0
_WEEK = 7 * 24 * _HOUR
_DEPTH = {layout.DEFINITIONS: 1, layout.SOLUTIONS: 2, layout.TRACES: 2, layout.PLANS: 2, layout.REQUESTS: 1, layout.SEARCHES: 1,
          layout.QUARANTINE: 1}  # directories between the kind and an entry's files, the entry's own included


@dataclass
class Report:
    """What `verify` found. Reading a damaged entry through the cache moves it aside; `verify` itself moves nothing."""

    entries: int = 0
    size: int = 0  # bytes
    damaged: list[str] = field(default_factory=list)  # "kind/name: why"
    unreadable: list[str] = field(default_factory=list)
    set_aside: list[str] = field(default_factory=list)  # names below quarantine/damaged
    other_versions: list[str] = field(default_factory=list)  # entries of another schema, left alone
    other_layouts: list[str] = field(default_factory=list)  # left alone
    refused: str = ""  # why the root as a whole is not believed

    @property
    def sound(self) -> bool:
        return not (self.damaged or self.unreadable or self.refused)


def verify(cache: KernelCache) -> Report:
    """Rehash every entry. Writes nothing."""
    report = Report(refused=cache.usable() or "")
    if report.refused:
        return report
    report.other_layouts = [name for name in _names(cache.root) if layout.is_layout(name) and name != layout.LAYOUT]
    report.set_aside = _names(cache.base / layout.QUARANTINE / layout.DAMAGED)
    for kind, depth in _DEPTH.items():
        for path in _entries(cache.base / kind, depth):
            if path.name == layout.DAMAGED:
                continue
            try:
                files = entry.read(path, kind, path.name, cache.check_owner)
            except DamagedEntryError as error:
                report.damaged.append(str(error))
            except entry.EntryOfAnotherVersion as error:
                report.other_versions.append(str(error))
            except entry.EntryUnreadable as error:
                report.unreadable.append(str(error))
            else:
                report.entries += files is not None
                report.size += sum(map(len, (files or {}).values()))
    return report


def size(cache: KernelCache) -> int:
    """Bytes of all files below the current layout."""
    return _size(cache.base)


def prune(cache: KernelCache, max_bytes: int = DEFAULT_MAX_BYTES) -> int:
    """Sweep, then drop the least recently used entries until at most `max_bytes` are left. Returns the bytes dropped.

    Dropped first: damaged entries and compiler output, which is remade at will; then solutions with their traces.
    Plans, requests and quarantine stay. Raises CacheUnwritableError.
    """
    cache._writable()
    sweep(cache)
    left = size(cache)
    before = left
    cheap = [*_children(cache.base / layout.QUARANTINE / layout.DAMAGED), *_children(cache.base / layout.BUILDS)]
    solutions = _entries(cache.base / layout.SOLUTIONS, 2)
    for path in [*sorted(cheap, key=_used), *sorted(solutions, key=_used)]:
        if left <= max_bytes:
            break
        group = [path]
        if path.parent.parent.name == layout.SOLUTIONS:
            group.append(cache.base / layout.TRACES / path.name)  # evidence goes last: alone it is harmless
        for victim in group:
            left -= _size(victim)
            entry.take_away(cache.base, victim)
    return before - left


def sweep(cache: KernelCache) -> int:
    """Remove temporary entries whose writer is dead (this host) or that are a week old (another). Returns how many."""
    swept = 0
    for path in _children(cache.base / layout.TEMPORARY):
        owner = layout.temporary_owner(path.name)
        age = time.time() - _used(path)
        here = owner is not None and owner[0] == layout.local_host()
        if (here and age > _HOUR and not _alive(owner[1])) or age > _WEEK:  # type: ignore[index]
            entry.discard(path)
            swept += 1
    return swept


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _names(path: Path) -> list[str]:
    try:
        return sorted(os.listdir(path))
    except OSError:
        return []


def _children(path: Path) -> list[Path]:
    return [path / name for name in _names(path)]


def _entries(path: Path, depth: int) -> list[Path]:
    if depth == 1:
        return [child for child in _children(path) if layout.is_name(child.name)]
    return [found for child in _children(path) for found in _entries(child, depth - 1)]


def _used(path: Path) -> float:
    try:
        return os.lstat(path).st_mtime
    except OSError:
        return 0.0


def _size(path: Path) -> int:
    return sum(_file_size(os.path.join(directory, name)) for directory, _, files in os.walk(path) for name in files)


def _file_size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0
