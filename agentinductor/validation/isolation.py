"""The parent's side of a child process: start it, talk to it, tell dead from late, and leave nothing behind.

Messages are JSON lines on two pipes; tensors are raw bytes in files of a scratch directory, in memory where it is large
enough. Nothing that comes back is unpickled or evaluated, and every length is checked by whoever reads it.
"""

import contextlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from .. import settings
from ..errors import EvaluationError
from ..schema import Reason

WORKER = "agentinductor.validation.worker"
ROOT = str(Path(__file__).resolve().parents[2])
MEMORY = Path("/dev/shm")
MESSAGE_BYTES = 4 << 20
LOG_BYTES = 16 << 10  # of the child's output, the last ones
INHERITED = (  # what torch, CUDA and compilers need; no tokens, proxies, homes or agents
    "PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_HOME", "CUDA_PATH",
    "CUDA_MODULE_LOADING", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "OMP_NUM_THREADS", "MKL_NUM_THREADS",
    "TRITON_DEFAULT_FP_FUSION", "TRITON_F32_DEFAULT", "TRITON_INTERPRET", "TRITON_LIBCUDA_PATH", "TRITON_PTXAS_PATH", "CC", "CXX",
)
# The child's whole program: limits first, then the module that serves.
_BOOT = """
import json, sys
given = json.loads(sys.argv[1])
sys.path[:] = given["path"]
import importlib.util
spec = importlib.util.spec_from_file_location("sandbox", given["sandbox"])
sandbox = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sandbox)
given["confined"] = sandbox.enter(given["limits"], given["writable"])
import importlib
importlib.import_module(given["module"]).main(given)
"""


@dataclass(frozen=True)
class Limits:
    """What a child may use."""

    start_s: float = 120.0  # until it answers for the first time (torch and CUDA load)
    build_s: float = 240.0  # one build
    request_s: float = 60.0  # one run of one case
    cpu_s: int = 3600  # processor time of the child's whole life
    memory_bytes: int = 32 << 30  # address space, on a CPU only: CUDA reserves more than there is
    file_bytes: int = 32 << 30
    files: int = 4096
    processes: int = 8192  # counts all of the user's
    case_elements: int = 1 << 18  # elements of the largest tensor in cases that are not the workload's own
    full_elements: int = 1 << 26  # a workload larger than this is cut down along its var axes for validation


class ChildError(Exception):
    """A request got no answer. `reason` is Reason.CRASH or Reason.TIMEOUT."""

    def __init__(self, reason: Reason, detail: str):
        super().__init__(detail)
        self.reason, self.detail = reason, detail


@cache
def shared_cache() -> str:
    """A directory for compiled baselines that lives as long as this process."""
    holder = tempfile.TemporaryDirectory(prefix="agentinductor-baseline-")
    _keep.append(holder)
    return holder.name


_keep: list[tempfile.TemporaryDirectory] = []


