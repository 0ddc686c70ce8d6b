"""Partition: the regions of one post-grad graph.

A region is a maximal convex cluster of pointwise and reduction nodes that share one loop domain, which is what
Inductor would fuse. Nodes join the clusters of their producers, in graph order.
"""

import math
from dataclasses import dataclass, field

import torch

from . import op_support as ops
from .dims import hint
from .region import Region

MIN_COMPUTE_NODES = 2  # one op alone is a copy with arithmetic: nothing to win


@dataclass(eq=False)
class _Cluster:
    """`full` is the number of elements of the loop domain, `row` that of a reduction's result (0: no reduction yet)."""

    nodes: list[torch.fx.Node] = field(default_factory=list)
    full: int = 1
    row: int = 0


def partition(graph: torch.fx.Graph) -> list[Region]:
    """Regions in graph order. Nodes without known sizes, other devices' nodes and lone ops are in none."""
    position = {node: i for i, node in enumerate(graph.nodes)}
    owner: dict[torch.fx.Node, _Cluster] = {}
    ordered = [node for node in graph.nodes if ops.is_ordered(node)]
    then = dict(zip(ordered, ordered[1:], strict=False))
    for node in graph.nodes:
        if ops.is_compute(node) and _sizes_known(node):
            _place(node, owner, position, then)
    clusters = {id(c): c for c in owner.values()}.values()
    regions = [_region(cluster, position) for cluster in clusters]
    return sorted((r for r in regions if _worth_taking(r)), key=lambda r: position[r.nodes[0]])


def producers(node: torch.fx.Node) -> list[torch.fx.Node]:
    """The non-view nodes whose values `node` reads, views looked through."""
    out = []
    for arg in node.all_input_nodes:
        while ops.is_view(arg):
            arg = arg.args[0]  # type: ignore[assignment]
        out.append(arg)
    return out


def consumers(node: torch.fx.Node) -> list[torch.fx.Node]:
    """The non-view nodes that read `node`'s value, views looked through (the graph's output counts)."""
    out, stack = [], list(node.users)
    while stack:
        user = stack.pop()
        if ops.is_view(user):
            stack.extend(user.users)
            if any(u.op == "output" for u in user.users):
                out.append(next(u for u in user.users if u.op == "output"))
        else:
            out.append(user)
    return out


def _sizes_known(node: torch.fx.Node) -> bool:
    for tensor in _tensors(node):
        if tensor.is_complex() or tensor.is_sparse or tensor.layout != torch.strided:
            return False
        for size in tensor.shape:
            if not isinstance(size, int) and not size.node.has_hint():
                return False
    return bool(_tensors(node)) and _numel(node) > 0


def _tensors(node: torch.fx.Node) -> list[torch.Tensor]:
    val = node.meta.get("val")
    return [v for v in (val if isinstance(val, tuple | list) else (val,)) if isinstance(v, torch.Tensor)]


def _numel(node: torch.fx.Node) -> int:
    return math.prod(hint(size) for size in _tensors(node)[0].shape)


def _extent(node: torch.fx.Node) -> tuple[int, int]:
    """(elements the node loops over, elements of a reduction's result or 0)."""
    if ops.is_reduction(node):
        return _numel(node.args[0]), _numel(node)  # type: ignore[arg-type]
    return _numel(node), 0


def _place(node, owner: dict, position: dict, then: dict) -> None:
    """Put `node` into one cluster with as many of its producers' clusters as fit; else into its own."""
    full, row = _extent(node)
    cluster = _Cluster([node], full, row)
    owner[node] = cluster
    candidates = {id(owner[p]): owner[p] for p in producers(node) if p in owner}
    for other in sorted(candidates.values(), key=lambda c: -position[c.nodes[-1]]):
        if other is not cluster and _fits(cluster, other, node) and _convex(cluster, other, owner, position, then):
            cluster.nodes = sorted(cluster.nodes + other.nodes, key=position.__getitem__)
            cluster.full, cluster.row = max(cluster.full, other.full), max(cluster.row, other.row)
            for member in other.nodes:
                owner[member] = cluster


def _fits(cluster: _Cluster, other: _Cluster, node: torch.fx.Node) -> bool:
    """One loop domain serves both: equal domains, or one lives on the rows that the other reduces to."""
    if _device(cluster.nodes[0]) != _device(other.nodes[0]):
        return False
    if cluster.row and other.row and cluster.row != other.row:
        return False
    if cluster.full == other.full:
        return True
    small, large = sorted((cluster, other), key=lambda c: c.full)
    if large.row and large.row == small.full and not small.row:
        return True
    # a small tensor that is only read here (a scale, a table) is recomputed in the loop, as Inductor does
    return small is other and not small.row and all(u is node for m in small.nodes for u in consumers(m) if u not in small.nodes)


def _device(node: torch.fx.Node) -> torch.device:
    return _tensors(node)[0].device


def _convex(cluster: _Cluster, other: _Cluster, owner: dict, position: dict, then: dict) -> bool:
    """No path leaves the union and comes back.

    Every other cluster counts as one node, since it will be one kernel; `then` leads from an ordered node to the next.
    """
    union = set(cluster.nodes) | set(other.nodes)
    last = max(position[n] for n in union)
    stack, seen = [(n, n) for n in union], set(union)
    while stack:
        node, behind = stack.pop()  # `behind` is the node a view is a view of
        for user in (*node.users, *([then[node]] if node in then else [])):
            if user in union and behind not in union:
                return False
            if user not in seen and position[user] < last:
                if ops.is_view(user):
                    seen.add(user)
                    stack.append((user, behind))
                    continue
                met = owner[user].nodes if user in owner else [user]
                stack.extend((n, n) for n in met if n not in seen)
                seen.update(met)
    return True


def _region(cluster: _Cluster, position: dict) -> Region:
    members = set(cluster.nodes)
    outputs = tuple(n for n in cluster.nodes if not ops.is_call(n, (ops.VAR_MEAN,))
                    and any(c not in members for c in consumers(n)))
    return Region(tuple(sorted(cluster.nodes, key=position.__getitem__)), outputs)


def _worth_taking(region: Region) -> bool:
    return bool(region.outputs) and sum(not ops.is_call(n, (torch.ops.aten.clone.default,)) for n in region.nodes) >= MIN_COMPUTE_NODES


def fused_neighbour(region: Region) -> torch.fx.Node | None:
    """A neighbour that Inductor fuses with this region though no body can hold it, joined by a large tensor; or None."""
    largest = max(_numel(n) for n in region.nodes)
    for node in region.nodes:
        for other in producers(node):
            if ops.is_call(other, ops.FUSIBLE_ELSEWHERE) and _numel(other) * 2 > largest:
                return other
    for node in region.outputs:
        for other in consumers(node):
            if ops.is_call(other, ops.FUSIBLE_ELSEWHERE) and _numel(node) * 2 > largest:
                return other
    return None
