"""Harvest: all regions of a model, by running it once through Dynamo, AOTAutograd and Inductor's graph passes.

No code is generated: after the pass has seen a graph, that graph runs eagerly.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ..backend import entry, inductor, report
from ..backend.report import GraphReport, RegionRecord
from ..errors import AgentInductorError
from . import compile as compiling


class _Seen(Exception):
    """Raised inside Inductor once the pass has run."""


@dataclass(frozen=True)
class Found:
    """One region of the model, wherever it occurs."""

    record: RegionRecord
    occurrences: int


def harvest(model: Callable, args: Sequence, kwargs: Mapping[str, Any], mode: str | None, options: Mapping[str, Any] | None,
            reset: Callable[[], None] | None = None) -> list[GraphReport]:
    """Run `model` once and return a report for each graph that Dynamo made of it. Nothing is requested or generated."""
    chosen, mode, patches = compiling.read_options(mode, options)
    selection = compiling.select(replace(chosen, on_miss="ignore"), mode)

    def backend(gm: torch.fx.GraphModule, inputs: Sequence[Any]):
        seen = []

        def run(graph: torch.fx.Graph) -> None:
            entry.guarded(graph, selection.context)
            seen.append(graph)
            raise _Seen

        try:
            return inductor.compile_graph(gm, inputs, patches, inductor.make_pass(run, None))  # no uuid: no cache
        except Exception as error:  # Inductor wraps what a pass raises
            if not seen:
                raise AgentInductorError(f"Inductor could not compile the model: {error}") from error
            return gm.forward

    torch._dynamo.reset()
    with report.collecting() as reports, torch.no_grad():
        if reset:
            reset()
        torch.compile(model, backend=backend)(*args, **kwargs)
    torch._dynamo.reset()
    return reports


def distinct(reports: Sequence[GraphReport]) -> list[Found]:
    """Regions that share definition, sizes and fate, counted; the most frequent first."""
    groups: dict[tuple, list[RegionRecord]] = {}
    for record in (record for item in reports for record in item.regions):
        bucket = record.workload.bucket() if record.workload else record.detail
        groups.setdefault((record.digest, bucket, record.device_type, record.reason, record.kernel), []).append(record)
    found = [Found(records[0], len(records)) for records in groups.values()]
    return sorted(found, key=lambda item: (-item.occurrences, item.record.name))


