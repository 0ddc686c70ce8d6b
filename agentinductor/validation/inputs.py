"""The secret cases: which sizes, which values, where in memory. All drawn from a seed that no candidate sees."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch

from ..codegen.reference import DTYPES
from ..schema import Definition, Solution, TensorSpec, Workload
from ..schema.axes import FLOATS

RAGGED = (1, 2, 3, 7, 13, 17, 31, 33, 63, 65, 127, 129, 251, 257, 509, 1021, 1023, 1025)
PAD = 3  # elements between the rows of a padded layout


@dataclass(frozen=True)
class Placement:
    """How a tensor lies in its storage: strides in elements, and by how many elements it misses the alignment."""

    strides: tuple[int, ...]
    shift: int = 0


@dataclass(frozen=True)
class Case:
    """One set of inputs. `inputs` are contiguous values; `placements` say how the candidate gets inputs, then outputs."""

    name: str
    sizes: dict[str, int]
    inputs: list[torch.Tensor] = field(compare=False)
    placements: tuple[Placement, ...]


def full_sizes(definition: Definition, solution: Solution, workload: Workload, elements: int) -> dict[str, int]:
    """Every axis's size: the workload's own, with the largest var axes cut until no tensor has more than `elements`."""
    sizes = workload.all_sizes(definition)
    var = [axis.name for axis in definition.var_axes]
    while var and _largest(definition, sizes) > elements:
        name = max(var, key=lambda axis: sizes[axis])
        if sizes[name] <= 1:
            break
        smaller = _admitted(definition, solution, {**sizes, name: max(1, sizes[name] // 2)}, name)
        if smaller is None or smaller >= sizes[name]:
            var.remove(name)
        else:
            sizes[name] = smaller
    return sizes


def _largest(definition: Definition, sizes: dict[str, int]) -> int:
    return max(_count(definition.shape(spec, sizes)) for spec in definition.inputs + definition.outputs)


def _count(shape: Sequence[int]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def admits(solution: Solution, sizes: dict[str, int]) -> bool:
    """Do the solution's guards on axes allow these sizes?"""
    return all(g.failure(sizes, "", 0) is None for g in solution.guards if g.kind in ("range", "divisible"))


