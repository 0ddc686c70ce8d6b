"""The whole model, four ways: eager, eager + kernels, compiled, compiled + kernels; and the gate that decides on it.

The variants are plain callables with the same weights: this module knows nothing of compilers. `compare` warms each
one up (compilation is excluded), measures its memory and its error against a more precise truth, then times them in
interleaved rounds, so that a drifting clock reaches all of them alike. `gate` says whether the kernels may stay.
"""

import copy
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch

from ..observability import aligned
from ..schema.decision import Accepted, Reason, Rejected

EAGER, EAGER_KERNELS, COMPILED, COMPILED_KERNELS = FOUR_WAYS = (
    "eager", "eager + kernels", "compiled", "compiled + kernels")
WARMUP_CALLS = 3  # of which the first compiles, and under CUDA graphs the second records
SAMPLE_SECONDS = 0.02  # one sample averages as many calls as fit in here, CALLS_MAX at most
CALLS_MAX = 50
MIN_ROUNDS = 5
RESAMPLES = 2000  # of the bootstrap
CONFIDENCE = 0.95
MEMORY_SLACK = 1.02  # the kernels may need this much more memory than the reference...
MEMORY_SLACK_BYTES = 4 << 20  # ...and this many bytes, the granularity of the allocator
ERROR_FACTOR = 1.5  # the kernels' error may be this much larger than the reference's
ERROR_FLOOR = {torch.float64: 1e-14, torch.float32: 2e-6, torch.float16: 5e-4, torch.bfloat16: 4e-3}  # of a rounding or two


@dataclass(frozen=True)
class Interval:
    """A median and the bootstrap confidence interval around it."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Measurement:
    """One variant. `peak_bytes` is what a call needs over weights and inputs; None where it cannot be known (CPU)."""

    name: str
    latency_us: Interval
    peak_bytes: int | None
    error: float | None  # ||out - truth|| / ||truth||, worst over the outputs; None without a truth
    floor: float  # an error below this is only the rounding of the output's dtype
    first_call_s: float  # compilation included
    samples_us: tuple[float, ...]  # one for each round, paired across variants


@dataclass(frozen=True)
class Comparison:
    """The variants of one model under one torch.compile mode."""

    mode: str
    device: str
    measurements: tuple[Measurement, ...]
    environment: dict = field(default_factory=dict)

    def __getitem__(self, name: str) -> Measurement:
        for measurement in self.measurements:
            if measurement.name == name:
                return measurement
        raise KeyError(f"no variant {name!r}; there are {', '.join(m.name for m in self.measurements)}")

    def speedup(self, candidate: str, reference: str = COMPILED) -> Interval:
        """Reference time over candidate time, from paired rounds: above 1 the candidate is faster."""
        pairs = np.array(self[reference].samples_us) / np.array(self[candidate].samples_us)
        return _interval(pairs)

    def to_json(self) -> dict:
        names = [m.name for m in self.measurements]
        speedups = {name: asdict(self.speedup(name)) for name in names} if COMPILED in names else {}
        return {"mode": self.mode, "device": self.device, "environment": self.environment,
                "variants": [{**asdict(m), "samples_us": list(m.samples_us)} for m in self.measurements],
                "speedup_over_compiled": speedups}

    @classmethod
    def from_json(cls, raw: dict) -> "Comparison":
        measurements = tuple(
            Measurement(**{**m, "latency_us": Interval(**m["latency_us"]), "samples_us": tuple(m["samples_us"])})
            for m in raw["variants"])
        return cls(raw["mode"], raw["device"], measurements, raw["environment"])

    def rows(self) -> list[tuple[str, ...]]:
        """The table's cells: variant, time, speed against compiled, memory, error."""
        return [self._row(m) for m in self.measurements]

    def _row(self, m: Measurement) -> tuple[str, ...]:
        latency = f"{m.latency_us.value:,.1f} [{m.latency_us.low:,.1f}, {m.latency_us.high:,.1f}]"
        ratio = "-"
        if any(other.name == COMPILED for other in self.measurements):
            speed = self.speedup(m.name)
            ratio = f"{speed.value:.3f} [{speed.low:.3f}, {speed.high:.3f}]"
        memory = "-" if m.peak_bytes is None else f"{m.peak_bytes / 2**20:,.1f}"
        return m.name, latency, ratio, memory, "-" if m.error is None else f"{m.error:.2e}"

    def __str__(self) -> str:
        return "\n".join([f"mode {self.mode} on {self.device}", *aligned([COLUMNS, *self.rows()])])


