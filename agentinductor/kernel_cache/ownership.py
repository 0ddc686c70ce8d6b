"""Whom we believe: a cache root is used only where nobody else could have written into it."""

import os
import stat
from pathlib import Path

_SHARED_WRITE = stat.S_IWGRP | stat.S_IWOTH


def refusal(root: Path) -> str | None:
    """None when `root` may be used (or does not exist yet), else the reason in words.

    The root and every directory above it must belong to this user or to root and be writable by nobody else (a
    sticky directory such as /tmp may be above it); the root itself is no symbolic link.
    """
    if not root.is_absolute() or root.parts[1:2] == ("~",):
        return f"{root} is not an absolute path (is the home directory unknown?); set AGENTINDUCTOR_CACHE_DIR"
    try:
        leaf = os.lstat(root)
    except (FileNotFoundError, NotADirectoryError):
        return _ancestors_refusal(root.parent)
    except OSError as error:
        return f"{root} cannot be examined: {error.strerror}"
    if stat.S_ISLNK(leaf.st_mode):
        return f"{root} is a symbolic link; give the directory itself"
    if not stat.S_ISDIR(leaf.st_mode):
        return f"{root} is not a directory"
    return _refusal(root, leaf, sticky_is_fine=False) or _ancestors_refusal(root.parent)


def _ancestors_refusal(path: Path) -> str | None:
    try:
        path = Path(os.path.realpath(path))
        for directory in (path, *path.parents):
            try:
                status = os.lstat(directory)
            except (FileNotFoundError, NotADirectoryError):
                continue
            reason = _refusal(directory, status, sticky_is_fine=True)
            if reason:
                return reason
    except OSError as error:
        return f"{path} cannot be examined: {error.strerror}"
    return None


def trusted_owner(uid: int) -> bool:
    return uid in (0, os.getuid())


def _refusal(path: Path, status: os.stat_result, sticky_is_fine: bool) -> str | None:
    if not trusted_owner(status.st_uid):
        return f"{path} belongs to user {status.st_uid}, neither to you nor to root"
    writable = stat.S_IMODE(status.st_mode) & _SHARED_WRITE
    if status.st_gid == status.st_uid:
        writable &= ~stat.S_IWGRP  # a user's private group, as Debian and Red Hat make them
    if writable and not (sticky_is_fine and status.st_mode & stat.S_ISVTX):
        return f"{path} is writable by others (mode {stat.S_IMODE(status.st_mode):o}); run chmod go-w on it"
    return None
