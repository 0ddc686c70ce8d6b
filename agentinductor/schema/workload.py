"""Workload: concrete sizes for a definition's var axes, and the strides of its strided inputs."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from .definition import Definition
from .digest import digest


@dataclass(frozen=True)
class Workload:
    """`sizes`: var axis -> elements. `strides`: strided input or output name -> strides in elements (domain order).

    Tensors without an entry in `strides` are contiguous.
    """

    sizes: tuple[tuple[str, int], ...] = ()
    strides: tuple[tuple[str, tuple[int, ...]], ...] = ()

    @classmethod
    def of(cls, sizes: Mapping[str, int], strides: Mapping[str, tuple[int, ...]] | None = None) -> "Workload":
        return cls(tuple(sorted(sizes.items())), tuple(sorted((strides or {}).items())))

    @cached_property
    def digest(self) -> str:
        return digest("workload", self.to_json())

    def bucket(self) -> str:
        """Workloads of one bucket share a tuning: each size between two powers of two, and the same strided tensors."""
        parts = [f"{name}<={1 << max(size - 1, 0).bit_length()}" for name, size in self.sizes]
        return ",".join(parts + [f"{name}~" for name, _ in self.strides]) or "all"

    def all_sizes(self, definition: Definition) -> dict[str, int]:
        return definition.sizes(dict(self.sizes))

    def to_json(self) -> dict:
        return {"sizes": dict(self.sizes), "strides": {name: list(strides) for name, strides in self.strides}}

    @classmethod
    def from_json(cls, raw: dict) -> "Workload":
        return cls.of(raw["sizes"], {name: tuple(s) for name, s in raw["strides"].items()})
