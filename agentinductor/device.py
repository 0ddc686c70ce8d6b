"""What this machine is: device, software stack, compiler, and how fast it copies memory. Probed once in a process."""

import platform
import re
import shutil
import subprocess
import time
from functools import cache
from importlib import metadata
from pathlib import Path

import torch

from . import settings
from .schema import Environment

COMPILERS = ("g++", "clang++")
FLAG_VARIABLES = ("TRITON_DEFAULT_FP_FUSION", "TRITON_F32_DEFAULT", "TRITON_INTERPRET", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
_COPY_BYTES = {"cuda": 1 << 30, "cpu": 1 << 28}  # far beyond any cache
_COPIES = 12


def has_cuda() -> bool:
    return torch.cuda.is_available()


@cache
def compiler() -> str | None:
    """The C++ compiler's path, or None."""
    return next((found for found in map(shutil.which, COMPILERS) if found), None)


@cache
def compiler_version() -> str:
    """For example "gcc 12.2.0"; empty without a compiler."""
    path = compiler()
    if path is None:
        return ""
    done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60, check=False)
    first = done.stdout.partition("\n")[0]
    number = re.search(r"\d+\.\d+(\.\d+)?", first.rpartition(")")[2] or first)
    return f"{'clang' if 'clang' in first else 'gcc'} {number.group() if number else 'unknown'}"


def environment(device_type: str) -> Environment:
    """The Environment of "cuda" (the current device) or "cpu"."""
    flags = (f"float32_matmul_precision={torch.get_float32_matmul_precision()}", *_variables())
    if device_type == "cuda":
        flags += (f"allow_tf32={torch.backends.cuda.matmul.allow_tf32}",)
        return _cuda_environment(torch.cuda.current_device(), tuple(sorted(flags)))
    return _cpu_environment(tuple(sorted(flags + (f"threads={torch.get_num_threads()}",))))


def _variables() -> tuple[str, ...]:
    return tuple(f"{name}={value}" for name, value in settings.inherited(FLAG_VARIABLES).items())


@cache
def _cuda_environment(index: int, flags: tuple[str, ...]) -> Environment:
    major, minor = torch.cuda.get_device_capability(index)
    return Environment("cuda", torch.cuda.get_device_name(index), major * 10 + minor, torch.__version__, _version("triton"),
                       _driver(), compiler_version(), flags)


@cache
def _cpu_environment(flags: tuple[str, ...]) -> Environment:
    return Environment("cpu", _processor(), 0, torch.__version__, _version("triton"), "", compiler_version(), flags)


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _driver() -> str:
    """The driver's own version, or the CUDA version it supports where that cannot be read."""
    try:
        found = re.search(r"\b\d{3}\.\d+(\.\d+)?\b", Path("/proc/driver/nvidia/version").read_text())
    except OSError:
        found = None
    return found.group() if found else f"cuda {torch.version.cuda}"


def _processor() -> str:
    try:
        found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    return found.group(1).strip() if found else platform.processor() or platform.machine()


def l2_bytes(device: torch.device) -> int:
    """The size of the last cache before memory."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).L2_cache_size
    return _cpu_cache_bytes()


@cache
def _cpu_cache_bytes() -> int:
    """The largest cache the kernel reports; 32 MiB where it reports none."""
    sizes = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text().strip()
        sizes.append(int(text.rstrip("KMG")) << {"K": 10, "M": 20, "G": 30}.get(text[-1], 0))
    return max(sizes, default=32 << 20)


def copy_bandwidth(device: torch.device | str) -> float:
    """Bytes a second (read + written) of a large copy on `device`: the best of several."""
    device = torch.device(device)
    index = torch.cuda.current_device() if device.type == "cuda" and device.index is None else device.index
    return _copy_bandwidth(device.type, index or 0, torch.get_num_threads())


@cache
def _copy_bandwidth(kind: str, index: int, threads: int) -> float:
    device = torch.device(kind, index) if kind == "cuda" else torch.device(kind)
    size = _COPY_BYTES[kind]
    if kind == "cuda":
        size = min(size, torch.cuda.mem_get_info(device)[0] // 4)
    source = torch.ones(size // 4, dtype=torch.float32, device=device)
    target = torch.empty_like(source)
    seconds = []
    for _ in range(_COPIES):
        if kind == "cuda":
            start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            target.copy_(source)
            stop.record()
            stop.synchronize()
            seconds.append(start.elapsed_time(stop) / 1e3)
        else:
            begun = time.perf_counter()
            target.copy_(source)
            seconds.append(time.perf_counter() - begun)
    return 2 * source.numel() * 4 / min(seconds)
