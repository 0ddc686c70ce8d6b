"""Bytes to JSON values, for bytes that anyone may have written: bounded size, depth and numbers; no duplicates, no NaN."""

import json
import math
import re
from typing import Any

from ..errors import DamagedEntryError

MAX_BYTES = 4 << 20
MAX_DEPTH = 32
_MAX_DIGITS = 20  # of an integer; 2**63 has 19


def parse(data: bytes, what: str) -> dict:
    """The object in `data`. Raises DamagedEntryError, with `what` in its message, on anything unusual."""
    try:
        if len(data) > MAX_BYTES:
            raise ValueError(f"{len(data)} bytes, more than {MAX_BYTES}")
        text = data.decode("utf-8")
        _check_depth(text)
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_constant, parse_int=_integer, parse_float=_real)
        if not isinstance(value, dict):
            raise ValueError("not an object")
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise DamagedEntryError(f"{what}: {error}") from None
    return value


_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


def _check_depth(text: str) -> None:
    depth = 0
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise ValueError(f"nested more than {MAX_DEPTH} deep")
        elif token in "]}":
            depth -= 1


def _unique(pairs: list[tuple[str, Any]]) -> dict:
    out = dict(pairs)
    if len(out) != len(pairs):
        raise ValueError("a key appears twice")
    return out


def _constant(text: str) -> float:
    raise ValueError(f"{text} is not a JSON number")


def _integer(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise ValueError(f"an integer of {len(text)} digits")
    return int(text)


def _real(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} overflows")
    return value
