"""One entry: a directory of files with a manifest, published by one rename, verified byte by byte when read.

Reading takes no lock and writes nothing. Each file is read once and what was hashed is what is returned, so nothing
can change between the check and the use.
"""

import contextlib
import errno
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from ..errors import CacheUnwritableError, DamagedEntryError
from ..schema.digest import SCHEMA_VERSION
from . import layout, ownership, strict_json

MAX_FILES = 64
MAX_FILE_BYTES = 64 << 20
_BYTECODE = "__pycache__"  # installers of packages leave it beside a shipped kernel.py; nothing reads it
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a FIFO must not block us
_TAKEN = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR)  # what renaming onto an entry, or onto a file, gives
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class EntryUnreadable(Exception):
    """The entry cannot be read just now (permissions, I/O, too many open files): absent, but not damaged."""


class EntryOfAnotherVersion(EntryUnreadable):
    """Written by a package with another schema: absent for us, and left alone for it."""


@contextlib.contextmanager
def _opened(path, flags: int, dir_fd: int | None = None) -> Iterator[int]:
    descriptor = os.open(path, flags, dir_fd=dir_fd)
    try:
        yield descriptor
    finally:
        with contextlib.suppress(OSError):
            os.close(descriptor)


def read(path: Path, kind: str, name: str, check_owner: bool = True) -> dict[str, bytes] | None:
    """The entry's files (manifest left out), or None where there is none.

    Raises DamagedEntryError where a byte, a name or a file type is not what the manifest says, EntryUnreadable where
    the system will not let us read, EntryOfAnotherVersion where it is not for us.
    """
    try:
        with _opened(path, _READ | os.O_DIRECTORY) as directory:
            try:
                return _read_open(directory, kind, name, check_owner)
            except (DamagedEntryError, FileNotFoundError) as error:
                if not _still_there(path, directory):
                    return None  # it was removed or replaced while we read: nothing is wrong with it
                raise DamagedEntryError(f"{kind}/{name}: {error}") from None
    except (FileNotFoundError, NotADirectoryError):
        _refuse_what_is_no_directory(path, kind, name)
        return None
    except OSError as error:
        if os.path.islink(path):
            raise DamagedEntryError(f"{kind}/{name}: is a symbolic link") from None
        raise EntryUnreadable(f"{kind}/{name}: {error.strerror}") from error


def _refuse_what_is_no_directory(path: Path, kind: str, name: str) -> None:
    try:
        status = os.lstat(path)
    except OSError:
        return
    if not stat.S_ISDIR(status.st_mode):
        raise DamagedEntryError(f"{kind}/{name}: is not a directory")


def _still_there(path: Path, descriptor: int) -> bool:
    try:
        ours, theirs = os.fstat(descriptor), os.lstat(path)
    except OSError:
        return False
    return (ours.st_dev, ours.st_ino) == (theirs.st_dev, theirs.st_ino)


def _read_open(directory: int, kind: str, name: str, check_owner: bool) -> dict[str, bytes]:
    with _opened(".", _READ | os.O_DIRECTORY, directory) as listing:
        present = set(os.listdir(listing)) - {_BYTECODE}
    if layout.MANIFEST not in present:
        raise DamagedEntryError("has no manifest")
    manifest = strict_json.parse(_read_file(directory, layout.MANIFEST, None, check_owner), layout.MANIFEST)
    files = _manifest_files(manifest, kind, name)
    if present != {*files, layout.MANIFEST}:
        odd = sorted(present ^ {*files, layout.MANIFEST})
        raise DamagedEntryError(f"files {odd[:4]} are extra or missing")
    out = {}
    for file, (digest, size) in files.items():
        data = _read_file(directory, file, size, check_owner)
        if hashlib.sha256(data).hexdigest() != digest:
            raise DamagedEntryError(f"{file} does not have the digest that the manifest gives")
        out[file] = data
    return out


def _manifest_files(manifest: dict, kind: str, name: str) -> dict[str, tuple[str, int]]:
    if (manifest.get("kind"), manifest.get("name")) != (kind, name):
        raise DamagedEntryError("the manifest is another entry's")
    version = manifest.get("schema_version")
    if type(version) is not int:
        raise DamagedEntryError(f"schema version {version!r}")
    if version != SCHEMA_VERSION:
        raise EntryOfAnotherVersion(f"{kind}/{name}: schema version {version}, not {SCHEMA_VERSION}")
    files = manifest.get("files")
    if not isinstance(files, dict) or not 0 < len(files) <= MAX_FILES:
        raise DamagedEntryError("the manifest lists no files, or too many")
    out = {}
    for file, item in files.items():
        ok = layout.is_name(file) and file != layout.MANIFEST and isinstance(item, dict) and set(item) == {"sha256", "size"}
        if not ok or not layout.is_digest(item["sha256"]) or type(item["size"]) is not int:
            raise DamagedEntryError(f"the manifest's line for {str(file)[:60]!r} is malformed")
        out[file] = (item["sha256"], item["size"])
    return out