COLUMNS = ("variant", "us a call [95% CI]", "speed / compiled", "peak MiB", "error / truth")


def compare(
    variants: Mapping[str, Callable],
    args: Sequence = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    truth: Any = None,
    reset: Callable[[], None] | None = None,
    mode: str = "default",
    rounds: int = 30,
    budget_s: float = 30.0,
    seed: int = 0,
    environment: dict | None = None,
    progress: Callable[[str], None] | None = None,
) -> Comparison:
    """Measure `variants` (name -> callable with the model's weights) on one set of inputs, interleaved.

    truth     the outputs of a more precise model (see `truth_of`); None leaves the errors out
    reset     undoes what a call does to the inputs (a static cache's counter); runs before each call, untimed
    budget_s  seconds for the timed rounds; at least MIN_ROUNDS rounds run, at most `rounds`
    """
    kwargs, reset, progress = dict(kwargs or {}), reset or _nothing, progress or _nothing
    device = _device_of(args, kwargs, variants)
    facts, calls = {}, {}
    for name, run in variants.items():
        progress(f"{name}: compiling and warming up")
        facts[name], calls[name] = _prepare(run, args, kwargs, reset, device, truth)
    samples: dict[str, list[float]] = {name: [] for name in variants}
    random = np.random.default_rng(seed)
    deadline = time.monotonic() + budget_s
    for index in range(rounds):
        if index >= MIN_ROUNDS and time.monotonic() > deadline:
            break
        progress(f"round {index + 1}")
        for name in random.permutation(list(variants)):
            samples[name].append(_sample(variants[name], args, kwargs, reset, device, calls[name]))
    measured = tuple(
        Measurement(name, _interval(np.array(samples[name])), samples_us=tuple(samples[name]), **facts[name])
        for name in variants)
    return Comparison(mode, str(device), measured, environment or {})


def gate(
    comparison: Comparison, *, candidate: str = COMPILED_KERNELS, references: Sequence[str] = (COMPILED,),
) -> Accepted | Rejected:
    """May the kernels stay? Only if the whole model is faster than the best reference, no heavier, and as close to truth."""
    best = min(references, key=lambda name: comparison[name].latency_us.value)
    new, old = comparison[candidate], comparison[best]
    if new.error is not None and old.error is not None:
        allowed = max(ERROR_FACTOR * old.error, old.floor)
        if not new.error <= allowed:  # NaN is not fine
            return Rejected(Reason.WRONG_VALUES, f"error {new.error:.2e} against truth; {best} has {old.error:.2e}")
    allowed = float("inf") if old.peak_bytes is None else old.peak_bytes * MEMORY_SLACK + MEMORY_SLACK_BYTES
    if (new.peak_bytes or 0) > allowed:
        return Rejected(Reason.MORE_MEMORY, f"needs {new.peak_bytes:,} bytes; {best} needs {old.peak_bytes:,}")
    speed = comparison.speedup(candidate, best)
    if speed.low <= 1.0:
        return Rejected(Reason.SLOWER, f"{speed.value:.3f} times {best}'s speed, interval [{speed.low:.3f}, {speed.high:.3f}]")
    return Accepted(speed.value)


