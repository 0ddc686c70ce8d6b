"""Truth, and how far from it a correct kernel may be.

Truth is the definition in float64. The yardstick is the program as Inductor's kernels hold it: floats in float32
(float64 where the definition has it), rounded once where they are stored. It is evaluated by PyTorch rather than compiled:
the same arithmetic, without a compiler run for each shape. Its error alone is a poor scale where it happens to be zero, so the
error of a kernel that sums in another order is bounded through the inputs: how much truth moves when each input moves by a
few units of rounding (times the square root of the reduction's length). An element may be off by

    ulps * ulp(truth) + factor * max(yardstick's error here and typically in this row, truth's sensitivity)

and each output also in norm. A dtype-wide cap holds unless the yardstick itself breaks it.
"""

import math
from dataclasses import dataclass

import torch

from ..codegen.reference import DTYPES, evaluate
from ..schema import Definition
from ..schema.axes import FLOATS

FACTOR = 8.0  # of the yardstick's error and of the sensitivity
ULPS = {"float64": 32.0, "float32": 16.0, "float16": 2.0, "bfloat16": 2.0}  # of the output's dtype
NORM_ULPS = {"float64": 16.0, "float32": 8.0, "float16": 1.0, "bfloat16": 1.0}
CAPS = {"float64": 1e-10, "float32": 1e-3, "float16": 1e-2, "bfloat16": 3e-2}  # relative error in norm
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
    compute = _compute_dtype(definition)
    held = evaluate(definition, inputs, compute)
    moved = [evaluate(definition, shifted, torch.float64) for shifted in _shifted(definition, inputs, seed)]
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


def _shifted(definition: Definition, inputs: list[torch.Tensor], seed: int) -> list[list[torch.Tensor]]:
    """The inputs (in float64) moved up, down and at random by a few units of rounding."""
    sizes = {name: size for spec, t in zip(definition.inputs, inputs, strict=True) for name, size in zip(spec.shape, t.shape, strict=True)}
    length = math.prod(max(sizes.get(axis.name, axis.value or 1), 1) for axis in definition.reduced_axes)
    unit = torch.finfo(torch.float32 if _compute_dtype(definition) else torch.float64).eps * max(4.0, math.sqrt(length))
    device = inputs[0].device if inputs else torch.device("cpu")
    generator = torch.Generator(device=device).manual_seed(seed)
    out = []
    for kind in ("up", "down", "random"):
        moved = []
        for tensor in inputs:
            if not tensor.is_floating_point():
                moved.append(tensor)
                continue
            factor = unit if kind == "up" else -unit
            step = factor if kind != "random" else unit * (
                2 * torch.rand(tensor.shape, generator=generator, device=device, dtype=torch.float64) - 1)
            wide = tensor.to(torch.float64)
            moved.append(wide + wide * step)
        out.append(moved)
    return out


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
    off = float(torch.where(good, yardstick.to(torch.float64) - exact, 0.0).norm())
    allowed = NORM_ULPS[dtype] * info.eps * size + FACTOR * float(sensitivity.norm()) + TINY * math.sqrt(max(exact.numel(), 1))
    cap = max(CAPS[dtype] * size, 2 * off) + TINY * math.sqrt(max(exact.numel(), 1))
    underflow = info.eps * info.tiny * math.sqrt(max(exact.numel(), 1))
    return Truth(exact, yardstick, bound, min(allowed, cap) + underflow, off / size if size else 0.0)
