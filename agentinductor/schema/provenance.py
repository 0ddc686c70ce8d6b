"""Provenance: who made a solution, how, from what, at what cost."""

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Provenance:
    """Facts that are recorded, never believed: they take no part in any decision."""

    agent: str  # kind of agent: "search", "llm", "command", "mcp", "human"
    author: str = ""
    model: str = ""  # language model, where there is one
    prompt_version: str = ""
    parent: str = ""  # digest of the solution this one was made from
    schedule: str = ""  # for `search`: the schedule, readable
    attempts: int = 0  # candidates tried before this one
    seconds: float = 0.0
    cost_usd: float = 0.0
    created: str = ""  # ISO 8601, UTC
    device: str = ""
    version: str = ""  # of agentinductor

    def to_json(self) -> dict:
        return asdict(self)

    @classmethod
    def from_json(cls, raw: dict) -> "Provenance":
        return cls(**{key: raw[key] for key in cls.__dataclass_fields__ if key in raw})