def truth_of(model: torch.nn.Module, args: Sequence = (), kwargs: Mapping[str, Any] | None = None,
             dtype: torch.dtype | None = None) -> list[torch.Tensor]:
    """The outputs of a copy of `model` in a wider dtype (float64 for float32 weights, float32 for half ones), run eagerly.

    Floating-point inputs, and the keys and values of a transformers cache, are copied and widened too; the originals
    are left as they were.
    """
    dtype = dtype or (torch.float32 if _narrowest(model) in (torch.float16, torch.bfloat16) else torch.float64)
    wide = copy.deepcopy(model).to(dtype)
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.no_grad():
            return outputs_of(wide(*_widened(list(args), dtype), **_widened(dict(kwargs or {}), dtype)))
    finally:
        torch.set_float32_matmul_precision(precision)


def outputs_of(result: Any) -> list[torch.Tensor]:
    """The tensors of a model's result, copied (CUDA graphs reuse theirs): tuples, lists and mappings are searched.

    Other objects, such as a key-value cache, are left out.
    """
    if isinstance(result, torch.Tensor):
        return [result.detach().clone()]
    if isinstance(result, Mapping):
        result = list(result.values())
    if isinstance(result, (list, tuple)):
        return [tensor for item in result for tensor in outputs_of(item)]
    return []


def relative_error(outputs: Sequence[torch.Tensor], truth: Sequence[torch.Tensor]) -> float:
    """||out - truth|| / ||truth||, worst over the floating-point outputs; infinity where their number or shape differs.

    Where both are NaN, or the same infinity, they agree; where only one is, the error is infinite.
    """
    if len(outputs) != len(truth):
        return float("inf")
    return max((_pair_error(out, want) for out, want in zip(outputs, truth, strict=True)), default=0.0)


def _pair_error(out: torch.Tensor, want: torch.Tensor) -> float:
    if out.shape != want.shape:
        return float("inf")
    if not want.is_floating_point():
        return 0.0 if torch.equal(out.to(want.device), want) else float("inf")
    out, want = out.detach().to(want.device, torch.float64), want.detach().to(torch.float64)
    odd = ~torch.isfinite(want)
    if not bool(torch.equal(odd, ~torch.isfinite(out))):
        return float("inf")
    if bool(odd.any()):
        if not torch.equal(out[odd].nan_to_num(0.0, 1.0, -1.0), want[odd].nan_to_num(0.0, 1.0, -1.0)):
            return float("inf")
        out, want = out.masked_fill(odd, 0.0), want.masked_fill(odd, 0.0)
    norm = float(want.norm())
    return float((out - want).norm()) / norm if norm else float(out.norm())


def _prepare(run: Callable, args: Sequence, kwargs: Mapping, reset: Callable, device: torch.device,
             truth: Any) -> tuple[dict, int]:
    """Warm up one variant: the facts of its Measurement that are not times, and how many calls make one sample."""
    with _peak(device) as peak:
        start = time.perf_counter()
        _call(run, args, kwargs, reset)
        _synchronize(device)
        first = time.perf_counter() - start
        for _ in range(WARMUP_CALLS - 1):
            result = _call(run, args, kwargs, reset)
        peak.warm()
        result = _call(run, args, kwargs, reset)
    outputs = outputs_of(result)
    del result
    error = None if truth is None else relative_error(outputs, outputs_of(truth))
    floor = max((ERROR_FLOOR.get(out.dtype, 0.0) for out in outputs), default=0.0)
    once = _sample(run, args, kwargs, reset, device, 1)
    calls = int(min(max(SAMPLE_SECONDS * 1e6 / max(once, 1.0), 1), CALLS_MAX))
    return {"peak_bytes": peak.bytes, "error": error, "floor": floor, "first_call_s": first}, calls


def _call(run: Callable, args: Sequence, kwargs: Mapping, reset: Callable) -> Any:
    reset()
    torch.compiler.cudagraph_mark_step_begin()
    with torch.no_grad():
        return run(*args, **kwargs)


