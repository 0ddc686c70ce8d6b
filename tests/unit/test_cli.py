"""The commands, run in this process on a cache with one C++ kernel."""

import json
import subprocess
import sys

import pytest

from agentinductor.cli.display import human_size, parse_size
from agentinductor.cli.main import main
from agentinductor.codegen import cpp_template, schedule
from agentinductor.errors import AgentInductorError
from agentinductor.kernel_cache.store import KernelCache
from agentinductor.kernel_cache.tiers import library
from agentinductor.schema import Correctness, Environment, Performance, Request, Trace, Workload
from tests.support import definitions

WORKLOAD = Workload.of({"rows": 64})


@pytest.fixture
def cache(tmp_path):
    return KernelCache(tmp_path / "cache")


@pytest.fixture
def definition():
    return definitions.rms_norm(256, "float32")


@pytest.fixture
def solution(definition):
    space = schedule.space(definition, WORKLOAD.all_sizes(definition), "cpp")
    return cpp_template.emit(definition, space[0])


@pytest.fixture
def filled(cache, definition, solution):
    cache.put_definition(definition)
    cache.put_solution(solution)
    cache.put_request(Request(definition.digest, WORKLOAD, "cpu", 3, "Model"))
    environment = Environment("cpu", "some processor", 0, "2.13.0")
    cache.put_trace(Trace(definition.digest, solution.digest, WORKLOAD, environment, "1", Correctness(9, 1e-6, 2e-7, 3e-7),
                          Performance(10.0, 12.0, 1.2, 1.15, 1.25, 1 << 16, 1 << 16, 5.0), created="2026-01-01T00:00:00Z"))
    return cache


@pytest.fixture
def run(cache, capsys, monkeypatch):
    monkeypatch.setenv("AGENTINDUCTOR_LIBRARY", "0")  # what ships with the package changes

    def run(*words, code=0):
        assert main([*words, "--cache-dir", str(cache.root)]) == code
        done = capsys.readouterr()
        return done.out if code != 2 else done.err

    return run


def test_list_of_an_empty_cache_names_the_next_step(run):
    assert "prewarm" in run("kernels", "list")
    assert "torch.compile" in run("requests", "list")


def test_list(run, filled, definition):
    out = run("kernels", "list")
    assert definition.name in out and "1.20x" in out and "cpp" in out
    assert run("kernels", "list", "rms_norm") == out
    (one,) = json.loads(run("kernels", "list", "--json"))
    assert one["definition"] == definition.digest and one["tier"] == "user" and len(one["traces"]) == 1


def test_list_shows_what_ships(run, filled, monkeypatch):
    monkeypatch.setenv("AGENTINDUCTOR_LIBRARY", "1")
    listed = json.loads(run("kernels", "list", "--json"))
    of = {tier: [entry for entry in listed if entry["tier"] == tier] for tier in ("user", "shipped")}
    assert len(of["user"]) == 1 and len(of["shipped"]) == sum(len(library().solutions(d.digest)) for d in library().definitions())


def test_list_of_an_unknown_definition(run, filled):
    assert "kernels list" in run("kernels", "list", "layer_norm", code=2)


def test_show_prints_everything(run, filled, solution):
    out = run("kernels", "show", solution.digest[:8])
    for words in ("def run(x0, x1)", 'extern "C"', "guards:", "provenance:", "1.200 [1.150, 1.250]", "some processor"):
        assert words in out
    assert json.loads(run("kernels", "show", solution.digest, "--json"))["solutions"][0]["digest"] == solution.digest


def test_show_takes_a_definition(run, filled, definition, solution):
    assert solution.digest in run("kernels", "show", definition.digest[:8]) and run("kernels", "show", definition.name)


def test_show_of_nothing(run, filled):
    assert "is no kernel" in run("kernels", "show", "ffffffffffffffff", code=2)


def test_quarantine_is_shown(run, filled, solution):
    filled.quarantine(solution.digest, "crash", "died")
    assert "quarantined" in run("kernels", "list") and "QUARANTINED" in run("kernels", "show", solution.digest)


def test_requests(run, filled, definition):
    assert "rms_norm" in run("requests", "list")
    out = run("requests", "show", definition.digest[:6])
    assert "def run(x0, x1)" in out and "'rows': 64" in out
    assert "requests list" in run("requests", "show", "ffff", code=2)


