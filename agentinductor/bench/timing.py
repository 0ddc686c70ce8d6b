"""Time of one call, caches cold: samplers that each give seconds a call, one sample at a time.

CUDA: a graph of many launches over rotated buffers, whose footprint is a multiple of the L2 cache, between two events.
CPU: a loop over rotated buffers, long enough for the clock.
"""

import time
from collections.abc import Callable, Sequence
from typing import Protocol

import torch

from .. import device as machine
from ..codegen.reference import DTYPES
from ..schema import Definition, TensorSpec, Workload
from ..schema.axes import FLOATS

Buffers = Sequence[torch.Tensor]
CACHE_MULTIPLE = 3  # the footprint of all buffer sets over the last-level cache
MAX_SETS = 64
SAMPLE_SECONDS = {"cuda": 0.002, "cpu": 0.004}
MAX_CALLS = 512  # in one graph


class Sampler(Protocol):
    """`sample()` is the mean time of a call, in seconds, over one short stretch."""

    def sample(self) -> float: ...


def buffer_sets(definition: Definition, workload: Workload, device: torch.device, seed: int) -> list[list[torch.Tensor]]:
    """Inputs with random values, in as many sets as keep the cache cold, within a quarter of the free memory."""
    sizes = workload.all_sizes(definition)
    footprint = max(definition.bytes_moved(sizes), 1)
    wanted = -(-CACHE_MULTIPLE * machine.l2_bytes(device) // footprint) + 1
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 8 << 30
    count = max(1, min(wanted, MAX_SETS, free // 4 // footprint))
    generator = torch.Generator(device=device).manual_seed(seed)
    given = dict(workload.strides)
    return [[_random(spec, definition.shape(spec, sizes), given.get(spec.name), device, generator) for spec in definition.inputs]
            for _ in range(count)]


def _random(spec: TensorSpec, shape: tuple[int, ...], strides, device: torch.device, generator: torch.Generator) -> torch.Tensor:
    if spec.dtype in FLOATS:
        values = torch.randn(shape, generator=generator, device=device).to(DTYPES[spec.dtype])
    elif spec.dtype == "bool":
        values = torch.rand(shape, generator=generator, device=device) < 0.5
    else:
        values = torch.randint(1, 50, shape, generator=generator, device=device).to(DTYPES[spec.dtype])
    if strides is None:
        return values
    span = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) if values.numel() else 0
    out = torch.empty(span, dtype=values.dtype, device=device).as_strided(shape, strides)
    target = out
    for dim, stride in enumerate(strides):
        if stride == 0:
            target, values = target.narrow(dim, 0, min(1, target.shape[dim])), values.narrow(dim, 0, min(1, values.shape[dim]))
    target.copy_(values)
    return out


def output_maker(definition: Definition, workload: Workload, device: torch.device) -> Callable[[], list[torch.Tensor]]:
    """Allocates outputs as the compiled model does: what the baseline's outputs cost, the candidate's cost too."""
    sizes = workload.all_sizes(definition)
    given = dict(workload.strides)
    plans = []
    for spec in definition.outputs:
        shape = definition.shape(spec, sizes)
        plans.append((shape, given.get(spec.name) or torch.empty(shape, device="meta").stride(), DTYPES[spec.dtype]))
    return lambda: [torch.empty_strided(shape, strides, dtype=dtype, device=device) for shape, strides, dtype in plans]


def sampler(call: Callable[[Buffers], object], sets: Sequence[Buffers], device: torch.device, seconds: float | None = None) -> Sampler:
    """A warm sampler of `call(inputs)` over `sets`, whose samples take about `seconds`."""
    seconds = SAMPLE_SECONDS[device.type] if seconds is None else seconds
    if device.type != "cuda":
        return _Loop(call, sets, seconds)
    try:
        return _Graph(call, sets, device, seconds)
    except RuntimeError as error:
        if "CUDA error" in str(error) and "capture" not in str(error).lower():
            raise
        return _Events(call, sets, device)


class _Loop:
    """CPU: as many calls as fill a sample, over the sets in turn."""

    def __init__(self, call, sets, seconds: float):
        self.call, self.sets, self.at = call, sets, 0
        call(sets[0])
        begun = time.perf_counter()
        count = 0
        while count < 3 or time.perf_counter() - begun < seconds:
            call(sets[count % len(sets)])
            count += 1
        self.calls = max(1, round(count * seconds / (time.perf_counter() - begun)))

    def sample(self) -> float:
        call, sets, count = self.call, self.sets, self.calls
        order = [sets[(self.at + i) % len(sets)] for i in range(count)]
        self.at += count
        begun = time.perf_counter()
        for buffers in order:
            call(buffers)
        return (time.perf_counter() - begun) / count


class _Graph:
    """CUDA: one graph replay is a sample. A whole number of turns over the sets, so that each finds the cache cold."""

    def __init__(self, call, sets, device: torch.device, seconds: float):
        stream = torch.cuda.Stream(device)
        with torch.cuda.device(device), torch.cuda.stream(stream):
            for _ in range(2):  # compiles, then is warm
                call(sets[0])
            stream.synchronize()
            once = _timed(lambda: [call(buffers) for buffers in sets], stream) / len(sets)
            turns = max(1, min(MAX_CALLS // len(sets), round(seconds / max(once * len(sets), 1e-6))))
            self.calls = turns * len(sets)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph, stream=stream):
                for index in range(self.calls):
                    call(sets[index % len(sets)])
            self.stream = stream
            self.sample()

    def sample(self) -> float:
        with torch.cuda.stream(self.stream):
            return _timed(self.graph.replay, self.stream) / self.calls


class _Events:
    """CUDA, for calls that no graph can hold: one call between two events, after a flush of the cache. Includes launch time."""

    def __init__(self, call, sets, device: torch.device):
        self.call, self.sets, self.at = call, sets, 0
        self.flush = torch.empty(CACHE_MULTIPLE * machine.l2_bytes(device), dtype=torch.uint8, device=device)
        self.stream = torch.cuda.current_stream(device)
        self.sample()

    def sample(self) -> float:
        buffers = self.sets[self.at % len(self.sets)]
        self.at += 1
        self.flush.zero_()
        return _timed(lambda: self.call(buffers), self.stream)


def _timed(function: Callable[[], object], stream) -> float:
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record(stream)
    function()
    stop.record(stream)
    stop.synchronize()
    return start.elapsed_time(stop) / 1e3


def peak_bytes(call: Callable[[], object], device: torch.device) -> int | None:
    """The most memory that `call` holds beyond what was held before it (outputs included); None on a CPU."""
    if device.type != "cuda":
        return None
    call()
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    kept = call()
    torch.cuda.synchronize(device)
    del kept
    return torch.cuda.max_memory_allocated(device) - before