def _admitted(definition: Definition, solution: Solution, sizes: dict[str, int], axis: str) -> int | None:
    """The admitted size of `axis` nearest at or above the wanted one, or None."""
    step = 1
    for guard in solution.guards:
        if guard.kind == "divisible" and guard.name == axis:
            step *= guard.low // _gcd(step, guard.low)
    low = max([g.low for g in solution.guards if g.kind == "range" and g.name == axis], default=0)
    wanted = max(sizes[axis], low)
    wanted = -(-wanted // step) * step
    return wanted if admits(solution, {**sizes, axis: wanted}) else None


def _gcd(a: int, b: int) -> int:
    while b:
        a, b = b, a % b
    return a


def ragged_sizes(definition: Definition, solution: Solution, base: dict[str, int], elements: int) -> list[dict[str, int]]:
    """Sizes around tiles, primes, one and zero, one var axis at a time and then all together, within guards and `elements`."""
    found: list[dict[str, int]] = []

    def add(sizes: dict[str, int]) -> None:
        small = _largest(definition, sizes) <= 4 * elements
        if small and admits(solution, sizes) and sizes not in found and sizes != base:
            found.append(sizes)

    for axis in definition.var_axes:
        lean = {other.name: min(base[other.name], 3) for other in definition.var_axes if other.name != axis.name}
        for size in RAGGED:
            wanted = {**base, **lean, axis.name: size}
            admitted = _admitted(definition, solution, wanted, axis.name)
            if admitted is not None:
                add({**wanted, axis.name: admitted})
        if not axis.reduced:
            add({**base, axis.name: 0})
    for index in range(3):
        add({**base, **{axis.name: (5, 17, 37)[(index + k) % 3] for k, axis in enumerate(definition.var_axes)}})
    return found


# ---- values ---------------------------------------------------------------------------------------------------------------

Draw = Callable[[tuple[int, ...], torch.Generator], torch.Tensor]


def _normal(shape, g):
    return torch.randn(shape, generator=g)


def _rows(shape, g):
    """Each row of another scale, from 1e-4 to 1e4."""
    scale = 10 ** (torch.rand((*shape[:-1], 1), generator=g) * 8 - 4) if shape else 1.0
    return _normal(shape, g) * scale


def _heavy(shape, g):
    return _normal(shape, g) / (torch.rand(shape, generator=g) + 1e-2) ** 1.5


def _constant(shape, g):
    return torch.full(shape, float(torch.rand((), generator=g)) * 4 - 2)


def _constant_rows(shape, g):
    row = torch.randn((*shape[:-1], 1), generator=g) if shape else torch.randn((), generator=g)
    return row.expand(shape).clone()


def _sorted(shape, g):
    return _normal(shape, g).flatten().sort().values.reshape(shape)


def _sparse(shape, g):
    return _normal(shape, g) * (torch.rand(shape, generator=g) < 0.02)


def _ties(shape, g):
    return torch.randint(-2, 3, shape, generator=g).float()


def _denormal(shape, g):
    return _normal(shape, g) * 1e-39


def _logits(shape, g):
    """Large and masked, whole rows too."""
    x = _normal(shape, g) * 60
    x = x.masked_fill(torch.rand(shape, generator=g) < 0.3, float("-inf"))
    return x.masked_fill(torch.rand((*shape[:-1], 1), generator=g) < 0.1, float("-inf")) if shape else x


def _special(shape, g):
    """NaN, infinities and negative zero here and there; most rows stay clean of any one of them."""
    x = _normal(shape, g)
    chance = torch.rand(shape, generator=g)
    rate = min(0.02, 2.0 / max(shape[-1], 1)) if shape else 0.2
    for index, value in enumerate((float("nan"), float("inf"), float("-inf"), -0.0)):
        kind = torch.rand((*shape[:-1], 1), generator=g) < 0.4 if shape else torch.ones(())
        x = torch.where((chance >= index * rate / 4) & (chance < (index + 1) * rate / 4) & (kind != 0), torch.tensor(value), x)
    return x


def _cancel(shape, g):
    """Large values and their negatives beside small ones."""
    big = _normal(shape, g) * 300
    if shape and shape[-1] > 1:
        half = shape[-1] // 2
        big[..., half:2 * half] = -big[..., :half]
    return big + _normal(shape, g) * 0.1


CLASSES: dict[str, Draw] = {
    "normal": _normal,
    "large": lambda s, g: _normal(s, g) * 1e3,
    "small": lambda s, g: _normal(s, g) * 1e-3,
    "shifted": lambda s, g: _normal(s, g) + 5,
    "negative": lambda s, g: -_normal(s, g).abs() - 0.5,
    "mixed rows": _rows,
    "heavy tail": _heavy,
    "constant": _constant,
    "constant rows": _constant_rows,
    "sorted": _sorted,
    "mostly zero": _sparse,
    "zero": lambda s, g: torch.zeros(s),
    "ties": _ties,
    "denormal": _denormal,
    "cancelling": _cancel,
    "logits": _logits,
    "special": _special,
}
RANGES = {"int64": 1 << 30, "int32": 1 << 20, "int16": 1 << 12, "int8": 120, "uint8": 250}


def draw(definition: Definition, sizes: dict[str, int], kind: str, generator: torch.Generator) -> list[torch.Tensor]:
    """Inputs of class `kind`: the tensors of most axes take it, the others (weights, biases) are plain random numbers."""
    rank = max((len(spec.shape) for spec in definition.inputs), default=0)
    return [_draw_one(spec, definition.shape(spec, sizes), kind if len(spec.shape) == rank else "shifted" if index % 2 else "normal",
                      generator) for index, spec in enumerate(definition.inputs)]


def _draw_one(spec: TensorSpec, shape: tuple[int, ...], kind: str, generator: torch.Generator) -> torch.Tensor:
    if spec.dtype in FLOATS:
        return CLASSES[kind](shape, generator).to(DTYPES[spec.dtype])
    if spec.dtype == "bool":
        rate = {"zero": 0.0, "constant": 1.0, "mostly zero": 0.02}.get(kind, 0.5)
        return torch.rand(shape, generator=generator) < rate
    high = RANGES[spec.dtype] if kind in ("large", "heavy tail") else 1 if kind == "zero" else 50
    low = 0 if spec.dtype == "uint8" else -high
    return torch.randint(low, high, shape, generator=generator).to(DTYPES[spec.dtype])


def perturbed(inputs: list[torch.Tensor], index: int, where: float) -> list[torch.Tensor]:
    """Copies of `inputs` with one element of one tensor, `where` (0 to 1) along it, moved far enough to show."""
    out = [t.clone() for t in inputs]
    flat = out[index].view(-1)
    if flat.numel():
        place = min(int(where * flat.numel()), flat.numel() - 1)
        value = flat[place]
        flat[place] = ~value if value.dtype == torch.bool else value + 7
    return out


# ---- places ---------------------------------------------------------------------------------------------------------------


def dense(shape: Sequence[int], order: Sequence[int] | None = None, pad: int = 0) -> tuple[int, ...]:
    """Strides of a dense layout whose dims lie in `order` (outermost first); `pad` elements follow each innermost row."""
    order = list(range(len(shape))) if order is None else list(order)
    strides, step = [0] * len(shape), 1
    for position, dim in enumerate(reversed(order)):
        strides[dim] = step
        step *= max(shape[dim], 1)
        if position == 0:
            step += pad
    return tuple(strides)


def place(definition: Definition, sizes: dict[str, int], workload: Workload, variant: int) -> tuple[Placement, ...]:
    """Where inputs and outputs lie. Variant 0 is the workload's own pattern; odd ones are misaligned by one element."""
    given = dict(workload.strides)
    out = []
    for index, spec in enumerate(definition.inputs + definition.outputs):
        shape = definition.shape(spec, sizes)
        is_input = index < len(definition.inputs)
        strides = _strides(spec, shape, given.get(spec.name), variant + index if variant else 0, is_input)
        out.append(Placement(strides, variant % 2 if is_input else 0))
    return tuple(out)


def _strides(spec: TensorSpec, shape: tuple[int, ...], given: tuple[int, ...] | None, variant: int, may_expand: bool) -> tuple[int, ...]:
    rank = len(shape)
    if spec.layout == "contiguous" or rank == 0:
        return dense(shape)
    if variant == 0 or not may_expand:
        return _like(shape, given) if given is not None else dense(shape)
    outer = list(range(rank - 1))
    if spec.layout == "inner_contiguous":
        kinds = [dense(shape, pad=PAD), dense(shape, [*outer[::-1], rank - 1]), _expanded(dense(shape), 0) if rank > 1 else dense(shape)]
    else:
        kinds = [dense(shape, range(rank - 1, -1, -1)), _expanded(dense(shape), rank - 1), dense(shape, pad=PAD),
                 _expanded(dense(shape), 0), tuple(2 * s for s in dense(shape))]
    return kinds[variant % len(kinds)]


def _like(shape: tuple[int, ...], given: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of the pattern of `given` (its order of dims, and which are expanded) for another shape."""
    order = sorted(range(len(shape)), key=lambda d: -given[d])
    own = dense(shape, [d for d in order if given[d] == 0] + [d for d in order if given[d] != 0])
    pattern = tuple(0 if given[d] == 0 else own[d] for d in range(len(shape)))
    fits = all(given[d] >= own[d] for d in range(len(shape)) if given[d])
    return given if fits else pattern


def _expanded(strides: tuple[int, ...], dim: int) -> tuple[int, ...]:
    return tuple(0 if d == dim else s for d, s in enumerate(strides))


def settle(case: Case) -> Case:
    """Make the values agree with expanded dims: what lies at one address is one value."""
    inputs = []
    for tensor, placement in zip(case.inputs, case.placements, strict=False):
        for dim, stride in enumerate(placement.strides):
            if stride == 0 and tensor.shape[dim] > 1:
                tensor = tensor.narrow(dim, 0, 1).expand(tensor.shape)
        inputs.append(tensor.contiguous())
    return Case(case.name, case.sizes, inputs, case.placements)


# ---- the list -------------------------------------------------------------------------------------------------------------


def cases(definition: Definition, solution: Solution, workload: Workload, seed: int, elements: int, full_elements: int) -> Iterator[Case]:
    """Every case, one at a time: the workload's own sizes first, then each class of values, then ragged sizes."""
    generator = torch.Generator().manual_seed(seed)
    full = full_sizes(definition, solution, workload, full_elements)
    small = full_sizes(definition, solution, workload, elements)
    count = 0

    def case(name: str, sizes: dict[str, int], kind: str, variant: int) -> Case:
        return settle(Case(name, sizes, draw(definition, sizes, kind, generator), place(definition, sizes, workload, variant)))

    yield case("workload, normal", full, "normal", 0)
    if full != small:
        yield case("workload, mixed rows", full, "mixed rows", 0)
        yield case("workload, special", full, "special", 1)
    for count, kind in enumerate(CLASSES):
        yield case(kind, small, kind, count)
    kinds = list(CLASSES)
    for sizes in ragged_sizes(definition, solution, small, elements):
        count += 1
        pick = int(torch.randint(0, len(kinds), (), generator=generator))
        named = ", ".join(f"{axis.name}={sizes[axis.name]}" for axis in definition.var_axes)
        yield case(f"{named}, {kinds[pick]}", sizes, kinds[pick], count)
