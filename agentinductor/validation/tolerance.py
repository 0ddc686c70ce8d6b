"""Truth, and how far from it a correct kernel may be.

Truth is the definition in float64. The yardstick is the program as Inductor's kernels hold it: floats in float32
(float64 where the definition has it), rounded once where they are stored. It is evaluated by PyTorch rather than compiled:
the same arithmetic, without a compiler run for each shape. Its error alone is a poor scale where it happens to be zero, so truth's
own sensitivity counts too: how far it moves when the result of every inexact operation moves by a few units of rounding (for a
sum, times the square root of its length, since it may be taken in any order). An element may be off by

    ulps * ulp(truth) + factor * max(yardstick's error here and typically in this row, truth's sensitivity)

and each output also in norm. A dtype-wide cap holds unless the yardstick
itself breaks it, or truth is that sensitive.
"""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from ..codegen.reference import DTYPES, evaluate, input_sizes
from ..schema import Definition, Node
from ..schema.axes import FLOATS

FACTOR = 8.0  # of the yardstick's error and of the sensitivity
ULPS = {"float64": 32.0, "float32": 16.0, "float16": 2.0, "bfloat16": 2.0}  # of the output's dtype
NORM_ULPS = {"float64": 16.0, "float32": 8.0, "float16": 1.0, "bfloat16": 1.0}
CAPS = {"float64": 1e-10, "float32": 1e-3, "float16": 1e-2, "bfloat16": 3e-2}  # relative error in norm
UNITS = 2.0  # of rounding, by which the result of an inexact operation moves
EXACT = frozenset((  # operations that are exact in float32, or only move data
    "amax", "amin", "neg", "abs", "relu", "sign", "floor", "ceil", "round", "trunc", "maximum", "minimum", "where", "cast", "copysign",
    "slice", "cat", "iota"))
TINY = 4 * torch.finfo(torch.float32).tiny  # below it a kernel may flush to zero


@dataclass(frozen=True)
class Truth:
    """One output. Float outputs have `bound`; for the others `loose` marks elements that rounding may flip."""

    value: torch.Tensor  # float64, or the exact dtype
    yardstick: torch.Tensor  # in the output's dtype
    bound: torch.Tensor | None = None  # float64, absolute
    norm_bound: float = math.inf  # of ||out - truth|| over the elements that are finite in both
    yardstick_error: float = 0.0  # ||yardstick - truth|| / ||truth||
    loose: torch.Tensor | None = None


def truths(definition: Definition, inputs: list[torch.Tensor], seed: int) -> list[Truth]:
    """Truth and bounds of every output for `inputs`."""
    exact = evaluate(definition, inputs, torch.float64)
    held = evaluate(definition, inputs, _compute_dtype(definition))
    sizes = input_sizes(definition, inputs)
    generator = random.Random(seed)
    moved = [evaluate(_shifted(definition, sizes, signs), inputs, torch.float64)
             for signs in (lambda: 1, lambda: -1, lambda: generator.choice((-1, 1)), lambda: generator.choice((-1, 1)))]
    pooled = bool(definition.reduced_axes)
    found = []
    for index, spec in enumerate(definition.outputs):
        others = [held[index], *[m[index] for m in moved]]
        if spec.dtype in FLOATS:
            found.append(_float_truth(spec.dtype, exact[index], others, pooled))
        else:
            loose = torch.zeros_like(exact[index], dtype=torch.bool)
            for other in others:
                loose |= other != exact[index]
            found.append(Truth(exact[index], held[index], loose=loose))
    return found


def _compute_dtype(definition: Definition) -> torch.dtype | None:
    held = {spec.dtype for spec in definition.inputs + definition.outputs} | {node.dtype for node in definition.body}
    return None if "float64" in held else torch.float32


def _shifted(definition: Definition, sizes: dict[str, int], sign: Callable[[], int]) -> Definition:
    """The definition with the result of every inexact operation multiplied by one plus or minus a few units of rounding."""
    unit = UNITS * torch.finfo(torch.float32 if _compute_dtype(definition) else torch.float64).eps
    names: dict[str, str] = {}
    body = []
    for node in definition.body:
        body.append(replace(node, args=tuple(names.get(a, a) if isinstance(a, str) else a for a in node.args)))
        if node.dtype in FLOATS and node.op not in EXACT:
            length = math.prod(sizes[axis] for axis in dict(node.attrs).get("axes", ()))
            factor = 1.0 + sign() * unit * math.sqrt(max(length, 1))
            names[node.name] = f"{node.name}_moved"
            body.append(Node(names[node.name], "mul", (node.name, factor), node.dtype, node.axes))
        if node.op == "var":
            names[node.name] = f"{node.name}_centred"
            body += _off_centre(node, body[-2], body[-1].name, unit)
    return replace(definition, body=tuple(body), results=tuple(names.get(r, r) for r in definition.results))


def _off_centre(node: Node, read: Node, moved: str, unit: float) -> list[Node]:
    """A variance is taken around a rounded mean: its error has the mean's, squared."""
    mean, off, square = (f"{node.name}_{part}" for part in ("mean", "off", "square"))
    axes = tuple(pair for pair in node.attrs if pair[0] == "axes")
    return [Node(mean, "mean", read.args, node.dtype, node.axes, axes),
            Node(off, "mul", (mean, unit), node.dtype, node.axes),
            Node(square, "mul", (off, off), node.dtype, node.axes),
            Node(f"{node.name}_centred", "add", (moved, square), node.dtype, node.axes)]


def _float_truth(dtype: str, exact: torch.Tensor, others: list[torch.Tensor], pooled: bool) -> Truth:
    info = torch.finfo(DTYPES[dtype])
    yardstick = others[0].to(DTYPES[dtype])
    sensitivity = torch.zeros_like(exact)
    for other in others:
        off = (other.to(torch.float64) - exact).abs()
        sensitivity = torch.maximum(sensitivity, torch.where(torch.isfinite(off), off, 0.0))
    if pooled and exact.numel() and exact.dim():
        own = (others[0].to(torch.float64) - exact).square()
        typical = torch.where(torch.isfinite(own), own, 0.0).mean(-1, keepdim=True).sqrt()
        sensitivity = torch.maximum(sensitivity, typical)
    magnitude = torch.where(torch.isfinite(exact), exact.abs(), 0.0)
    bound = ULPS[dtype] * info.eps * torch.clamp(magnitude, min=info.tiny) + FACTOR * sensitivity + TINY
    good = torch.isfinite(exact) & torch.isfinite(yardstick)
    size = float(torch.where(good, exact, 0.0).norm())
    error = float(torch.where(good, yardstick.to(torch.float64) - exact, 0.0).norm())
    allowed = NORM_ULPS[dtype] * info.eps * size + FACTOR * float(sensitivity.norm()) + TINY * math.sqrt(max(exact.numel(), 1))
    cap = max(CAPS[dtype] * size, 2 * error, FACTOR * float(sensitivity.norm())) + TINY * math.sqrt(max(exact.numel(), 1))
    smallest = info.tiny * math.sqrt(max(exact.numel(), 1))  # below it the format itself loses digits
    underflow = info.eps * info.tiny * math.sqrt(max(exact.numel(), 1))
    return Truth(exact, yardstick, bound, min(allowed, cap) + underflow, error / size if size > smallest else 0.0)
