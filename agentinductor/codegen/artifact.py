"""Build products on disk: published whole, read only when every byte is the one that was published.

A product lies beside `<name>.sha256`, its digest. A product that does not match (a crash, a full disk, another
writer) reads as absent and is built again.
"""

import hashlib
import os
import tempfile
from pathlib import Path

from ..observability import warn_once


def read(path: Path) -> bytes | None:
    """The product's bytes, or None when it is absent or damaged."""
    try:
        data, want = path.read_bytes(), path.with_name(path.name + ".sha256").read_text()
    except FileNotFoundError:
        return None
    if hashlib.sha256(data).hexdigest() != want.strip():
        warn_once(f"artifact:{path}", f"{path} is damaged and will be built again")
        return None
    return data


def publish(path: Path, data: bytes) -> None:
    """Write the product under a temporary name, then rename it into place; the digest follows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _replace(path, data)
    _replace(path.with_name(path.name + ".sha256"), hashlib.sha256(data).hexdigest().encode())


def _replace(path: Path, data: bytes) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise
