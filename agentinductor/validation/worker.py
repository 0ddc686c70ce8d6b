"""The child's side: builds a solution, runs it on bytes it is given, hands bytes back. It knows no answer and gives no verdict.

A request is one JSON line; `HANDLERS` lists the operations. `run` carries out a program of steps on numbered storages:

    load s        (re)fill storage s from the request's data file; the first load allocates it
    stage s       the same, but the new content arrives behind a delay on a side stream (CUDA), where the next call runs too
    call          run the solution on views of storages
    dump s        append storage s to the reply's data file

Between steps nothing waits for the device but `dump`.
"""

import json
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import torch

from ..codegen import builder, launcher_trace, triton_builder
from ..codegen.reference import DTYPES
from ..codegen.runnable import Runnable
from ..errors import BuildError, StaticCheckError, ToolchainError
from ..schema import Definition, Reason, Solution

DELAY_CYCLES = 20_000_000  # about 10 ms: far longer than a launch takes
ALIGNMENT = 512
BUILD_THREADS = 16


@dataclass
class Session:
    """What this process holds between requests."""

    device: torch.device
    scratch: Path
    definition: Definition | None = None
    built: dict[str, tuple[Solution, Runnable]] = field(default_factory=dict)
    traced: set[str] = field(default_factory=set)
    sets: tuple | None = None  # timing buffers, with the key they were made for (bench/worker.py)
    lock: threading.Lock = field(default_factory=threading.Lock)


class Failed(Exception):
    """A request that failed for a reason the parent should know; `fatal` when this process can serve no more."""

    def __init__(self, reason: Reason, detail: str, fatal: bool = False):
        super().__init__(detail)
        self.reason, self.detail, self.fatal = reason, detail[-4000:], fatal


def main(given: dict, handlers: dict[str, Callable[[Session, dict], dict]] | None = None) -> None:
    """Serve requests until the parent closes its pipe."""
    if given["threads"]:
        torch.set_num_threads(given["threads"])
    session = Session(torch.device("cuda", 0) if given["device"] == "cuda" else torch.device("cpu"), Path(given["scratch"]))
    receive = os.fdopen(given["receive"], "rb")
    send = os.fdopen(given["send"], "wb")
    for line in receive:
        message = json.loads(line)
        answer = _serve(session, handlers or HANDLERS, message, given)
        send.write(json.dumps(answer).encode() + b"\n")
        send.flush()
        if answer.get("fatal"):
            break
    sys.stdout.flush()
    os._exit(0)  # no destructors: a candidate's may not run, and CUDA's may hang


def _serve(session: Session, handlers: dict, message: dict, given: dict) -> dict:
    if message["op"] == "hello":
        return {"ok": True, "torch": torch.__version__, "confined": given["confined"]}
    try:
        return {"ok": True, **handlers[message["op"]](session, message)}
    except Failed as failure:
        return {"ok": False, "reason": failure.reason.value, "detail": failure.detail, "fatal": failure.fatal}
    except torch.cuda.OutOfMemoryError as error:
        return {"ok": False, "reason": Reason.RUNTIME_ERROR.value, "detail": str(error)[:4000], "fatal": False}
    except RuntimeError as error:
        fatal = "CUDA error" in str(error) or "device-side assert" in str(error)  # the CUDA context is lost
        reason = Reason.CRASH if fatal else Reason.RUNTIME_ERROR
        return {"ok": False, "reason": reason.value, "detail": str(error)[:4000], "fatal": fatal}
    except Exception as error:  # the candidate's, whatever it is: the parent has the verdict
        return {"ok": False, "reason": Reason.RUNTIME_ERROR.value, "detail": f"{type(error).__name__}: {error}"[:4000], "fatal": False}


def build(session: Session, message: dict) -> dict:
    """{definition, solution} -> {key}."""
    definition, solution = Definition.from_json(message["definition"]), Solution.from_json(message["solution"])
    build_one(session, definition, solution)
    return {"key": solution.digest}


def build_many(session: Session, message: dict) -> dict:
    """{definition, solutions, inputs, outputs} -> {failures: key -> [reason, detail]}: side by side.

    A Triton kernel is compiled by its first launch, so each is launched once, on empty contents of the given shapes.
    """
    definition = Definition.from_json(message["definition"])
    solutions = [Solution.from_json(raw) for raw in message["solutions"]]

    def one(solution: Solution) -> list[str] | None:
        try:
            build_one(session, definition, solution)
            if solution.language == "triton":
                tensors = [[torch.zeros(t["size"], dtype=torch.uint8, device=session.device).view(DTYPES[t["dtype"]])
                            .as_strided(t["shape"], t["strides"]) for t in message[name]] for name in ("inputs", "outputs")]
                check_launcher(session, solution.digest, *tensors)
                with torch.cuda.device(session.device):
                    session.built[solution.digest][1](*tensors)
        except Failed as failure:
            return [failure.reason.value, failure.detail]
        except RuntimeError as error:
            if "CUDA error" in str(error):
                raise
            return [Reason.RUNTIME_ERROR.value, str(error)[:2000]]
        except Exception as error:  # the candidate's, whatever it is
            return [Reason.RUNTIME_ERROR.value, f"{type(error).__name__}: {error}"[:2000]]
        return None

    with ThreadPoolExecutor(max(1, min(len(solutions), os.cpu_count() or 1, BUILD_THREADS))) as pool:
        results = list(pool.map(one, solutions))
    if session.device.type == "cuda":
        torch.cuda.synchronize(session.device)
    return {"failures": {s.digest: failure for s, failure in zip(solutions, results, strict=True) if failure}}


def build_one(session: Session, definition: Definition, solution: Solution) -> None:
    try:
        runnable = builder.build(definition, solution, session.scratch / "build")
    except ToolchainError as error:
        raise Failed(Reason.TOOLCHAIN_MISSING, str(error)) from None
    except BuildError as error:
        raise Failed(Reason.COMPILE_ERROR, str(error)) from None
    with session.lock:
        session.definition = definition
        session.built[solution.digest] = solution, runnable


def check_launcher(session: Session, key: str, inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> None:
    """Trace a Triton launcher once, on symbolic sizes. Raises Failed when it does more than allocate, view and launch."""
    solution, _ = session.built[key]
    if solution.language != "triton" or key in session.traced:
        return
    definition = session.definition
    assert definition is not None  # set by build
    module = triton_builder.load(solution, session.scratch / "build")
    fakes = launcher_trace.fake_tensors(definition, [*inputs, *outputs])
    try:
        with session.lock:  # make_fx keeps global state
            launcher_trace.trace(module, fakes[:len(inputs)], fakes[len(inputs):])
    except (StaticCheckError, BuildError) as error:
        raise Failed(Reason.FORBIDDEN_LAUNCHER, str(error)) from None
    session.traced.add(key)


def run(session: Session, message: dict) -> dict:
    """{key, data, reply, steps} -> {bytes}: the steps of the module docstring."""
    _, runnable = session.built[message["key"]]
    data = Path(message["data"])
    source = torch.from_file(str(data), shared=False, size=data.stat().st_size, dtype=torch.uint8) if data.stat().st_size else None
    storages: dict[int, torch.Tensor] = {}
    side = torch.cuda.Stream(session.device) if session.device.type == "cuda" else None
    staged = False
    written = 0
    with open(message["reply"], "wb") as reply:
        for step in message["steps"]:
            kind = step["do"]
            if kind in ("load", "stage"):
                assert source is not None  # there is a byte to load
                content = source[step["at"]:step["at"] + step["bytes"]]
                stream = side if kind == "stage" else None
                _fill(session, storages, step["storage"], content, stream, first=not staged)
                staged = staged or stream is not None
            elif kind == "call":
                inputs, outputs = ([_view(storages, t) for t in step[name]] for name in ("inputs", "outputs"))
                check_launcher(session, message["key"], inputs, outputs)
                if staged and side is not None:
                    with torch.cuda.stream(side):
                        runnable(inputs, outputs)
                    side.synchronize()
                    staged = False
                else:
                    runnable(inputs, outputs)
            else:
                if session.device.type == "cuda":
                    torch.cuda.synchronize(session.device)
                written += reply.write(storages[step["storage"]].cpu().numpy().data)
    return {"bytes": written}


def _fill(session: Session, storages: dict, index: int, content: torch.Tensor, side, first: bool) -> None:
    if index not in storages:
        buffer = torch.empty(content.numel() + ALIGNMENT, dtype=torch.uint8, device=session.device)
        start = -buffer.data_ptr() % ALIGNMENT
        storages[index] = buffer[start:start + content.numel()]
    if side is None:
        storages[index].copy_(content)
        return
    arrived = content.to(session.device)
    torch.cuda.synchronize(session.device)
    with torch.cuda.stream(side):
        if first:
            torch.cuda._sleep(DELAY_CYCLES)
        storages[index].copy_(arrived)
        arrived.record_stream(side)


def _view(storages: dict, tensor: dict) -> torch.Tensor:
    """A tensor over its own part of a storage: a fresh view object for each call."""
    dtype = DTYPES[tensor["dtype"]]
    storage = storages[tensor["storage"]]
    size = dtype.itemsize
    start, stop = tensor["start"], tensor["stop"]  # bytes, multiples of the element size
    flat = storage[start:stop].view(dtype) if stop > start else storage.new_empty(0, dtype=dtype)
    assert (stop - start) % size == 0
    return flat.as_strided(tensor["shape"], tensor["strides"])


def snapshot(session: Session, message: dict) -> dict:
    """The process-wide switches that a kernel has no business with."""
    state = {
        "default_dtype": str(torch.get_default_dtype()), "grad": torch.is_grad_enabled(), "threads": torch.get_num_threads(),
        "matmul": torch.get_float32_matmul_precision(), "tf32": torch.backends.cuda.matmul.allow_tf32,
        "cudnn_tf32": torch.backends.cudnn.allow_tf32, "deterministic": torch.are_deterministic_algorithms_enabled(),
        "rng": int(torch.random.get_rng_state().to(torch.int64).sum()), 
        "denormal": (torch.tensor([1e-310], dtype=torch.float64) * 1).item() != 0,
        "cwd": os.getcwd(), "handles": len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0,
    }
    if session.device.type == "cuda":
        state["device"] = torch.cuda.current_device()
        state["stream"] = torch.cuda.current_stream(session.device).cuda_stream
        state["cuda_rng"] = torch.cuda.initial_seed()
    return {"state": state}


HANDLERS: dict[str, Callable[[Session, dict], dict]] = {"build": build, "build_many": build_many, "run": run, "snapshot": snapshot}
