"""prewarm, explain and benchmark on a real model with real C++ kernels: what is done once is never done again."""

import pytest
import torch
from torch import nn

import agentinductor
from agentinductor import device
from agentinductor.kernel_cache.store import KernelCache
from agentinductor.schema import Plan
from agentinductor.workflows import harvest as harvesting

pytestmark = [pytest.mark.slow, pytest.mark.skipif(device.compiler() is None, reason="no C++ compiler on this machine")]


@pytest.fixture(scope="module")
def warmed(tmp_path_factory):
    """(model, input, options, report) of one prewarm of a LayerNorm between two products."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 512), nn.LayerNorm(512), nn.Linear(512, 64)).eval()
    x = torch.randn(2048, 64)
    options = {"agentinductor.cache_dir": str(tmp_path_factory.mktemp("cache")), "agentinductor.library": False}
    return model, x, options, agentinductor.prewarm(model, x, budget=25.0, options=options)


def test_regions_were_tried_and_the_evidence_kept(warmed):
    _, _, options, report = warmed
    assert [region.name.rsplit("_", 1)[0] for region in report.regions] == ["layer_norm"]
    assert report.evaluated >= 1
    cache = KernelCache(options["agentinductor.cache_dir"])
    solutions = cache.solutions(cache.definitions()[0].digest)
    assert solutions and all(s.provenance.agent == "search" and s.provenance.schedule for s in solutions)
    assert any(cache.traces(s.digest) for s in solutions)


def test_second_run_does_no_work(warmed):
    model, x, options, _ = warmed
    again = agentinductor.prewarm(model, x, budget=25.0, options=options)
    assert again.evaluated == 0 and not again.gated
    assert "everything was in the cache" in str(again)


def test_compiled_model_is_right_and_explained(warmed):
    model, x, options, report = warmed
    torch._dynamo.reset()
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(model, backend="agentinductor", options=options)(x), model(x))
    line, = agentinductor.explain(model, x, options=options).regions
    assert bool(line.kernel) == bool(report.plan_accepted)
    assert line.expected_us > 0


def test_a_rejected_plan_is_obeyed(warmed):
    model, x, options, report = warmed
    if report.plan_accepted is None:
        pytest.skip("no kernel was faster on this machine: there is no plan")
    key = next(r.key for r in harvesting.harvest(model, (x,), {}, None, options) if r.key)
    cache = KernelCache(options["agentinductor.cache_dir"])
    before = cache.plan(key)
    cache.put_plan(Plan(key, (), False, {}, "slower: a test says so"))
    try:
        line, = agentinductor.explain(model, x, options=options).regions
        assert line.decision == "plan_rejected: slower: a test says so"
        line, = agentinductor.explain(model, x, options={**options, "agentinductor.gate": False}).regions
        assert line.kernel
    finally:
        cache.put_plan(before)


def test_four_way_table(warmed):
    model, x, options, _ = warmed
    report = agentinductor.benchmark(model, x, modes=["default"], options=options, rounds=6, budget_s=2.0)
    names = [m.name for m in report.comparisons[0].measurements]
    assert names == ["eager", "eager + kernels", "compiled", "compiled + kernels"]
    assert all(m.error < 1e-5 for m in report.comparisons[0].measurements)
    assert report.to_json()["modes"][0]["speedup_over_compiled"]["eager"]["value"] > 0
