"""The body of a definition: a loop program over named axes.

Every value varies over a set of axes; there are no views. A node is one of

    pointwise   op in POINTWISE; operands broadcast by axis name
    reduction   op in REDUCTIONS over `attrs["axes"]`; the result no longer varies over them
    slice       attrs: axis (of the operand), to (axis of the result), start, step:
                result[to=i] = operand[axis = start + i * step]
    cat         attrs: axis (of the result), parts: [axis of each operand]:
                the operands laid end to end along `axis`
    iota        attrs: axis, start, step: start + index * step along the axis (int64)

Operands are names of inputs or earlier nodes, or Python numbers and booleans (scalars).

Numerical meaning. `dtype` is the value's type in eager PyTorch. As Inductor does, kernels hold float16 and
bfloat16 intermediates in float32; a value is rounded to its type where it is stored. Truth is the same
program with every float in float64.
"""

from dataclasses import dataclass
from typing import Any, Union

from ..errors import SchemaError
from .axes import DTYPES

Operand = Union[str, int, float, bool]

POINTWISE = {  # op -> number of operands
    "add": 2, "sub": 2, "mul": 2, "div": 2, "fmod": 2, "remainder": 2, "floordiv": 2, "truncdiv": 2, "pow": 2,
    "maximum": 2, "minimum": 2, "atan2": 2,
    "neg": 1, "abs": 1, "exp": 1, "exp2": 1, "expm1": 1, "log": 1, "log2": 1, "log10": 1, "log1p": 1, "sqrt": 1, "rsqrt": 1,
    "reciprocal": 1, "sigmoid": 1, "tanh": 1, "erf": 1, "sin": 1, "cos": 1, "tan": 1, "atan": 1, "sinh": 1, "cosh": 1,
    "asin": 1, "acos": 1, "asinh": 1, "acosh": 1, "atanh": 1,
    "relu": 1, "sign": 1, "floor": 1, "ceil": 1, "round": 1, "trunc": 1, "isnan": 1, "isinf": 1, "copysign": 2,
    "eq": 2, "ne": 2, "lt": 2, "le": 2, "gt": 2, "ge": 2,
    "logical_and": 2, "logical_or": 2, "logical_xor": 2, "logical_not": 1,
    "bitwise_and": 2, "bitwise_or": 2, "bitwise_xor": 2, "bitwise_not": 1,
    "where": 3, "cast": 1,
}
# Total over scalars too: a `cast` of a number is how a constant tensor is spelled.
REDUCTIONS = ("sum", "mean", "amax", "amin", "prod", "any", "all", "var")  # var: attrs["correction"]
STRUCTURAL = ("slice", "cat", "iota")
COMMUTATIVE = frozenset(
    ("add", "mul", "maximum", "minimum", "eq", "ne", "logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or",
     "bitwise_xor")
)


@dataclass(frozen=True)
class Node:
    """One value of the body: `name = op(*args, **attrs)`, of `dtype`, varying over `axes` (domain order)."""

    name: str
    op: str
    args: tuple[Operand, ...]
    dtype: str
    axes: tuple[str, ...]
    attrs: tuple[tuple[str, Any], ...] = ()  # sorted by key; values are str, int, or tuples of str

    def __post_init__(self):
        if self.op in POINTWISE:
            if len(self.args) != POINTWISE[self.op]:
                raise SchemaError(f"node {self.name}: {self.op} takes {POINTWISE[self.op]} operands, not {len(self.args)}")
        elif self.op not in REDUCTIONS and self.op not in STRUCTURAL:
            raise SchemaError(f"node {self.name}: unknown op {self.op!r}")
        if self.dtype not in DTYPES:
            raise SchemaError(f"node {self.name}: dtype {self.dtype!r}")

    def attr(self, key: str) -> Any:
        return dict(self.attrs)[key]

    @property
    def operands(self) -> tuple[str, ...]:
        """Names of the values this node reads."""
        return tuple(a for a in self.args if isinstance(a, str))

    def to_json(self) -> dict:
        attrs = {k: list(v) if isinstance(v, tuple) else v for k, v in self.attrs}
        return {"name": self.name, "op": self.op, "args": [_encode(a) for a in self.args], "dtype": self.dtype,
                "axes": list(self.axes), "attrs": attrs}

    @classmethod
    def from_json(cls, raw: dict) -> "Node":
        attrs = tuple(sorted((k, tuple(v) if isinstance(v, list) else v) for k, v in raw["attrs"].items()))
        return cls(raw["name"], raw["op"], tuple(_decode(a) for a in raw["args"]), raw["dtype"], tuple(raw["axes"]), attrs)


def _encode(operand: Operand) -> Any:
    """Floats travel as hexadecimal text, so that -inf, nan and the last bit survive JSON."""
    return {"float": operand.hex()} if isinstance(operand, float) else operand


def _decode(raw: Any) -> Operand:
    return float.fromhex(raw["float"]) if isinstance(raw, dict) else raw
