"""Guards: the conditions under which a solution claims to work. We enforce them; kernels need not."""

from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import SchemaError

KINDS = ("range", "divisible", "device", "capability")


@dataclass(frozen=True)
class Guard:
    """One condition.

    range       axis is within [low, high] elements
    divisible   axis is a multiple of `low`
    device      the device type ("cuda", "cpu") is `name`
    capability  compute capability (major * 10 + minor) is within [low, high]
    """

    kind: str
    name: str = ""  # axis, or device type
    low: int = 1
    high: int = 2**62

    def __post_init__(self):
        if self.kind not in KINDS:
            raise SchemaError(f"guard kind {self.kind!r} is not one of {', '.join(KINDS)}")

    def failure(self, axes: Mapping[str, int], device_type: str, capability: int) -> str | None:
        """None when the guard holds, else the reason in words. `axes` holds every axis's size."""
        if self.kind == "device":
            return None if device_type == self.name else f"needs device {self.name}, this is {device_type}"
        if self.kind == "capability":
            ok = self.low <= capability <= self.high
            return None if ok else f"needs compute capability {self.low} to {self.high}, this is {capability}"
        size = axes[self.name]
        if self.kind == "divisible":
            return None if size % self.low == 0 else f"axis {self.name} = {size} is not a multiple of {self.low}"
        return None if self.low <= size <= self.high else f"axis {self.name} = {size} is outside {self.low} to {self.high}"

    def to_json(self) -> dict:
        return {"kind": self.kind, "name": self.name, "low": self.low, "high": self.high}

    @classmethod
    def from_json(cls, raw: dict) -> "Guard":
        return cls(raw["kind"], raw.get("name", ""), raw.get("low", 1), raw.get("high", 2**62))
