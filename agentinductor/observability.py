"""Counters, the logger and plain tables: what was done, for tests and for people. Needs no torch."""

import logging
from collections import Counter
from collections.abc import Sequence

log = logging.getLogger("agentinductor")
counters: Counter[str] = Counter()
_warned: set[str] = set()


def count(event: str, amount: int = 1) -> None:
    counters[event] += amount


def warn_once(key: str, message: str) -> None:
    """Warn about `key` once in this process."""
    if key not in _warned:
        _warned.add(key)
        log.warning(message)


def aligned(table: Sequence[Sequence[str]]) -> list[str]:
    """One line for each row of cells, columns aligned to the left. Every row has as many cells as the first."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
