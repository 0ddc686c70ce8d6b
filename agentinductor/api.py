"""The public functions. torch.compile(model, backend="agentinductor") finds `agentinductor` here through its entry point."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from .backend import inductor
from .workflows.bench import BenchReport, benchmark
from .workflows.compile import compile_graph
from .workflows.explain import ExplainReport, explain
from .workflows.prewarm import PrewarmReport, prewarm

__all__ = ["BenchReport", "ExplainReport", "PrewarmReport", "agentinductor", "benchmark", "explain", "prewarm"]


def agentinductor(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], *, mode: str | None = None, options: Mapping[str, Any] | None = None
) -> Any:
    """The torch.compile backend: Inductor, with proven kernels in the place of regions that have one.

    mode     torch.compile's, with Inductor's meaning
    options  Inductor's, and `agentinductor.<name>` for each field of settings.Settings. torch.compile takes either a mode or
             options: with options, give the mode as `agentinductor.mode`

    Raises SettingsError for an unknown mode, option or value. Any other failure of ours leaves the graph to Inductor.
    """
    return compile_graph(gm, example_inputs, mode, options)


agentinductor.reset = inductor.reset  # type: ignore[attr-defined]  # torch.compiler.reset() calls it
