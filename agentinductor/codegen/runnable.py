"""Runnable: a built solution, called as `runnable(inputs, outputs)`; and how it reads axis sizes off tensors."""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch

from ..schema import Definition


class Runnable(Protocol):
    """Destination passing: writes `outputs`, reads `inputs`, on the current stream of their device, without waiting."""

    def __call__(self, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> None: ...


def var_places(definition: Definition) -> list[tuple[str, int, int]]:
    """(axis, tensor, dim) for each var axis: a place among inputs then outputs where its size can be read."""
    specs = definition.inputs + definition.outputs
    places = []
    for axis in definition.var_axes:
        place = next(((i, spec.shape.index(axis.name)) for i, spec in enumerate(specs) if axis.name in spec.shape), None)
        if place is not None:
            places.append((axis.name, *place))
    return places


def sizes_reader(definition: Definition) -> Callable[[Sequence[torch.Tensor]], dict[str, int]]:
    """A function from all tensors (inputs then outputs) to every axis's size in elements."""
    places = var_places(definition)
    fixed = {axis.name: axis.value for axis in definition.axes if axis.value is not None}

    def read(tensors: Sequence[torch.Tensor]) -> dict[str, int]:
        return fixed | {name: tensors[i].size(dim) for name, i, dim in places}

    return read
