"""Trace: one evaluation of a solution on a workload, in one environment."""

import math
from dataclasses import asdict, dataclass
from functools import cached_property

from .decision import Reason
from .digest import digest
from .environment import Environment
from .workload import Workload


@dataclass(frozen=True)
class Correctness:
    """Errors against float64 truth, worst over all cases."""

    cases: int
    max_abs_error: float
    max_rel_error: float  # ||out - truth|| / ||truth||
    baseline_rel_error: float  # the same for Inductor


@dataclass(frozen=True)
class Performance:
    """Interleaved timing of the candidate (A) against Inductor's kernel for the same definition (B)."""

    latency_us: float
    baseline_us: float
    ratio: float  # baseline_us / latency_us, median of paired rounds
    ratio_low: float  # bounds of the bootstrap confidence interval of `ratio`
    ratio_high: float
    peak_bytes: int  # outputs + scratch of the candidate
    baseline_peak_bytes: int
    floor_us: float  # bytes over the measured copy bandwidth
    baseline_mode: str = "default"  # the torch.compile mode that `baseline_us` is the best of


@dataclass(frozen=True)
class Trace:
    """Evidence. `reason` is None for a candidate that was correct; whether it may run is for accept.py to say."""

    definition: str
    solution: str
    workload: Workload
    environment: Environment
    policy: str  # version of the validation policy that judged it
    correctness: Correctness | None = None
    performance: Performance | None = None
    reason: Reason | None = None
    detail: str = ""
    created: str = ""  # ISO 8601, UTC

    @cached_property
    def digest(self) -> str:
        return digest("trace", self.to_json())

    def to_json(self) -> dict:
        return {
            "definition": self.definition, "solution": self.solution, "workload": self.workload.to_json(),
            "environment": self.environment.to_json(), "policy": self.policy,
            "correctness": _encode(asdict(self.correctness)) if self.correctness else None,
            "performance": _encode(asdict(self.performance)) if self.performance else None,
            "reason": self.reason.value if self.reason else None, "detail": self.detail, "created": self.created,
        }

    @classmethod
    def from_json(cls, raw: dict) -> "Trace":
        correctness, performance = raw["correctness"], raw["performance"]
        return cls(
            raw["definition"], raw["solution"], Workload.from_json(raw["workload"]),
            Environment.from_json(raw["environment"]), raw["policy"],
            Correctness(**_decode(correctness)) if correctness else None,
            Performance(**_decode(performance)) if performance else None,
            Reason(raw["reason"]) if raw["reason"] else None, raw["detail"], raw["created"],
        )


def _encode(measures: dict) -> dict:
    """JSON has no NaN and no infinity; a candidate's errors may well be either."""
    return {key: str(value) if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in measures.items()}


def _decode(raw: dict) -> dict:
    return {key: float(value) if value in ("nan", "inf", "-inf") else value for key, value in raw.items()}
