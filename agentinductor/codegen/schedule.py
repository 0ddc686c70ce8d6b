"""Schedules: how a template lays a definition's loops on a machine, and which of them are worth trying.

`space` lists candidates for a definition at a workload's sizes, the most promising first, the same list every time.
Templates refuse (UnsupportedRegionError) what they cannot express; a candidate of `space` is always expressible unless
the definition itself is not.
"""

import math
from dataclasses import asdict, dataclass, replace

from ..errors import UnsupportedRegionError
from ..schema import Definition
from .loops import Loops, analyse, online_softmax

FORMS = ("tile", "rows", "loop")
MULTIPROCESSORS = 132  # of an H100 or H200; a persistent grid is a multiple of it


@dataclass(frozen=True)
class Schedule:
    """One way to run a definition.

    form      "tile": pointwise, tiles of rows x block; "rows": whole rows held in registers; "loop": rows read in blocks
    rows      outer elements a program (thread block, thread) works on at a time
    block     inner elements of a tile, or of one step of a loop; for "rows" at least the row's length
    warps     warps a program; threads on a CPU (0: all)
    stages    software pipelining depth of loops
    programs  size of a persistent grid; 0: one program a tile
    online    reductions that can share one pass do (softmax's maximum and sum, a variance and its mean)
    vector    elements one thread reads or computes at once (CUDA, C++)
    stream    loads and stores are marked first to leave the cache; loads alone would make it 4% slower (Triton)
    """

    language: str
    form: str
    rows: int = 1
    block: int = 1024
    warps: int = 4
    stages: int = 1
    programs: int = 0
    online: bool = False
    vector: int = 1
    stream: bool = False

    def __str__(self) -> str:
        parts = [self.language, self.form, f"rows={self.rows}", f"block={self.block}", f"warps={self.warps}"]
        parts += [f"{name}={getattr(self, name)}" for name, default in (("stages", 1), ("programs", 0), ("vector", 1))
                  if getattr(self, name) != default]
        return " ".join(parts + ["online"] * self.online + ["stream"] * self.stream)

    def to_json(self) -> dict:
        return asdict(self)

    @classmethod
    def from_json(cls, raw: dict) -> "Schedule":
        return cls(**raw)


def space(definition: Definition, sizes: dict[str, int], language: str) -> list[Schedule]:
    """Candidates for `definition` at `sizes` (every axis), most promising first; [] when no template can express it."""
    try:
        loops = analyse(definition)
    except UnsupportedRegionError:
        return []
    outer = _product(sizes[name] for name in loops.outer)
    inner = _product(sizes[name] for name in loops.inner)
    make = {"triton": _triton, "cuda": _cuda, "cpp": _cpp}[language]
    return list(dict.fromkeys(make(loops, max(outer, 1), max(inner, 1))))[:60]


def power_of_2(n: int) -> int:
    """The smallest power of two that is at least `n`."""
    return 1 << max(n - 1, 0).bit_length()


def _product(values) -> int:
    out = 1
    for value in values:
        out *= value
    return out


# ---- Triton ---------------------------------------------------------------------------------------------------------------


def _triton(loops: Loops, outer: int, inner: int) -> list[Schedule]:
    plain = _triton_rows(loops, outer, inner) if loops.reduces else _triton_tiles(loops, outer, inner)
    streamed = [replace(schedule, stream=True) for schedule in plain if not schedule.programs]
    return plain[:6] + streamed[:6] + plain[6:] + streamed[6:12]


def _warps_for(elements: int, each: int = 16) -> list[int]:
    """Warps for a tile: about `each` elements a thread come first; never more than 64, never fewer than 2."""
    options = [w for w in (1, 2, 4, 8, 16, 32) if 2 <= elements / (32 * w) <= 64]
    return sorted(options, key=lambda w: (_distance(elements / (32 * w), each), w)) or [1]


def _distance(value: float, aim: float) -> float:
    """How far `value` is from `aim`, in doublings."""
    return abs(math.log2(value / aim))


