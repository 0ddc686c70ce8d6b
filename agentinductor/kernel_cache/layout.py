"""Names under a cache root: `<root>/v1/<kind>/...`. Another layout version lives beside it and is left alone."""

import os
import re
import socket
import uuid
from pathlib import Path

LAYOUT = "v1"
MANIFEST = "manifest.json"

DEFINITIONS = "definitions"  # <definition digest>/
SOLUTIONS = "solutions"  # <definition digest>/<solution digest>/
TRACES = "traces"  # <solution digest>/<trace digest>/
PLANS = "plans"  # <plan key>/<generation>-<content digest>/
REQUESTS = "requests"  # <request key>/
SEARCHES = "searches"  # <search key>/
QUARANTINE = "quarantine"  # <solution digest>/
DAMAGED = "damaged"  # quarantine/damaged/: entries that failed verification, kept for people
BUILDS = "builds"  # <build key>/: compiler output, remade at will, never evidence
LOCKS = "locks"
TEMPORARY = "temporary"  # entries in the making, and entries on their way out

_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z_.-]{0,127}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


def is_name(text: object) -> bool:
    """True for a plain name: no separator, no leading dot, at most 128 characters."""
    return isinstance(text, str) and _NAME.fullmatch(text) is not None


def is_digest(text: object) -> bool:
    return isinstance(text, str) and _DIGEST.fullmatch(text) is not None


def is_layout(text: str) -> bool:
    return re.fullmatch(r"v\d{1,4}", text) is not None


def base(root: Path) -> Path:
    return root / LAYOUT


def temporary_name() -> str:
    """Unique, and says who made it: `<host>-<process id>-<random>`."""
    host = re.sub(r"[^0-9A-Za-z]", "_", socket.gethostname())[:40] or "host"
    return f"{host}-{os.getpid()}-{uuid.uuid4().hex}"


def temporary_owner(name: str) -> tuple[str, int] | None:
    """(host, process id) of a temporary name, or None where it is not one of ours."""
    match = re.fullmatch(r"([0-9A-Za-z_]{1,40})-(\d{1,10})-[0-9a-f]{32}", name)
    return (match[1], int(match[2])) if match else None


def local_host() -> str:
    return temporary_name().split("-")[0]
