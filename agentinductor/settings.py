"""The user's settings: the `agentinductor.*` options of torch.compile, and the environment.

An option given to torch.compile wins over its environment variable, which wins over the default. This is
the only module that reads the environment.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import platformdirs

from .errors import SettingsError

PREFIX = "agentinductor."
ON_MISS = ("request", "qualify", "generate", "ignore")
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


@dataclass(frozen=True)
class Settings:
    """One value for each `agentinductor.<name>` option; AGENTINDUCTOR_<NAME> is its environment variable."""

    enabled: bool = True  # False: every region is Inductor's
    on_miss: str = "request"  # "request", "qualify", "generate" or "ignore"
    mode: str = ""  # a torch.compile mode, for use together with other options (torch.compile takes one or the other)
    budget: float = 60.0  # seconds one compile may spend on qualify or generate
    cache_dir: str = ""  # "" means the user's cache directory
    shared_dirs: tuple[str, ...] = ()  # further caches, only read
    library: bool = True  # use the kernels that ship with the package
    disable_kernels: tuple[str, ...] = ()  # digests (or their first characters) of solutions that must not run
    force: bool = False  # run correct kernels even where they are not faster (tests and debugging)
    strict: bool = False  # raise instead of falling back to Inductor
    gate: bool = True  # honour the end-to-end plan
    seed: int = 0  # of the search agent

    def __post_init__(self):
        if self.on_miss not in ON_MISS:
            raise SettingsError(f"agentinductor.on_miss={self.on_miss!r}: accepted values are {', '.join(ON_MISS)}")
        if self.budget < 0:
            raise SettingsError(f"agentinductor.budget={self.budget!r}: give a number of seconds, 0 or more")

    @property
    def cache_root(self) -> Path:
        return Path(self.cache_dir) if self.cache_dir else Path(platformdirs.user_cache_dir("agentinductor"))


def variable(name: str) -> str:
    return f"AGENTINDUCTOR_{name.upper()}"


def load(options: Mapping[str, object] | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    """Settings from the environment, then from `options` (keys "agentinductor.<name>"). Raises SettingsError."""
    environ = os.environ if environ is None else environ
    kinds = {field.name: type(field.default) for field in fields(Settings)}
    values = {name: _parse(variable(name), environ[variable(name)], kind) for name, kind in kinds.items()
              if variable(name) in environ}
    for key, value in (options or {}).items():
        name = key.removeprefix(PREFIX)
        if name not in kinds:
            known = ", ".join(PREFIX + known for known in kinds)
            raise SettingsError(f"unknown option {key!r}; agentinductor's options are {known}")
        values[name] = _parse(key, value, kinds[name])
    return replace(Settings(), **values)


def inherited(names: Iterable[str], environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Those variables of other projects among `names` that are set: for a child process, or for a record."""
    environ = os.environ if environ is None else environ
    return {name: environ[name] for name in names if name in environ}


def split_options(options: Mapping[str, object] | None) -> tuple[dict[str, object], dict[str, object]]:
    """(ours, Inductor's): ours are the keys that start with "agentinductor."."""
    options = dict(options or {})
    ours = {key: options.pop(key) for key in list(options) if key.startswith(PREFIX)}
    return ours, options


def _parse(name: str, value: object, kind: type) -> Any:
    if kind is bool:
        text = str(value).lower()
        if text not in _TRUE + _FALSE:
            raise SettingsError(f"{name}={value!r}: accepted values are {', '.join(_TRUE + _FALSE)}")
        return text in _TRUE
    if kind is tuple:
        items = value.split(",") if isinstance(value, str) else value
        if not isinstance(items, Iterable):
            raise SettingsError(f"{name}={value!r}: expected names, in a list or separated by commas")
        return tuple(str(item).strip() for item in items if str(item).strip())
    try:
        return kind(value)
    except (TypeError, ValueError):
        raise SettingsError(f"{name}={value!r}: expected {kind.__name__}") from None
