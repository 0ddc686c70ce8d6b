"""The public surface, frozen: names, options, the command line, errors, and the versions of what lies on disk.

A change here is a change for users: the documentation and the version change with it.
"""

import argparse

import agentinductor
from agentinductor import errors, settings
from agentinductor.cli.main import parser
from agentinductor.kernel_cache import layout
from agentinductor.schema.digest import SCHEMA_VERSION

COMMON = {"--json", "--cache-dir"}
MODEL = COMMON | {"TARGET", "--task", "--batch", "--length", "--device", "--dtype", "--seed", "--mode", "--option", "--out"}
COMMANDS = {
    "explain": MODEL,
    "prewarm": MODEL | {"--budget"},
    "bench": MODEL | {"--check"},
    "kernels list": COMMON | {"DEFINITION"},
    "kernels show": COMMON | {"DIGEST", "--script"},
    "kernels verify": COMMON | {"DIGEST"},
    "submit": COMMON | {"DIR"},
    "requests list": COMMON,
    "requests show": COMMON | {"DEFINITION", "--prepare"},
    "cache info": COMMON,
    "cache verify": COMMON,
    "cache prune": COMMON | {"--max-size"},
    "doctor": COMMON | {"--bandwidth"},
}


def commands(root: argparse.ArgumentParser, prefix: str = "") -> dict[str, set[str]]:
    found = {}
    subparsers = [action for action in root._actions if isinstance(action, argparse._SubParsersAction)]
    for action in subparsers:
        for name, inner in action.choices.items():
            found |= commands(inner, f"{prefix} {name}".strip())
    if not subparsers:
        found[prefix] = {action.option_strings[-1] if action.option_strings else str(action.metavar) for action in root._actions}
        found[prefix].discard("--help")
    return found


def test_names():
    assert set(agentinductor.__all__) == {"agentinductor", "benchmark", "explain", "prewarm"}
    for name in agentinductor.__all__:
        assert callable(getattr(agentinductor, name))


def test_command_line():
    assert commands(parser()) == COMMANDS


def test_options():
    assert {name: type(value).__name__ for name, value in vars(settings.Settings()).items()} == {
        "enabled": "bool", "on_miss": "str", "mode": "str", "budget": "float", "cache_dir": "str", "shared_dirs": "tuple",
        "library": "bool", "disable_kernels": "tuple", "force": "bool", "strict": "bool", "gate": "bool", "seed": "int"}
    assert settings.ON_MISS == ("request", "qualify", "generate", "ignore")
    assert settings.variable("on_miss") == "AGENTINDUCTOR_ON_MISS"


def test_errors_are_documented():
    classes = {name for name, value in vars(errors).items() if isinstance(value, type)}
    assert all(name in errors.__doc__ for name in classes)
    assert all(issubclass(getattr(errors, name), errors.AgentInductorError) for name in classes)


def test_versions_on_disk():
    assert (SCHEMA_VERSION, layout.LAYOUT) == (1, "v1")
