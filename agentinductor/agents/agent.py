"""The interface of an agent."""

from collections.abc import Iterator
from typing import Protocol

from ..schema import Solution
from .request import Task


class Agent(Protocol):
    """`name` with `version` identifies what it would propose: a new version is asked again where an old one gave up."""

    name: str
    version: str

    def propose(self, task: Task) -> Iterator[Solution]:
        """Candidates for the task, best first. The caller may stop listening at any time."""
        ...
