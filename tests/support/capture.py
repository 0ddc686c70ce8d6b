"""Capture the ATen graphs that a function compiles to, with Inductor's decompositions, and the values of all their nodes."""

from dataclasses import dataclass

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._inductor.decomposition import select_decomp_table


@dataclass
class Captured:
    """One graph and what each of its nodes held in the recorded run."""

    graph: torch.fx.Graph
    values: dict


class _Recorder(torch.fx.Interpreter):
    def __init__(self, gm):
        super().__init__(gm)
        self.values = {}

    def run_node(self, node):
        result = super().run_node(node)
        self.values[node] = result
        return result


def capture(function, *args, dynamic=None) -> list[Captured]:
    """Run `function` once through AOTAutograd; one Captured for each forward graph."""
    captured = []

    def compiler(gm, _):
        def run(*inputs):
            recorder = _Recorder(gm)
            result = recorder.run(*inputs)
            captured.append(Captured(gm.graph, recorder.values))
            return result

        return run

    torch._dynamo.reset()
    backend = aot_autograd(fw_compiler=compiler, decompositions=select_decomp_table())
    with torch.no_grad():
        torch.compile(function, backend=backend, dynamic=dynamic)(*args)
    return captured


def canonical(binding, value: torch.Tensor) -> torch.Tensor:
    """A graph tensor as the definition sees it, sizes taken from the recorded run."""
    sizes = [int(s) if not isinstance(s, int) else s for s in binding.split]
    merged = [int(s) if not isinstance(s, int) else s for s in binding.merged]
    return value.reshape(sizes).permute(binding.order).reshape(merged)
