"""Canonical JSON and the digest of a record.

A digest is the SHA-256 of the record's canonical JSON (sorted keys, no spaces, no NaN), prefixed with
the record's kind and schema version, so that two kinds never share a digest.
"""

import hashlib
import json
from typing import Any

SCHEMA_VERSION = 1


def canonical_json(value: Any) -> str:
    """One text for one value: sorted keys, no whitespace. Raises ValueError on NaN or infinity."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=True)


def digest(kind: str, value: Any) -> str:
    """Hex SHA-256 (64 characters) of `value`'s canonical JSON under `kind`."""
    text = f"agentinductor/{kind}/v{SCHEMA_VERSION}\n{canonical_json(value)}"
    return hashlib.sha256(text.encode()).hexdigest()


def short(hex_digest: str) -> str:
    """The first 12 characters: what people read and type."""
    return hex_digest[:12]