def _sample(run: Callable, args: Sequence, kwargs: Mapping, reset: Callable, device: torch.device, calls: int) -> float:
    """Mean microseconds of one call, over `calls` calls; the resets between them are not counted.

    On CUDA each call sits between two events and nothing waits until the end, as in a decoding loop: a call's time is
    the device's where the device is the bottleneck, and the launching thread's where that is.
    """
    _synchronize(device)
    if device.type != "cuda":
        total = 0.0
        for _ in range(calls):
            reset()
            start = time.perf_counter()
            with torch.no_grad():
                run(*args, **kwargs)
            total += time.perf_counter() - start
        return total / calls * 1e6
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(calls)]
    for begin, end in events:
        reset()
        torch.compiler.cudagraph_mark_step_begin()
        begin.record()
        with torch.no_grad():
            run(*args, **kwargs)
        end.record()
    _synchronize(device)
    return sum(begin.elapsed_time(end) for begin, end in events) / calls * 1e3


class _Peak:
    """Peak device memory of one variant, over what was allocated before it existed."""

    def __init__(self, device: torch.device):
        self.device, self.bytes = device, None if device.type != "cuda" else 0

    def start(self) -> None:
        if self.bytes is not None:
            torch.cuda.empty_cache()
            self.allocated = torch.cuda.memory_allocated(self.device)
            self.reserved = torch.cuda.memory_reserved(self.device)

    def warm(self) -> None:
        """Called before the call that counts. What stays reserved now is a CUDA graph's private pool."""
        if self.bytes is not None:
            _synchronize(self.device)
            torch.cuda.empty_cache()
            self.pools = torch.cuda.memory_reserved(self.device) - self.reserved
            torch.cuda.reset_peak_memory_stats(self.device)
            self.before = torch.cuda.memory_allocated(self.device)

    def stop(self) -> None:
        if self.bytes is not None:
            _synchronize(self.device)
            peak = torch.cuda.max_memory_allocated(self.device)
            self.bytes = max(peak - self.allocated, self.pools + peak - self.before)


@contextmanager
def _peak(device: torch.device) -> Iterator[_Peak]:
    peak = _Peak(device)
    peak.start()
    yield peak
    peak.stop()


def _interval(samples: np.ndarray) -> Interval:
    """The median and its percentile-bootstrap interval; the resampling is seeded, so that equal samples give equal bounds."""
    picks = np.random.default_rng(0).integers(0, len(samples), (RESAMPLES, len(samples)))
    medians = np.median(samples[picks], axis=1)
    low, high = np.quantile(medians, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Interval(float(np.median(samples)), float(low), float(high))


def _widened(value: Any, dtype: torch.dtype) -> Any:
    """A copy of an argument with every floating-point tensor in `dtype`."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone().to(dtype) if value.is_floating_point() else value.detach().clone()
    if isinstance(value, dict):
        return {key: _widened(item, dtype) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_widened(item, dtype) for item in value)
    clone = copy.deepcopy(value)
    for layer in getattr(clone, "layers", ()):  # a transformers cache: tensors are attributes of its layers
        for name, held in vars(layer).items():
            if isinstance(held, torch.Tensor) and held.is_floating_point():
                setattr(layer, name, held.to(dtype))
    return clone


def _narrowest(model: torch.nn.Module) -> torch.dtype:
    kinds = {p.dtype for p in model.parameters() if p.is_floating_point()}
    return min(kinds, key=lambda kind: torch.finfo(kind).bits, default=torch.float32)


def _device_of(args: Sequence, kwargs: Mapping, variants: Mapping[str, Callable]) -> torch.device:
    """The device of the first tensor argument, else of the first variant's parameters, else the CPU."""
    pending: list[Any] = [*args, *kwargs.values()]
    while pending:
        value = pending.pop(0)
        if isinstance(value, torch.Tensor):
            return value.device
        if isinstance(value, Mapping):
            pending.extend(value.values())
        elif isinstance(value, (list, tuple)):
            pending.extend(value)
    for run in variants.values():
        if isinstance(run, torch.nn.Module):
            for parameter in run.parameters():
                return parameter.device
    return torch.device("cpu")


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _nothing(*_: Any) -> None:
    pass
