"""The whole way on a CPU: search, evaluation, decision, cache, and a second run that does nothing."""

import sys
import time
from pathlib import Path

import pytest

from agentinductor import accept, device, synthesize
from agentinductor.kernel_cache import maintenance
from agentinductor.kernel_cache.resolver import Hit, Miss, Resolver
from agentinductor.kernel_cache.store import KernelCache
from agentinductor.kernel_cache.tiers import Tiers
from agentinductor.schema import Workload
from agentinductor.settings import Settings

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import definitions  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.skipif(device.compiler() is None, reason="needs a C++ compiler")]


def test_a_kernel_is_made_judged_and_found_again(tmp_path):
    definition = definitions.layer_norm(dtype="float32")
    workload = Workload.of({axis.name: 64 for axis in definition.var_axes})
    tiers = Tiers(KernelCache(tmp_path / "cache"))
    events = []

    def generate(seconds=25.0):
        return synthesize.generate(definition, workload, tiers, Settings(), time.monotonic() + seconds,
                                   environment=device.environment("cpu"), progress=events.append)

    outcome = generate()
    assert outcome.evaluated >= 1, events
    solutions = tiers.solutions(definition.digest)
    assert solutions and all(solution.language == "cpp" for solution in solutions)
    traces = [trace for solution in solutions for trace in tiers.traces(solution.digest)]
    assert traces and all(trace.reason is None and trace.correctness for trace in traces), traces
    assert all(trace.environment == device.environment("cpu") and trace.policy == accept.POLICY_VERSION for trace in traces)
    assert maintenance.verify(tiers.user).sound

    before = tiers.content_digest()
    start = time.monotonic()
    again = generate()
    assert type(again.resolution) is type(outcome.resolution) and again.evaluated == 0
    assert time.monotonic() - start < 5 and tiers.content_digest() == before

    forced = Resolver(tiers, device.environment("cpu"), Settings(force=True)).resolve(definition, workload)
    assert isinstance(forced, Hit)
    tiers.user.quarantine(forced.solution.digest, "wrong_values")
    resolved = Resolver(tiers, device.environment("cpu"), Settings(force=True)).resolve(definition, workload)
    assert isinstance(resolved, Miss) or resolved.solution != forced.solution