def _read_file(directory: int, name: str, size: int | None, check_owner: bool) -> bytes:
    """Contents of a plain file of exactly `size` bytes (None: at most a JSON record's limit)."""
    try:
        with _opened(name, _READ, directory) as descriptor:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise DamagedEntryError(f"{name} is not a plain file")
            if check_owner and not ownership.trusted_owner(status.st_uid):
                raise DamagedEntryError(f"{name} belongs to user {status.st_uid}")
            limit = strict_json.MAX_BYTES if size is None else min(size, MAX_FILE_BYTES)
            if status.st_size > limit or (size is not None and status.st_size != size):
                raise DamagedEntryError(f"{name} has {status.st_size} bytes, not {limit}")
            return _read_exactly(descriptor, status.st_size, name)
    except OSError as error:
        if _is_link(directory, name):
            raise DamagedEntryError(f"{name} is a symbolic link") from error
        raise


def _is_link(directory: int, name: str) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _read_exactly(descriptor: int, size: int, name: str) -> bytes:
    parts = []
    left = size
    while left:
        part = os.read(descriptor, left)
        if not part:
            raise DamagedEntryError(f"{name} ended early")
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def read_plain(path: Path, limit: int) -> bytes:
    """A plain file of at most `limit` bytes, links not followed. Raises OSError or DamagedEntryError."""
    with _opened(path, _READ) as descriptor:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > limit:
            raise DamagedEntryError(f"{path.name} is not a plain file of at most {limit} bytes")
        return _read_exactly(descriptor, status.st_size, path.name)


def publish(base: Path, parts: tuple[str, ...], kind: str, files: Mapping[str, bytes]) -> bool:
    """Write the entry at base/parts. True where ours was published, False where one was there already.

    The entry appears whole or not at all, whenever this process dies. Raises CacheUnwritableError.
    """
    final = base.joinpath(*parts)
    temporary = base / layout.TEMPORARY / layout.temporary_name()
    try:
        make_directory(temporary.parent)
        os.mkdir(temporary, 0o700)
        try:
            for name, data in files.items():
                _write_file(temporary / name, data)
            _write_file(temporary / layout.MANIFEST, manifest(kind, parts[-1], files))
            _sync(temporary)
            make_directory(final.parent)
            try:
                os.rename(temporary, final)
            except OSError as error:
                if error.errno not in _TAKEN:
                    raise
                return False  # somebody was first
            _sync(final.parent)
            return True
        finally:
            discard(temporary)
    except OSError as error:
        raise CacheUnwritableError(f"cannot write {final}: {error.strerror or error}") from error


def manifest(kind: str, name: str, files: Mapping[str, bytes]) -> bytes:
    if not all(layout.is_name(file) and file != layout.MANIFEST for file in files):
        raise ValueError(f"not plain file names: {sorted(files)}")
    listing = {file: {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)} for file, data in sorted(files.items())}
    value = {"schema_version": SCHEMA_VERSION, "kind": kind, "name": name, "files": listing}
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()


def make_directory(path: Path) -> None:
    """Create `path` and what is missing above it, for this user alone whatever the umask."""
    if path.is_dir():
        return
    if path.parent != path:
        make_directory(path.parent)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
        _sync(path.parent)


def _write_file(path: Path, data: bytes) -> None:
    descriptor = os.open(path, _WRITE, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view):]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)  # NFS reports a full disk here


def _sync(directory: Path) -> None:
    with _opened(directory, _READ | os.O_DIRECTORY) as descriptor:
        os.fsync(descriptor)


def discard(path: Path) -> None:
    """Remove a temporary entry as far as possible; what is left is swept later."""
    shutil.rmtree(path, ignore_errors=True)


def take_away(base: Path, path: Path) -> bool:
    """Remove an entry: one rename out of sight, then its files. False where it was gone already."""
    away = base / layout.TEMPORARY / layout.temporary_name()
    try:
        make_directory(away.parent)
        os.rename(path, away)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise CacheUnwritableError(f"cannot remove {path}: {error.strerror or error}") from error
    discard(away)
    return True
