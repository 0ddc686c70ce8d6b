"""Every element against truth; every special value against what PyTorch makes of it."""

import math
from dataclasses import astuple, dataclass

import torch

from ..schema import Definition, Reason
from .tolerance import Truth


@dataclass(frozen=True)
class Errors:
    """Of one case, worst over the outputs, over elements that are finite in truth and output."""

    max_abs: float = 0.0
    max_rel: float = 0.0  # in norm
    yardstick_rel: float = 0.0


@dataclass(frozen=True)
class Finding:
    """A case that is wrong, and how."""

    reason: Reason
    detail: str


def compare(definition: Definition, truths: list[Truth], outputs: list[torch.Tensor]) -> tuple[Errors, Finding | None]:
    """Errors over all outputs, and the first finding."""
    worst, finding = Errors(), None
    for spec, truth, output in zip(definition.outputs, truths, outputs, strict=True):
        if truth.bound is None:
            finding = finding or _exact(spec.name, truth, output)
            continue
        errors, found = _close(spec.name, truth, output)
        finding = finding or found
        worst = Errors(*map(max, astuple(worst), astuple(errors)))
    return worst, finding


def _exact(name: str, truth: Truth, output: torch.Tensor) -> Finding | None:
    assert truth.loose is not None  # outputs without a bound have it
    wrong = (output != truth.value) & ~truth.loose
    if not bool(wrong.any()):
        return None
    return Finding(Reason.WRONG_VALUES, _describe(name, wrong, output, truth.value, None))


def _classes(tensor: torch.Tensor) -> torch.Tensor:
    """0 finite, 1 NaN, 2 and 3 the infinities."""
    return torch.isnan(tensor).to(torch.uint8) + 2 * (tensor == math.inf) + 3 * (tensor == -math.inf)


def _close(name: str, truth: Truth, output: torch.Tensor) -> tuple[Errors, Finding | None]:
    assert truth.bound is not None
    rounded = truth.value.to(output.dtype)
    got, wanted, ideal = _classes(output), _classes(truth.yardstick), _classes(rounded)
    odd = (got != wanted) & (got != ideal)
    good = (got == 0) & torch.isfinite(truth.value)
    off = torch.where(good, (output.to(torch.float64) - truth.value).abs(), 0.0)
    size = float(torch.where(good, truth.value, 0.0).norm())
    norm = float(off.norm())
    floor = torch.finfo(output.dtype).tiny * math.sqrt(max(off.numel(), 1))
    errors = Errors(float(off.max()) if off.numel() else 0.0, norm / size if size > floor else 0.0, truth.yardstick_error)
    if bool(odd.any()):
        special = bool((wanted[odd] != 0).any())
        reason = Reason.SPECIAL_VALUES if special else Reason.WRONG_VALUES
        return errors, Finding(reason, _describe(name, odd, output, truth.yardstick, None))
    wrong = off > truth.bound
    if bool(wrong.any()):
        return errors, Finding(Reason.WRONG_VALUES, _describe(name, wrong, output, truth.value, truth.bound))
    if norm > truth.norm_bound:
        detail = f"{name}: error {norm:.3e} in norm, allowed {truth.norm_bound:.3e} (norm of truth {size:.3e})"
        return errors, Finding(Reason.WRONG_VALUES, detail)
    return errors, None


def _describe(name: str, wrong: torch.Tensor, got: torch.Tensor, wanted: torch.Tensor, bound: torch.Tensor | None) -> str:
    count = int(wrong.sum())
    flat = int(wrong.reshape(-1).to(torch.uint8).argmax())
    place, rest = [], flat
    for size in reversed(wrong.shape):
        place.append(rest % size)
        rest //= size
    index = "[" + ", ".join(map(str, reversed(place))) + "]"
    text = f"{name}{index} is {got.reshape(-1)[flat].item()}, truth is {wanted.reshape(-1)[flat].item()}"
    if bound is not None:
        text += f", allowed error {float(bound.reshape(-1)[flat]):.3e}"
    return f"{text}; {count} of {wrong.numel()} elements are wrong"


def null_controls(definition: Definition, inputs: list[torch.Tensor], truths: list[Truth]) -> dict[str, list[torch.Tensor]]:
    """Outputs that no honest kernel computes: zeros, a constant, an input. Each must fail somewhere, or nothing was checked.

    An input's copy is left out where it *is* the answer.
    """
    found: dict[str, list[torch.Tensor]] = {
        "zeros": [torch.zeros_like(t.yardstick) for t in truths],
        "the mean": [torch.full_like(t.yardstick, _mean(t.yardstick)) for t in truths],
    }
    for spec, tensor in zip(definition.inputs, inputs, strict=True):
        copies = [tensor.to(t.yardstick.dtype) if tensor.shape == t.yardstick.shape else t.yardstick for t in truths]
        if any(c is not t.yardstick and not torch.equal(c, t.yardstick) for c, t in zip(copies, truths, strict=True)):
            found[f"a copy of {spec.name}"] = copies
    return found


def _mean(tensor: torch.Tensor) -> float:
    values = tensor.to(torch.float64)
    finite = values[torch.isfinite(values)]
    return float(finite.mean()) if finite.numel() else 0.0