def test_a_request_prepares_a_submission(run, filled, definition, tmp_path):
    run("requests", "show", definition.digest, "--prepare", str(tmp_path / "work"))
    names = {path.name for path in (tmp_path / "work").iterdir()}
    assert names == {"README", "reference.py", "definition.json", "workloads.json", "solution.json"}
    assert json.loads((tmp_path / "work/solution.json").read_text())["language"] == "cpp"
    assert "kernel.cpp" in run("submit", str(tmp_path / "work"), code=2)  # named, but not written yet


def test_submit_of_nothing(run, filled, tmp_path):
    assert "solution.json" in run("submit", str(tmp_path / "nowhere"), code=2)
    (tmp_path / "solution.json").write_text("[]")
    assert "solution.json" in run("submit", str(tmp_path), code=2)


def test_cache_commands(run, filled):
    assert "user" in run("cache", "info")
    assert json.loads(run("cache", "info", "--json"))[0]["solutions"] == 1
    assert "sound" in run("cache", "verify")
    assert "left in" in run("cache", "prune", "--max-size", "1GiB")
    assert json.loads(run("kernels", "list", "--json"))
    run("cache", "prune", "--max-size", "0")
    assert not json.loads(run("kernels", "list", "--json"))


def test_damage_is_found(run, filled):
    source = next(filled.root.rglob("kernel.cpp"))
    source.chmod(0o600)
    source.write_text("int x;")
    out = run("cache", "verify", code=1)
    assert "NOT SOUND" in out and "cache prune" in out
    assert "broken" in run("doctor", code=1)


def test_doctor(run):
    out = run("doctor")
    assert "torch" in out and "C++ compiler" in out
    assert all(check["state"] != "broken" for check in json.loads(run("doctor", "--json")))


@pytest.mark.parametrize("words", [
    ["cache", "prune", "--max-size", "lots"],
    ["explain", "nonsense"],
    ["explain", "nowhere:factory"],
    ["explain", "hf:nothing"],
    ["explain", "x:y", "--option", "agentinductor.nonsense=1"],
    ["explain", "x:y", "--option", "nonsense"],
    ["prewarm", "x:y", "--budget", "-1"],
])
def test_a_wrong_command_says_why_in_one_line(run, words):
    err = run(*words, code=2)
    assert err.startswith("agentinductor: ") and "Traceback" not in err


def test_interruption_is_quiet(monkeypatch, cache, capsys):
    def interrupted(args):
        raise KeyboardInterrupt

    monkeypatch.setattr("agentinductor.cli.kernels.list_", interrupted)
    assert main(["kernels", "list"]) == 130
    assert "interrupted" in capsys.readouterr().err


def test_help_needs_no_torch():
    without_torch("--help")


def test_list_needs_no_torch(cache):
    without_torch("kernels", "list", "--cache-dir", str(cache.root))


def without_torch(*words):
    code = """if True:
        import sys
        from agentinductor.cli.main import main
        try:
            main(sys.argv[1:])
        except SystemExit:
            pass
        assert "torch" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", code, *words], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize(("text", "size"), [("500MiB", 500 << 20), ("2GiB", 2 << 30), ("1.5 GB", 1500000000), ("0", 0), ("7", 7)])
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "MiB", "2 parsecs", "-"])
def test_wrong_sizes(text):
    with pytest.raises(AgentInductorError, match="500MiB"):
        parse_size(text)


def test_human_sizes():
    assert human_size(10) == "10 B" and human_size(3 << 20) == "3.0 MiB" and human_size(5 << 40) == "5120.0 GiB"


@pytest.mark.slow
def test_the_script_of_a_kernel_stands_alone(run, filled, solution, tmp_path):
    """It must run where this package is not importable, reproduce the error, and notice a wrong kernel."""
    script = tmp_path / "kernel_script.py"
    run("kernels", "show", solution.digest, "--script", str(script))
    text = script.read_text().replace("ROUNDS = 20", "ROUNDS = 2")
    assert "agentinductor" not in text
    script.write_text(text)
    done = subprocess.run([sys.executable, str(script), "rows=33"], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0 and "correct" in done.stdout and "torch.compile" in done.stdout, done.stdout + done.stderr
    script.write_text(text.replace("tensors[2];", "tensors[0];"))  # writes its result over its input
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 1 and "WRONG" in done.stdout, done.stdout + done.stderr
