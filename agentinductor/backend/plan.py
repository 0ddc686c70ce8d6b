"""Plan keys: the name under which the end-to-end gate's word on a graph is kept."""

from collections import Counter
from collections.abc import Iterable

from ..schema import Environment
from ..schema.digest import digest
from .region import Lowered


def plan_key(regions: Iterable[Lowered], mode: str, environment: Environment) -> str:
    """Digest of the graph's definitions and size buckets with their counts, the mode, and the environment."""
    counts = Counter(f"{item.definition.digest}/{item.workload.bucket()}" for item in regions)
    return digest("plan-key", {"regions": dict(counts), "mode": mode, "environment": environment.digest})
