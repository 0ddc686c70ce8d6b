"""The backend by name: modes, options, errors, fallbacks, Inductor's own cache."""

import subprocess
import sys
import textwrap

import pytest
import torch
from torch import nn
from torch._inductor.custom_graph_pass import CustomGraphPass

import agentinductor
from agentinductor import synthesize
from agentinductor.backend import graph_pass
from agentinductor.errors import SettingsError
from agentinductor.kernel_cache.store import KernelCache
from agentinductor.observability import counters


@pytest.fixture
def options(tmp_path):
    torch._dynamo.reset()
    # a hit in Inductor's own cache would not run the pass
    return {"agentinductor.cache_dir": str(tmp_path / "cache"), "agentinductor.library": False, "fx_graph_cache": False}


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64), nn.LayerNorm(64)).eval()


def test_found_by_name_without_import():
    code = """
        import sys, torch
        assert not any(name.startswith("agentinductor") for name in sys.modules)
        assert "agentinductor" in torch._dynamo.list_backends()
        model = torch.nn.Linear(8, 8)
        print(torch.compile(model, backend="agentinductor")(torch.ones(2, 8)).shape)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "[2, 8]" in done.stdout


@pytest.mark.parametrize("mode", [None, "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"])
def test_modes(mode, model):
    torch._dynamo.reset()
    x = torch.randn(5, 64)
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(model, backend="agentinductor", mode=mode)(x), model(x))


@pytest.mark.parametrize("bad, words", [
    ({"agentinductor.no_such": 1}, "agentinductor.on_miss"),
    ({"agentinductor.on_miss": "pray"}, "request, qualify, generate"),
    ({"max_autotun": True}, "max_autotune"),
    ({"agentinductor.mode": "fastest"}, "reduce-overhead"),
    ({"max_autotune": "yes"}, "max_autotune"),
])
def test_wrong_options_name_the_right_ones(bad, words, model):
    with pytest.raises(SettingsError, match=words):
        agentinductor.api.agentinductor(torch.fx.symbolic_trace(model), [torch.ones(1, 64)], options=bad)


def test_request_is_left_behind_and_not_twice(model, options):
    x = torch.randn(500, 64)
    with torch.no_grad():
        torch.compile(model, backend="agentinductor", options=options)(x)
    cache = KernelCache(options["agentinductor.cache_dir"])
    requests = cache.requests()
    kinds = {cache.definition(r.definition).kind for r in requests}
    assert {"gelu", "layer_norm"} <= kinds
    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(model, backend="agentinductor", options=options)(x)
    assert len(cache.requests()) == len(requests)


def test_unwritable_cache_still_compiles(model, tmp_path):
    torch._dynamo.reset()
    blocker = tmp_path / "file"
    blocker.write_text("")
    x = torch.randn(500, 64)
    with torch.no_grad():
        out = torch.compile(model, backend="agentinductor", options={"agentinductor.cache_dir": str(blocker / "cache")})(x)
    torch.testing.assert_close(out, model(x))


def test_internal_error_falls_back_and_strict_raises(model, options, monkeypatch):
    def broken(graph):
        raise ZeroDivisionError("a bug of ours")

    monkeypatch.setattr(graph_pass, "partition", broken)
    x = torch.randn(500, 64)
    before = counters["internal_errors"]
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(model, backend="agentinductor", options=options)(x), model(x))
        assert counters["internal_errors"] == before + 1
        torch._dynamo.reset()
        with pytest.raises(Exception, match="a bug of ours"):
            torch.compile(model, backend="agentinductor", options={**options, "agentinductor.strict": True})(x)


def test_user_pass_is_kept(model, options):
    seen = []

    class Pass(CustomGraphPass):
        def __call__(self, graph):
            seen.append(len(graph.nodes))

        def uuid(self):
            return None

    with torch.no_grad():
        torch.compile(model, backend="agentinductor", options={**options, "post_grad_custom_pre_pass": Pass()})(torch.randn(500, 64))
    assert seen


def test_disabled_is_plain_inductor(model, options):
    before = counters["graphs"]
    with torch.no_grad():
        torch.compile(model, backend="agentinductor", options={**options, "agentinductor.enabled": False})(torch.randn(500, 64))
    assert counters["graphs"] == before


def test_explain_lists_every_region(model, options):
    report = agentinductor.explain(model, torch.randn(500, 64), options=options)
    assert {line.kind for line in report.regions} == {"gelu", "layer_norm"}
    assert all("no_solution" in line.decision for line in report.regions)
    assert "runs on" in str(report)
    assert synthesize is not None