class Child:
    """One child process. Use it as a context manager, or call `close`."""

    def __init__(self, device_type: str, limits: Limits | None = None, module: str = WORKER, baseline_cache: bool = False,
                 threads: int | None = None):
        self.limits = limits or Limits()
        self.scratch = Path(tempfile.mkdtemp(prefix="agentinductor-", dir=_memory_directory()))
        writable = [str(self.scratch)] + ([shared_cache()] if baseline_cache else [])
        self._log = bytearray()
        self._started = False
        to_child, self._write = os.pipe()
        self._read, from_child = os.pipe()
        given = {
            "path": [p for p in dict.fromkeys([*sys.path, ROOT]) if p and os.path.isabs(p)], "module": module,
            "sandbox": str(Path(__file__).with_name("sandbox.py")), "limits": self._rlimits(device_type), "writable": writable,
            "scratch": str(self.scratch), "device": device_type, "receive": to_child, "send": from_child, "threads": threads,
        }
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-c", _BOOT, json.dumps(given)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, cwd=self.scratch, env=self._environment(baseline_cache), start_new_session=True,
                pass_fds=(to_child, from_child), close_fds=True,
            )
        except OSError as error:
            self._cleanup()
            raise EvaluationError(f"cannot start a child process: {error}") from error
        finally:
            os.close(to_child)
            os.close(from_child)
        self._buffer = b""
        self._drain = threading.Thread(target=self._read_log, daemon=True)
        self._drain.start()

    def _rlimits(self, device_type: str) -> dict:
        limits = self.limits
        return {"CPU": limits.cpu_s, "FSIZE": limits.file_bytes, "NOFILE": limits.files, "NPROC": limits.processes, "CORE": 0,
                "AS": limits.memory_bytes if device_type == "cpu" else None}

    def _environment(self, baseline_cache: bool) -> dict[str, str]:
        inductor = os.path.join(shared_cache() if baseline_cache else self.scratch, "inductor")
        scratch = str(self.scratch)
        return {**settings.inherited(INHERITED), "HOME": scratch, "TMPDIR": scratch, "USER": "candidate", "LOGNAME": "candidate",
                "TORCHINDUCTOR_CACHE_DIR": inductor, "TRITON_CACHE_DIR": os.path.join(inductor, "triton"), "CUDA_CACHE_DISABLE": "1",
                "TORCHINDUCTOR_COMPILE_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}

    def request(self, message: dict, timeout: float) -> dict:
        """The child's answer, a dict. Raises ChildError when it dies or is late; it is gone then."""
        if not self._started and message.get("op") != "hello":
            self.start()
        try:
            self._send(message)
        except OSError:
            raise self._died() from None
        return self._answer(timeout)

    def start(self) -> dict:
        """Wait until the child is up. Returns what it says about itself."""
        self._started = True
        try:
            return self.request({"op": "hello"}, self.limits.start_s)
        except ChildError as error:
            raise EvaluationError(f"the child process did not start: {error.detail}") from error

    def _send(self, message: dict) -> None:
        data = memoryview(json.dumps(message).encode() + b"\n")
        while data:
            data = data[os.write(self._write, data):]

    def _answer(self, timeout: float) -> dict:
        deadline = time.monotonic() + timeout
        with selectors.DefaultSelector() as selector:
            selector.register(self._read, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                left = deadline - time.monotonic()
                if left <= 0 or not selector.select(left):
                    self.close()
                    raise ChildError(Reason.TIMEOUT, f"no answer in {timeout:.0f} s")
                data = os.read(self._read, 1 << 16)
                if not data:
                    raise self._died()
                self._buffer += data
                if len(self._buffer) > MESSAGE_BYTES:
                    self.close()
                    raise ChildError(Reason.CRASH, "an answer longer than any answer is")
        line, _, self._buffer = self._buffer.partition(b"\n")
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict) or not isinstance(answer.get("ok"), bool):
            self.close()
            raise ChildError(Reason.CRASH, "an answer that is no answer")
        return answer

    def _died(self) -> ChildError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        self._drain.join(1)
        code, log = self.process.poll(), self.log()
        self.close()
        if code is not None and code < 0:
            name = signal.Signals(-code).name if -code in {s.value for s in signal.Signals} else str(-code)
            detail = f"the process was killed by {name}"
            if -code == signal.SIGXCPU:
                return ChildError(Reason.TIMEOUT, detail)
        else:
            detail = f"the process ended with status {code}"
        return ChildError(Reason.CRASH, f"{detail}; its last words: {log[-600:]}" if log else detail)

    def log(self) -> str:
        """The end of what the child printed."""
        return bytes(self._log).decode(errors="replace").strip()

    def _read_log(self) -> None:
        stream = self.process.stdout
        assert stream is not None  # PIPE above
        while True:
            data = os.read(stream.fileno(), 1 << 14)
            if not data:
                stream.close()
                return
            self._log += data
            del self._log[:-LOG_BYTES]

    def tasks(self) -> tuple[int, int]:
        """(threads, child processes) of the child, as the kernel counts them; (0, 0) where it cannot be asked."""
        try:
            root = Path(f"/proc/{self.process.pid}/task")
            tasks = list(root.iterdir())
            return len(tasks), sum(len((task / "children").read_text().split()) for task in tasks)
        except OSError:
            return 0, 0

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def close(self) -> None:
        """Kill the child's whole session and remove its scratch directory."""
        if getattr(self, "process", None) is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self._cleanup()

    def _cleanup(self) -> None:
        for name in ("_write", "_read"):
            handle = getattr(self, name)
            if handle >= 0:
                os.close(handle)
                setattr(self, name, -1)
        shutil.rmtree(self.scratch, ignore_errors=True)

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_) -> None:
        self.close()


def _memory_directory() -> str | None:
    """/dev/shm when it can hold large cases and run what is built there, else the usual temporary directory."""
    try:
        free = shutil.disk_usage(MEMORY).free
        if os.statvfs(MEMORY).f_flag & os.ST_NOEXEC:
            return None
    except OSError:
        return None
    return str(MEMORY) if free > 2 << 30 and os.access(MEMORY, os.W_OK) else None
