"""Definition: the contract of a region, canonical and shape-generic. Its digest is the lookup key."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from ..errors import SchemaError
from .axes import Axis, TensorSpec
from .body import Node
from .digest import SCHEMA_VERSION, digest


@dataclass(frozen=True)
class Definition:
    """A loop program with typed inputs and outputs.

    axes      domain order: spatial axes outermost first, then the reduced ones
    inputs    in canonical order; names are x0, x1, ...
    body      in topological order; names are t0, t1, ...
    outputs   specs whose names are y0, y1, ...; `results[i]` names the body value (or input) that y_i stores.
              An output's shape is a subset of `axes` in domain order; its layout is what the kernel must write.
    kind      what a person calls it ("rms_norm", "add_layer_norm", "pointwise", ...): not part of the digest
    """

    axes: tuple[Axis, ...]
    inputs: tuple[TensorSpec, ...]
    body: tuple[Node, ...]
    outputs: tuple[TensorSpec, ...]
    results: tuple[str, ...]
    kind: str = "pointwise"

    def __post_init__(self):
        known = {axis.name for axis in self.axes}
        values = {spec.name: spec.shape for spec in self.inputs}
        for spec in self.inputs + self.outputs:
            if not set(spec.shape) <= known:
                raise SchemaError(f"tensor {spec.name}: shape {spec.shape} names an axis that is not declared")
        for node in self.body:
            missing = [name for name in node.operands if name not in values]
            if missing:
                raise SchemaError(f"node {node.name} reads {missing[0]}, which is not defined before it")
            if node.name in values or not set(node.axes) <= known:
                raise SchemaError(f"node {node.name}: name taken, or axes {node.axes} not declared")
            values[node.name] = node.axes
        if len(self.results) != len(self.outputs) or not self.outputs:
            raise SchemaError("a definition needs outputs, and one result for each")
        for result in self.results:
            if result not in values:
                raise SchemaError(f"result {result} is not defined")

    def axis(self, name: str) -> Axis:
        return next(axis for axis in self.axes if axis.name == name)

    @property
    def var_axes(self) -> tuple[Axis, ...]:
        return tuple(axis for axis in self.axes if axis.value is None)

    @property
    def reduced_axes(self) -> tuple[Axis, ...]:
        return tuple(axis for axis in self.axes if axis.reduced)

    @property
    def spatial_axes(self) -> tuple[Axis, ...]:
        return tuple(axis for axis in self.axes if not axis.reduced)

    @cached_property
    def nodes(self) -> dict[str, Node]:
        return {node.name: node for node in self.body}

    @cached_property
    def digest(self) -> str:
        """The lookup key: everything but `kind`."""
        content = self.to_json()
        del content["kind"]
        return digest("definition", content)

    @property
    def name(self) -> str:
        """`<kind>_<first 8 characters of the digest>`: for people."""
        return f"{self.kind}_{self.digest[:8]}"

    def sizes(self, var_sizes: Mapping[str, int]) -> dict[str, int]:
        """Every axis's size in elements, given the var axes'. Raises SchemaError when one is missing."""
        out = {}
        for axis in self.axes:
            if axis.value is None and axis.name not in var_sizes:
                raise SchemaError(f"workload lacks a size for axis {axis.name}")
            out[axis.name] = var_sizes[axis.name] if axis.value is None else axis.value
        return out

    def shape(self, spec: TensorSpec, sizes: Mapping[str, int]) -> tuple[int, ...]:
        return tuple(sizes[name] for name in spec.shape)

    def bytes_moved(self, sizes: Mapping[str, int]) -> int:
        """The fewest bytes a kernel must move: each input read once, each output written once."""
        total = 0
        for spec in self.inputs + self.outputs:
            count = 1
            for size in self.shape(spec, sizes):
                count *= size
            total += count * spec.itemsize
        return total

    def to_json(self) -> dict:
        return {
            "schema_version": SCHEMA_VERSION,
            "kind": self.kind,
            "axes": [{"name": axis.name, **axis.to_json()} for axis in self.axes],
            "inputs": [{"name": s.name, **s.to_json()} for s in self.inputs],
            "outputs": [{"name": s.name, **s.to_json()} for s in self.outputs],
            "body": [node.to_json() for node in self.body],
            "results": list(self.results),
        }

    @classmethod
    def from_json(cls, raw: dict) -> "Definition":
        if raw.get("schema_version") != SCHEMA_VERSION:
            raise SchemaError(f"definition of schema version {raw.get('schema_version')!r}; this package reads {SCHEMA_VERSION}")
        try:
            return cls(
                tuple(Axis.from_json(a["name"], a) for a in raw["axes"]),
                tuple(TensorSpec.from_json(s["name"], s) for s in raw["inputs"]),
                tuple(Node.from_json(n) for n in raw["body"]),
                tuple(TensorSpec.from_json(s["name"], s) for s in raw["outputs"]),
                tuple(raw["results"]),
                raw.get("kind", "pointwise"),
            )
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise SchemaError(f"malformed definition: {error!r}") from error
