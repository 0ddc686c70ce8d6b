"""Tiers: the user's cache first, then shared directories that are only read, then the library that ships with the package."""

from collections.abc import Sequence
from pathlib import Path

from ..schema import Definition, Plan, Request, Solution, Trace
from ..schema.digest import digest
from ..settings import Settings
from .store import KernelCache

LIBRARY = Path(__file__).resolve().parent.parent / "library"


def library() -> KernelCache:
    """The shipped solutions. The package's own files are believed as the package is: their owner is not asked for."""
    return KernelCache(LIBRARY, writable=False, check_owner=False)


def open_tiers(settings: Settings) -> "Tiers":
    """The tiers that `settings` name. Opening reads and writes nothing."""
    read_only = [KernelCache(path, writable=False) for path in settings.shared_dirs]
    if settings.library:
        read_only.append(library())
    return Tiers(KernelCache(settings.cache_root), read_only)


class Tiers:
    """The read methods of KernelCache over several caches; writers go to `user`."""

    def __init__(self, user: KernelCache, read_only: Sequence[KernelCache] = ()):
        self.user = user
        self.read_only = list(read_only)

    @property
    def caches(self) -> list[KernelCache]:
        return [self.user, *self.read_only]

    def definition(self, digest: str) -> Definition | None:
        return next((found for cache in self.caches if (found := cache.definition(digest))), None)

    def definitions(self) -> list[Definition]:
        found = {definition.digest: definition for cache in reversed(self.caches) for definition in cache.definitions()}
        return [found[key] for key in sorted(found)]

    def solution(self, digest: str) -> Solution | None:
        return next((found for cache in self.caches if (found := cache.solution(digest))), None)

    def solutions(self, definition: str) -> list[Solution]:
        found = {solution.digest: solution for cache in reversed(self.caches) for solution in cache.solutions(definition)}
        return [found[key] for key in sorted(found)]

    def traces(self, solution: str) -> list[Trace]:
        found = {trace.digest: trace for cache in self.caches for trace in cache.traces(solution)}
        return sorted(found.values(), key=lambda trace: (trace.created, trace.digest))

    def plan(self, key: str) -> Plan | None:
        return next((found for cache in self.caches if (found := cache.plan(key))), None)

    def requests(self) -> list[Request]:
        return self.user.requests()

    def quarantined(self, solution: str) -> str | None:
        return next((found for cache in self.caches if (found := cache.quarantined(solution))), None)

    def content_digest(self) -> str:
        """Changes whenever any tier's selection could."""
        return digest("tiers", [cache.content_digest() for cache in self.caches])
