"""Counters and the logger: what the backend did, for tests and for people.

Counters live in torch._dynamo.utils.counters["agentinductor"] once torch is loaded by the backend; below it
they are this module's own Counter, which the backend mirrors.
"""

import logging
from collections import Counter

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
