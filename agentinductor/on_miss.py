"""On-miss policies: what happens when a compile meets a region that no kernel may serve.

    ignore    nothing
    request   leave a request in the kernel cache (the default)
    qualify   try the stored solutions that have no evidence here, within the budget
    generate  qualify, then let the search agent write one, within the budget

A policy is a resolver around the cache's own: the pass sees no difference.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from . import synthesize
from .errors import AgentInductorError, CacheError
from .kernel_cache.resolver import Hit, Miss, Resolver
from .kernel_cache.tiers import Tiers
from .observability import warn_once
from .schema import Definition, Environment, Reason, Request, Workload
from .settings import Settings

_WORTH_A_REQUEST = (Reason.NO_SOLUTION, Reason.NOT_QUALIFIED, Reason.GUARD_FAILED)


@dataclass
class Resolution:
    """Resolves definitions for one compile. `deadline` bounds what qualify and generate may spend (time.monotonic())."""

    tiers: Tiers
    settings: Settings
    environment: Callable[[str], Environment]
    origin: str = ""
    deadline: float = field(default=0.0)

    def __post_init__(self):
        self.deadline = self.deadline or time.monotonic() + self.settings.budget

    def __call__(self, definition: Definition, workload: Workload, device_type: str) -> Hit | Miss:
        resolver = Resolver(self.tiers, self.environment(device_type), self.settings)
        outcome = resolver.resolve(definition, workload)
        if isinstance(outcome, Hit):
            self.tiers.user.touch(outcome.solution)
        if isinstance(outcome, Hit) or not self.settings.enabled:
            return outcome
        policy = self.settings.on_miss
        if policy == "request" and outcome.reason in _WORTH_A_REQUEST:
            self._request(definition, workload, device_type)
        if policy in ("qualify", "generate"):
            self._synthesize(definition, workload, device_type, policy)
            outcome = resolver.resolve(definition, workload)
        return outcome

    def _request(self, definition: Definition, workload: Workload, device_type: str) -> None:
        try:
            self.tiers.user.put_definition(definition)
            self.tiers.user.put_request(Request(definition.digest, workload, device_type, origin=self.origin))
        except CacheError as error:
            warn_once("request", f"no request could be left in the kernel cache, compilation goes on: {error}")

    def _synthesize(self, definition: Definition, workload: Workload, device_type: str, policy: str) -> None:
        try:
            work = synthesize.generate if policy == "generate" else synthesize.qualify
            work(definition, workload, self.tiers, self.settings, self.deadline, environment=self.environment(device_type))
        except AgentInductorError as error:
            if self.settings.strict:
                raise
            warn_once(f"synthesize-{type(error).__name__}", f"no kernel was made for {definition.name}, Inductor compiles it: {error}")
