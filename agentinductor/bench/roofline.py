"""What the hardware allows: a kernel that moves its bytes faster than memory can is a broken timer, or a cheat."""

import math

from ..schema import Definition, Workload

TOO_FAST = {"cuda": 0.7, "cpu": 0.4}  # of the floor; a CPU's copy also reads what it overwrites, so its bandwidth understates
BEYOND_CACHE = 4  # footprints smaller than this many caches may live in the cache


def bytes_needed(definition: Definition, workload: Workload) -> int:
    """The fewest bytes to move: what lies at one address counts once, what no slice reads not at all."""
    sizes = workload.all_sizes(definition)
    strides = dict(workload.strides)
    total = 0
    for spec in definition.inputs + definition.outputs:
        given = strides.get(spec.name)
        count = math.prod(n for d, n in enumerate(definition.shape(spec, sizes)) if given is None or given[d] != 0)
        readers = [node for node in definition.body if spec.name in node.operands]
        if readers and all(node.op == "slice" for node in readers) and spec.name not in definition.results:
            count = min(count, sum(math.prod(sizes[axis] for axis in node.axes) for node in readers))
        total += count * spec.itemsize
    return total


def floor_us(definition: Definition, workload: Workload, bandwidth: float) -> float:
    """Microseconds that the bytes take at `bandwidth` (bytes a second)."""
    return bytes_needed(definition, workload) / bandwidth * 1e6


def faster_than_hardware(definition: Definition, workload: Workload, latency_us: float, floor: float, cache_bytes: int,
                         device_type: str) -> str | None:
    """Why a latency cannot be true, or None."""
    needed = bytes_needed(definition, workload)
    if needed < BEYOND_CACHE * cache_bytes or latency_us >= TOO_FAST[device_type] * floor:
        return None
    return f"{latency_us:.2f} us for {needed:,} bytes, which a plain copy moves in {floor:.2f} us"
