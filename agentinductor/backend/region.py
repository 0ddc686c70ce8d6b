"""Region: nodes of one ATen graph that one kernel may replace. It never leaves backend/."""

from dataclasses import dataclass, field

import torch

from ..schema import Definition, Reason, Workload


@dataclass(eq=False)
class Region:
    """Compute nodes in graph order; views between them are looked through, views outside them stay in the graph."""

    nodes: tuple[torch.fx.Node, ...]
    outputs: tuple[torch.fx.Node, ...]  # members with users outside

    @property
    def members(self) -> frozenset[torch.fx.Node]:
        return frozenset(self.nodes)


@dataclass(eq=False)
class Binding:
    """How one boundary tensor of a definition is made from, or made into, a tensor of the graph.

    node    the graph's tensor (for an output: the node that is replaced)
    split   sizes after every dim is split into axes (graph order); dims that are 1 are left out
    order   permutation that brings the split dims into domain order
    merged  sizes in domain order, adjacent axes merged: the definition's shape
    strides strides in elements of the merged view
    """

    node: torch.fx.Node
    split: tuple
    order: tuple[int, ...]
    merged: tuple
    strides: tuple


@dataclass(eq=False)
class Lowered:
    """A region as a definition, with its concrete workload and the way back to the graph."""

    region: Region
    definition: Definition
    workload: Workload
    inputs: tuple[Binding, ...]
    outputs: tuple[Binding, ...]
    device: torch.device
    dynamic: bool = False


@dataclass(eq=False)
class Declined:
    """A region that cannot become a definition, and why."""

    region: Region
    reason: Reason
    detail: str = ""
    kind: str = field(default="unsupported")
