"""Failing system calls: the kth one fails, whichever it is."""

import errno
import os

import pytest

ERRORS = (errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EIO, errno.ESTALE, errno.EBUSY, errno.EMFILE, errno.ENOENT)
CALLS = ("open", "write", "fsync", "rename", "mkdir", "listdir", "fstat", "read", "lstat", "scandir", "close")


def fail_kth(monkeypatch: pytest.MonkeyPatch, kth: int, code: int) -> list[int]:
    """Make the kth counted os call fail once with `code`. Returns a counter cell."""
    seen = [0]

    def wrap(plain):
        def call(*args, **kwargs):
            seen[0] += 1
            if seen[0] == kth:
                raise OSError(code, os.strerror(code))
            return plain(*args, **kwargs)
        return call

    for name in CALLS:
        monkeypatch.setattr(os, name, wrap(getattr(os, name)))
    return seen
