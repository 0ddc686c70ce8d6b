"""From torch.compile's mode and options to a compiled graph."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

import torch

from .. import device, settings
from ..backend import entry, inductor, operators
from ..backend.graph_pass import MIN_BYTES, PassContext
from ..errors import SettingsError
from ..kernel_cache.tiers import Tiers, open_tiers
from ..on_miss import Resolution
from ..schema import Definition, Solution
from ..settings import Settings


def read_options(mode: str | None, options: Mapping[str, Any] | None) -> tuple[Settings, str, dict[str, Any]]:
    """(our settings, the mode, Inductor's config patches). Raises SettingsError."""
    ours, theirs = settings.split_options(options)
    chosen = settings.load(ours)
    if mode and chosen.mode and mode != chosen.mode:
        raise SettingsError(f"mode={mode!r} and agentinductor.mode={chosen.mode!r} disagree: give one")
    mode = mode or chosen.mode or "default"
    return chosen, mode, inductor.config_patches(mode, theirs)


def compile_graph(
    gm: torch.fx.GraphModule, inputs: Sequence[Any], mode: str | None = None, options: Mapping[str, Any] | None = None
) -> Any:
    """What the backend does with one Dynamo graph. It serves as a backend itself, also where no entry point is installed."""
    chosen, mode, patches = read_options(mode, options)
    if not chosen.enabled:
        return inductor.compile_graph(gm, inputs, patches, None)
    return entry.compile_with_kernels(gm, inputs, select(chosen, mode, origin=type(gm).__name__), patches)


def select(chosen: Settings, mode: str, *, origin: str = "") -> entry.Selection:
    """What decides which kernels run, read from the kernel cache as it is now."""
    tiers = open_tiers(chosen)
    operators.serve_from(_source(tiers), chosen.cache_root / "builds")
    context = PassContext(
        resolve=Resolution(tiers, chosen, device.environment, origin),
        plan=(lambda key: tiers.plan(key)) if chosen.gate and not chosen.force else _no_plan,
        environment=device.environment,
        mode=mode,
        strict=chosen.strict,
        min_bytes=0 if chosen.force else MIN_BYTES,
    )
    content = tiers.content_digest()
    if chosen.on_miss in ("qualify", "generate"):
        content += uuid4().hex  # the cache changes while the pass runs: no replay from Inductor's own cache
    relevant = replace(chosen, cache_dir="", strict=False, budget=0.0)
    return entry.Selection(context, f"{content} {relevant}")


def _no_plan(key: str) -> None:
    return None


def _source(tiers: Tiers):
    def find(digest: str) -> tuple[Definition, Solution] | None:
        solution = tiers.solution(digest)
        definition = tiers.definition(solution.definition) if solution else None
        return (definition, solution) if definition and solution else None

    return find
