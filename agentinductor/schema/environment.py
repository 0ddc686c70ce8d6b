"""Environment: the device and software stack on which evidence was gathered."""

from dataclasses import asdict, dataclass
from functools import cached_property

from .digest import digest


@dataclass(frozen=True)
class Environment:
    """What a trace depends on besides the definition and the solution. Another environment makes evidence stale."""

    device_type: str  # "cuda" or "cpu"
    device_name: str  # "NVIDIA H200", or the processor's model name
    capability: int  # major * 10 + minor; 0 on a CPU
    torch: str
    triton: str = ""
    driver: str = ""
    compiler: str = ""  # "gcc 12.2.0", for C++
    flags: tuple[str, ...] = ()  # switches that change rounding or speed, as "name=value"

    @cached_property
    def digest(self) -> str:
        return digest("environment", self.to_json())

    def to_json(self) -> dict:
        return {**asdict(self), "flags": list(self.flags)}

    @classmethod
    def from_json(cls, raw: dict) -> "Environment":
        return cls(**{**raw, "flags": tuple(raw["flags"])})