def _triton_rows(loops: Loops, outer: int, inner: int) -> list[Schedule]:
    out: list[Schedule] = []
    block = power_of_2(inner)
    each = 16 if outer > 2 * MULTIPROCESSORS else 8  # few rows: more threads on each
    if block <= 32768:
        most = min(max(outer // MULTIPROCESSORS, 1), max(16384 // block, 1))
        row_counts = [r for r in (1, 2, 4, 8, 16, 32, 64, 128) if r <= most]
        row_counts.sort(key=lambda r: abs(power_of_2(max(2048 // block, 1)).bit_length() - r.bit_length()))
        for rows in row_counts[:4]:
            out += [Schedule("triton", "rows", rows, block, w) for w in _warps_for(rows * block, each)[:4]]
        best = row_counts[0]
        for many in (4, 8):
            if outer > best * many * MULTIPROCESSORS:
                for warps in _warps_for(best * block)[:2]:
                    programs = many * MULTIPROCESSORS
                    out += [Schedule("triton", "rows", best, block, warps, stages, programs) for stages in (1, 3)]
    looped: list[Schedule] = []
    for step in (1024, 2048, 4096, 8192):
        if step <= block or step == 1024:
            for warps in _warps_for(step)[:2]:
                looped += [Schedule("triton", "loop", 1, step, warps, stages, online=True) for stages in (1, 3)]
                looped.append(Schedule("triton", "loop", 1, step, warps, 1))
    for rows, step in ((32, 16), (64, 8), (8, 128), (4, 512)):  # inputs whose unit stride is an outer axis; short rows
        looped += [Schedule("triton", "loop", rows, step, 4, stages, online=True) for stages in (1, 3)]
    uncoalesced = any(spec.layout == "strided" for spec in loops.definition.inputs)
    return looped[::-1] + out if uncoalesced else out + looped if inner <= 16384 else looped + out


def _triton_tiles(loops: Loops, outer: int, inner: int) -> list[Schedule]:
    out: list[Schedule] = []
    aim = min(max(power_of_2(outer * inner // (8 * MULTIPROCESSORS)), 256), 2048)  # small tensors: smaller tiles, more programs
    if not loops.outer:
        for block in sorted((256, 512, 1024, 2048, 4096, 8192), key=lambda b: _distance(b, aim)):
            out += [Schedule("triton", "tile", 1, block, w) for w in _warps_for(block)[:3]]
        for many in (4, 8, 16):
            out += [Schedule("triton", "tile", 1, block, w, 2, many * MULTIPROCESSORS)
                    for block in (2048, 4096) for w in _warps_for(block)[:1] if inner > block * many * MULTIPROCESSORS]
        return out
    width = power_of_2(inner)
    for elements in sorted((256, 512, 1024, 2048, 4096, 8192), key=lambda e: _distance(e, aim))[:5]:
        for block in sorted({min(width, b) for b in (64, 128, 256, 512, 1024, 2048, 4096)}, reverse=True):
            rows = elements // block
            if 1 <= rows <= min(power_of_2(outer), 64) and (rows * block == elements):
                out += [Schedule("triton", "tile", rows, block, w) for w in _warps_for(elements)[:2]]
    for warps in _warps_for(2048)[:1]:
        for many in (4, 8):
            block = min(width, 1024)
            out += [Schedule("triton", "tile", max(2048 // block, 1), block, warps, 2, many * MULTIPROCESSORS)]
    strided = any(spec.layout == "strided" for spec in loops.definition.inputs)
    square = [Schedule("triton", "tile", 32, min(width, 32), 4), Schedule("triton", "tile", 64, min(width, 64), 8)]
    return square + out if strided else out or [Schedule("triton", "tile", 1, min(width, 1024), 4)]


# ---- CUDA C++ -------------------------------------------------------------------------------------------------------------


def _cuda(loops: Loops, outer: int, inner: int) -> list[Schedule]:
    """`rows`: a block of `warps` warps a row, or several rows a block with a warp each; `vector` elements a thread a read."""
    narrow = min((spec.itemsize for spec in loops.definition.inputs + loops.definition.outputs), default=4)
    widest = max((spec.itemsize for spec in loops.definition.inputs + loops.definition.outputs), default=4)
    constant, names = loops.size_factors(loops.inner)
    whole = inner if len(names) < 2 else constant  # what packs must divide
    vectors = [v for v in dict.fromkeys((16 // narrow, 16 // widest, 4, 2, 1)) if v <= inner and whole % v == 0]
    out: list[Schedule] = []
    if not loops.reduces:
        for vector in vectors[:3]:
            for warps in (8, 4, 16):
                out += [Schedule("cuda", "tile", 1, vector * warps * 32 * unroll, warps, vector=vector) for unroll in (1, 2, 4)]
        return out
    for vector in vectors[:3]:
        for warps in (8, 4, 16, 2, 1, 32):
            each = -(-inner // (warps * 32 * vector)) * vector  # elements a thread holds
            if each <= 64 and (each > vector or warps <= 4):
                out.append(Schedule("cuda", "rows", 4 if warps == 1 else 1, each * warps * 32, warps, vector=vector))
        for warps in (8, 16, 32):
            block = vector * warps * 32
            out += [Schedule("cuda", "loop", 1, block, warps, vector=vector, online=online) for online in (True, False)]
    rows = [s for s in out if s.form == "rows"]
    rows.sort(key=lambda s: (vectors.index(s.vector), _distance(s.block / (s.warps * 32), 16)))
    return rows + [s for s in out if s.form != "rows"]


# ---- C++ ------------------------------------------------------------------------------------------------------------------


def _cpp(loops: Loops, outer: int, inner: int) -> list[Schedule]:
    """`block`: inner elements a step (cache blocking); `vector`: elements computed together; `warps`: threads, 0 for all."""
    form = "rows" if loops.reduces else "tile"
    out = [Schedule("cpp", form, 1, block, warps, vector=vector)
           for vector in (16, 32, 8, 64) for warps in (0, 1) for block in (1024, 4096)]
    return out + ([Schedule("cpp", form, 1, 1024, 0, vector=16, online=True)] if online_softmax(loops) else [])
