"""A graph run eagerly, regions with a kernel on their kernel: the "eager + kernels" of the four-way table."""

from collections.abc import Sequence
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd

from . import inductor
from .entry import guarded
from .graph_pass import PassContext


def compile_eagerly(gm: torch.fx.GraphModule, inputs: Sequence[Any], context: PassContext):
    """The graph's ATen ops one by one, regions with a kernel on their kernel."""

    def compiler(aten: torch.fx.GraphModule, _):
        guarded(aten.graph, context)
        aten.recompile()
        return aten.forward

    return aot_autograd(fw_compiler=compiler, decompositions=inductor.decompositions())(gm, inputs)
