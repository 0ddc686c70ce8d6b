"""Compile one Dynamo graph: Inductor, with our pass in front. Any error of ours falls back to plain Inductor."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .. import __version__
from ..observability import count, warn_once
from ..schema.digest import digest
from . import inductor
from .graph_pass import PassContext, run_pass


@dataclass(frozen=True)
class Selection:
    """What decides which kernels run: the pass's context, and the digest of all that it was read from."""

    context: PassContext
    content: str


def compile_with_kernels(
    gm: torch.fx.GraphModule, inputs: Sequence[Any], selection: Selection, patches: Mapping[str, Any]
) -> Any:
    """Inductor's compiled function for `gm`, regions with a kernel replaced."""
    context = selection.context

    def run(graph: torch.fx.Graph) -> None:
        guarded(graph, context)

    uuid = digest("pass", {"version": __version__, "source": inductor.source_digest(), "content": selection.content,
                           "mode": context.mode})
    return inductor.compile_graph(gm, inputs, patches, inductor.make_pass(run, uuid))


def guarded(graph: torch.fx.Graph, context: PassContext) -> None:
    """Run the pass. After an error, what it added is dead code that goes, and the graph computes what it did."""
    try:
        run_pass(graph, context)
    except Exception as error:  # the promise: whatever is wrong with us, the user's model compiles
        if context.strict:
            raise
        count("internal_errors")
        warn_once(f"pass-{type(error).__name__}", f"agentinductor left a graph to Inductor: {type(error).__name__}: {error}; "
                  "set AGENTINDUCTOR_STRICT=1 to see where")
        _drop_leftovers(graph)


def _drop_leftovers(graph: torch.fx.Graph) -> None:
    inductor.sort_nodes(graph)
    graph.eliminate_dead_code()

