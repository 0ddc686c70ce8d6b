"""Plan: which regions of one whole model use which solution, after the end-to-end gate; and requests."""

from dataclasses import dataclass

from .workload import Workload


@dataclass(frozen=True)
class Request:
    """A region that a compile met and no solution served: work for an agent."""

    definition: str
    workload: Workload
    device_type: str
    occurrences: int = 1
    origin: str = ""  # the model's class name; never a path

    def to_json(self) -> dict:
        return {"definition": self.definition, "workload": self.workload.to_json(), "device_type": self.device_type,
                "occurrences": self.occurrences, "origin": self.origin}

    @classmethod
    def from_json(cls, raw: dict) -> "Request":
        return cls(raw["definition"], Workload.from_json(raw["workload"]), raw["device_type"], raw["occurrences"], raw["origin"])


@dataclass(frozen=True)
class Plan:
    """The gate's word on one model.

    key         digest of (sorted region digests with their counts, mode, environment)
    solutions   definition digest -> solution digest that this model runs; a definition left out stays Inductor's
    accepted    the whole model was faster (or equal), no heavier and as close to truth as Inductor's
    evidence    the four-way table that decided, as JSON
    """

    key: str
    solutions: tuple[tuple[str, str], ...]
    accepted: bool
    evidence: dict
    reason: str = ""

    def to_json(self) -> dict:
        return {"key": self.key, "solutions": dict(self.solutions), "accepted": self.accepted, "evidence": self.evidence,
                "reason": self.reason}

    @classmethod
    def from_json(cls, raw: dict) -> "Plan":
        return cls(raw["key"], tuple(sorted(raw["solutions"].items())), raw["accepted"], raw["evidence"], raw["reason"])
