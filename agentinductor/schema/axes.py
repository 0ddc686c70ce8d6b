"""Axes: the named sizes that a definition's tensors share, and the dtypes they hold."""

from dataclasses import dataclass

from ..errors import SchemaError

DTYPES = {  # name -> bytes an element
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1,
}
FLOATS = ("float64", "float32", "float16", "bfloat16")
HALVES = ("float16", "bfloat16")


@dataclass(frozen=True)
class Axis:
    """A named size. `value` is None for a `var` axis: then each workload gives it."""

    name: str
    value: int | None = None  # const axes only; elements
    reduced: bool = False  # some reduction of the body runs over this axis

    def __post_init__(self):
        if not self.name.isidentifier():
            raise SchemaError(f"axis name {self.name!r} is not an identifier")
        if self.value is not None and self.value < 1:
            raise SchemaError(f"axis {self.name} has size {self.value}; sizes are at least 1")

    @property
    def kind(self) -> str:
        return "var" if self.value is None else "const"

    def to_json(self) -> dict:
        out: dict = {"type": self.kind}
        if self.value is not None:
            out["value"] = self.value
        if self.reduced:
            out["reduced"] = True
        return out

    @classmethod
    def from_json(cls, name: str, raw: dict) -> "Axis":
        if raw.get("type") not in ("const", "var"):
            raise SchemaError(f"axis {name}: type must be const or var, not {raw.get('type')!r}")
        return cls(name, raw.get("value"), bool(raw.get("reduced", False)))


LAYOUTS = ("contiguous", "inner_contiguous", "strided")


@dataclass(frozen=True)
class TensorSpec:
    """One tensor at a definition's boundary.

    `shape` names its axes in domain order (outermost first); axes it does not vary over are left out.
    `layout`: "contiguous" (dense, row-major in that order), "inner_contiguous" (last axis has stride 1, the
    other strides are any), or "strided" (any non-negative strides, 0 included).
    """

    name: str
    shape: tuple[str, ...]
    dtype: str
    layout: str = "contiguous"

    def __post_init__(self):
        if self.dtype not in DTYPES:
            raise SchemaError(f"tensor {self.name}: dtype {self.dtype!r} is not one of {', '.join(DTYPES)}")
        if self.layout not in LAYOUTS:
            raise SchemaError(f"tensor {self.name}: layout {self.layout!r} is not one of {', '.join(LAYOUTS)}")

    @property
    def itemsize(self) -> int:
        return DTYPES[self.dtype]

    def to_json(self) -> dict:
        return {"shape": list(self.shape), "dtype": self.dtype, "layout": self.layout}

    @classmethod
    def from_json(cls, name: str, raw: dict) -> "TensorSpec":
        return cls(name, tuple(raw["shape"]), raw["dtype"], raw.get("layout", "contiguous"))
