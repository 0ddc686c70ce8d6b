"""Traces a Triton launcher into a graph, and proves by that graph that it only allocates, makes views and launches.

The launcher runs once on fake tensors with its kernels wrapped as Triton-kernel nodes; whatever it does to a tensor is in
the graph, and no Python trickery hides it. The backend inlines the same graph into the model's.
"""

import math
import operator
import types
from collections.abc import Sequence

import torch
from torch._higher_order_ops.triton_kernel_wrap import triton_kernel_wrapper_functional, triton_kernel_wrapper_mutation
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from ..errors import BuildError, StaticCheckError
from ..schema import Definition
from .triton_builder import TritonModule

_ALLOCATIONS = {"aten::empty", "aten::empty_strided", "aten::empty_like", "aten::new_empty", "aten::new_empty_strided"}
_SIZES = {"aten::sym_size", "aten::sym_stride", "aten::sym_numel", "aten::sym_storage_offset"}
_LAUNCHES = (triton_kernel_wrapper_mutation, triton_kernel_wrapper_functional)
_SYMBOLIC = {  # arithmetic on sizes, never on tensors
    getattr(torch, name) for name in ("sym_min", "sym_max", "sym_int", "sym_float", "sym_not", "sym_ite", "sym_sum") if hasattr(torch, name)
} | {min, max, int, math.floor, math.ceil}


def trace(
    module: TritonModule, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor], *, functional: bool = False
) -> torch.fx.GraphModule:
    """The launcher's graph on fake `inputs` and `outputs` (of one FakeTensorMode, sizes symbolic or not).

    Its placeholders are the inputs, then the outputs; it returns the outputs. Launches are `triton_kernel_wrapper_mutation`
    nodes. With `functional`, they are `triton_kernel_wrapper_functional` nodes, the returned values are fresh, and
    `aten.copy_` nodes into placeholders stand at the end for what was mutated. Every node carries `meta["val"]`.

    Raises StaticCheckError when the launcher does anything else, BuildError when it cannot be traced.
    """
    run = _with_wrapped_kernels(module)
    count = len(inputs)

    def call(*tensors):
        run(*tensors)
        return tensors[count:]

    tensors = (*inputs, *outputs)
    mode = next((t.fake_mode for t in tensors if hasattr(t, "fake_mode")), None)
    if mode is None:
        raise BuildError("a launcher is traced on fake tensors: make them under a FakeTensorMode")
    try:
        with mode:
            graph = make_fx(torch.func.functionalize(call) if functional else call, tracing_mode="real")(*tensors)
    except Exception as error:  # whatever the launcher raises is its own mistake
        raise BuildError(f"the launcher cannot be traced: {type(error).__name__}: {error}") from error
    check(graph)
    return graph


def fake_tensors(
    definition: Definition, tensors: Sequence[torch.Tensor], mode: FakeTensorMode | None = None
) -> list[torch.Tensor]:
    """Fake copies of real `tensors` (inputs, then outputs), var axes' sizes symbolic."""
    mode = mode or FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    var = {axis.name for axis in definition.var_axes}
    fakes: list[torch.Tensor] = []
    for spec, tensor in zip(definition.inputs + definition.outputs, tensors, strict=True):
        dims = [DimDynamic.DYNAMIC if name in var and size > 1 else DimDynamic.STATIC
                for name, size in zip(spec.shape, tensor.shape, strict=True)]
        fakes.append(mode.from_tensor(tensor, symbolic_context=StatelessSymbolicContext(dims)))
    return fakes


def check(graph: torch.fx.GraphModule) -> None:
    """Raises StaticCheckError at the first node that is no allocation, view, size arithmetic or launch, or without a launch."""
    placeholders = {node for node in graph.graph.nodes if node.op == "placeholder"}
    launches = 0
    for node in graph.graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        if node.op == "call_function":
            launches += node.target in _LAUNCHES
            is_copy_back = node.target is torch.ops.aten.copy_.default and node.args[0] in placeholders
            if is_copy_back and _launched(node.args[1]) or _allowed(node):
                continue
        raise StaticCheckError(f"the launcher does {node.op} {node.target}: it may only allocate with torch.empty, make views and "
                               "launch its kernels; move the computation into a kernel")
    if not launches:
        raise StaticCheckError("the launcher launches no kernel")


def _allowed(node: torch.fx.Node) -> bool:
    target = node.target
    if target in _LAUNCHES:
        return True
    if isinstance(target, torch._ops.OpOverload):
        name = target._schema.name
        return name in _ALLOCATIONS or name in _SIZES or _is_view(target)
    if target is operator.getitem:
        return _launched(node)
    is_number = target in _SYMBOLIC or getattr(operator, getattr(target, "__name__", ""), None) is target
    return is_number and not any(isinstance(a.meta.get("val"), torch.Tensor) for a in node.all_input_nodes)


def _launched(node) -> bool:
    """Is `node` a value that a functional launch returned?"""
    while isinstance(node, torch.fx.Node) and (node.target is operator.getitem or _is_view(node.target)):
        node = node.args[0]
    return isinstance(node, torch.fx.Node) and node.target is triton_kernel_wrapper_functional


def _is_view(target) -> bool:
    """An op whose every returned tensor aliases an argument that it does not write."""
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten":
        return False
    schema = target._schema
    reads_only = all(a.alias_info is None or not a.alias_info.is_write for a in schema.arguments)
    return reads_only and bool(schema.returns) and all(r.alias_info is not None for r in schema.returns)


def _with_wrapped_kernels(module: TritonModule):
    """The launcher over a copy of its module's globals in which each kernel is traceable; the module itself stays as it was."""
    namespace = dict(module.namespace)
    for name, value in module.namespace.items():
        if isinstance(value, types.FunctionType) and value.__globals__ is module.namespace:
            namespace[name] = _rebound(value, namespace)
    for name, kernel in module.kernels.items():
        namespace[name] = torch.library.wrap_triton(kernel)
    return _rebound(module.launcher, namespace)


def _rebound(function, namespace: dict):
    copy = types.FunctionType(function.__code__, namespace, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy
