"""Limits that a child process puts on itself before it meets a candidate. Standard library only: it runs before torch loads.

Resource limits, no new privileges, and Landlock where the kernel has it: files may be written beneath the scratch
directories, under /dev and under its own /proc entry only. Reading and the network are not restricted: sources are
checked before they are built, and a C++ object's undefined symbols afterwards (codegen/cpp_builder.py). A seccomp filter
would go into `enter`.
"""

import ctypes
import os
import resource
import struct

DEVICE_PATHS = ("/dev", "/proc/self")  # the CUDA driver writes to its devices, and names its own threads
_PR_SET_NO_NEW_PRIVS = 38
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_GET_VERSION = 1
_WRITE_FILE = 1 << 1
_WRITES = _WRITE_FILE | sum(1 << bit for bit in range(4, 13))  # remove and make of every kind
_REFER, _TRUNCATE = 1 << 13, 1 << 14  # since versions 2 and 3


def enter(limits: dict, writable: list[str]) -> str:
    """Restrict this process for good. Returns "landlock", or "rlimits" where the kernel offers no more."""
    for name in ("CPU", "FSIZE", "NOFILE", "NPROC", "AS", "CORE"):
        value = limits.get(name)
        if value is not None:
            key = getattr(resource, f"RLIMIT_{name}")
            hard = resource.getrlimit(key)[1]
            value = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(key, (value, value))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return "rlimits"
    return "landlock" if _landlock(libc, writable) else "rlimits"


def _landlock(libc, writable: list[str]) -> bool:
    libc.syscall.restype = ctypes.c_long
    version = libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_GET_VERSION))
    if version < 1:
        return False
    handled = _WRITES | (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    attributes = struct.pack("=Q", handled)
    ruleset = libc.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0))
    if ruleset < 0:
        return False
    try:
        device_files = _WRITE_FILE | (handled & _TRUNCATE)
        allowed = all(_allow(libc, ruleset, path, handled) for path in writable)
        allowed = allowed and all(_allow(libc, ruleset, path, device_files) for path in DEVICE_PATHS)
        return allowed and libc.syscall(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0)) == 0
    finally:
        os.close(ruleset)


def _allow(libc, ruleset: int, path: str, access: int) -> bool:
    handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rule = struct.pack("=Qi", access, handle)
        return libc.syscall(_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(1), rule, ctypes.c_uint32(0)) == 0
    finally:
        os.close(handle)
