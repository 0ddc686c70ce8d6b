"""What an agent is told: the contract, the sizes that matter, the device, and what was tried before. Nothing else.

A task holds no weights, no paths, no names of users, and none of the hidden cases that a candidate is judged on.
"""

from dataclasses import dataclass

from ..schema import Definition, Environment, Reason, Solution, Workload


@dataclass(frozen=True)
class Attempt:
    """An earlier candidate and its verdict."""

    solution: Solution
    reason: Reason | None  # None: it was accepted
    detail: str = ""
    ratio: float = 0.0  # baseline time over its time; 0 where it was not timed

    def to_json(self) -> dict:
        return {"solution": self.solution.digest, "language": self.solution.language,
                "schedule": self.solution.provenance.schedule, "verdict": self.reason.value if self.reason else "accepted",
                "detail": self.detail, "ratio": round(self.ratio, 4)}


@dataclass(frozen=True)
class Task:
    """One request for solutions.

    workloads   the first is the one to be fast on; all have to be right
    attempts    earlier candidates, accepted ones included
    budget      seconds that the agent may spend
    """

    definition: Definition
    workloads: tuple[Workload, ...]
    environment: Environment
    attempts: tuple[Attempt, ...] = ()
    budget: float = 60.0

    @property
    def workload(self) -> Workload:
        return self.workloads[0]

    def rejected(self) -> frozenset[str]:
        """Digests of solutions that need not be proposed again."""
        return frozenset(attempt.solution.digest for attempt in self.attempts)

    def to_json(self) -> dict:
        """The same text for the same task: no clock, no host, no path."""
        return {"definition": self.definition.to_json(), "workloads": [w.to_json() for w in self.workloads],
                "environment": self.environment.to_json(), "attempts": [a.to_json() for a in self.attempts],
                "budget": self.budget}
