"""The pass over one post-grad graph: partition, lower, resolve, rewrite, report.

Whatever goes wrong, the graph is left as Inductor would have compiled it; `strict` raises instead.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from ..errors import AgentInductorError, UnsupportedRegionError
from ..observability import count, log, warn_once
from ..schema import Definition, Environment, Plan, Reason, Solution, Trace, Workload
from . import inductor
from .dims import known_multiple, known_within
from .lower import lower
from .partition import fused_neighbour, partition
from .plan import plan_key
from .region import Lowered, Region
from .report import GraphReport, RegionRecord, publish
from .rewrite import embed

LARGEST_TENSOR = {"cuda": 1 << 39, "cpu": 1 << 44}  # bytes: no device holds more, so no axis of symbolic size is longer than this allows
MIN_BYTES = 8192  # a region that moves less is launch overhead, whoever wrote its kernel


class Outcome(Protocol):
    """A resolver's answer: a Hit has `solution` and `trace`, a Miss has `reason` and `detail`."""


@dataclass(frozen=True)
class PassContext:
    """What the pass is handed: it looks nothing up itself."""

    resolve: Callable[[Definition, Workload, str], object]  # (definition, workload, device type) -> Hit | Miss
    plan: Callable[[str], Plan | None]
    environment: Callable[[str], Environment]
    mode: str
    strict: bool = False
    min_bytes: int = MIN_BYTES


def run_pass(graph: torch.fx.Graph, context: PassContext) -> None:
    """Rewrite `graph` in place."""
    report = GraphReport()
    try:
        found = [_lowered_or_record(region, context.min_bytes) for region in partition(graph)]
        lowered = [item for item in found if isinstance(item, Lowered)]
        report.regions += [item for item in found if isinstance(item, RegionRecord)]
        if lowered:
            environment = context.environment(lowered[0].device.type)
            report.key = plan_key(lowered, context.mode, environment)
            plan = context.plan(report.key)
            replaced: dict[torch.fx.Node, torch.fx.Node] = {}
            report.regions += [_place(graph, item, plan, context, replaced) for item in lowered]
            inductor.sort_nodes(graph)  # always: a region that could not be embedded leaves nodes behind, too
            graph.eliminate_dead_code()
            graph.lint()
    finally:
        count("graphs")
        count("regions", len(report.regions))
        count("kernels", report.kernels)
        publish(report)


def _lowered_or_record(region: Region, min_bytes: int) -> Lowered | RegionRecord:
    names = tuple(node.name for node in region.nodes)
    device = region.outputs[0].meta["val"].device.type
    try:
        item = lower(region)
    except UnsupportedRegionError as error:
        return RegionRecord("unsupported", "", "", names, device, reason=error.reason, detail=error.detail)
    record = _record(item)
    neighbour = fused_neighbour(region)
    if neighbour is not None:
        record.reason = Reason.UNSUPPORTED_OP
        record.detail = f"Inductor fuses it with {neighbour.target}"
        return record
    if item.definition.bytes_moved(item.workload.all_sizes(item.definition)) < min_bytes:
        record.reason = Reason.TOO_SMALL
        return record
    if not item.definition.inputs:
        record.reason, record.detail = Reason.UNSUPPORTED_SHAPE, "it reads no tensor"
        return record
    return item


def _record(item: Lowered) -> RegionRecord:
    definition = item.definition
    names = tuple(node.name for node in item.region.nodes)
    return RegionRecord(definition.kind, definition.name, definition.digest, names, item.device.type, definition, item.workload)


def _place(graph: torch.fx.Graph, item: Lowered, plan: Plan | None, context: PassContext, replaced: dict) -> RegionRecord:
    record = _record(item)
    outcome = context.resolve(item.definition, item.workload, item.device.type)
    solution: Solution | None = getattr(outcome, "solution", None)
    if solution is None:
        record.reason, record.detail = outcome.reason, outcome.detail  # type: ignore[attr-defined]
        count(f"miss_{record.reason.value}")
        return record
    if plan is not None and dict(plan.solutions).get(item.definition.digest) != solution.digest:
        record.reason, record.detail = Reason.PLAN_REJECTED, plan.reason
        count("miss_plan_rejected")
        return record
    loose = _unguarded(item, solution)
    if loose is not None:
        record.reason, record.detail = Reason.GUARD_FAILED, f"axis {loose} changes at run time, and the kernel is not for every size"
        count("miss_guard_failed")
        return record
    try:
        embed(graph, item, solution, replaced)
    except AgentInductorError as error:
        reason = getattr(error, "reason", Reason.COMPILE_ERROR)
        if context.strict and reason in (Reason.COMPILE_ERROR, Reason.INTERNAL_ERROR):
            raise
        record.reason, record.detail = reason, getattr(error, "detail", "") or str(error)
        warn_once(f"embed-{solution.digest}", f"kernel {solution.digest[:12]} for {item.definition.name} is not used: {error}")
        return record
    trace: Trace | None = getattr(outcome, "trace", None)
    record.kernel, record.language = solution.digest, solution.language
    if trace is not None and trace.performance is not None:
        record.kernel_us, record.baseline_us = trace.performance.latency_us, trace.performance.baseline_us
    log.debug("%s runs on %s", item.definition.name, solution.digest[:12])
    return record


def _unguarded(item: Lowered, solution: Solution) -> str | None:
    """An axis of symbolic size for which a guard of the solution is not known to hold at every call, or None."""
    sizes = {axis.name: axis.value for axis in item.definition.axes}
    largest = LARGEST_TENSOR.get(item.device.type, 1 << 62)
    most: dict[str, int] = {}  # elements of an axis, by the memory that its tensors would take
    for spec, binding in zip(item.definition.inputs + item.definition.outputs, item.inputs + item.outputs, strict=True):
        sizes.update(zip(spec.shape, binding.merged, strict=True))
        fixed = math.prod(size for size in binding.merged if isinstance(size, int)) * spec.itemsize
        for name in spec.shape:
            most[name] = min(most.get(name, largest), largest // max(fixed, 1))
    for guard in solution.guards:
        size = sizes.get(guard.name)
        if guard.kind == "range" and not known_within(size, guard.low, guard.high, most.get(guard.name, largest)):
            return guard.name
        if guard.kind == "divisible" and not known_multiple(size, guard.low):
            return guard.name
    return None
