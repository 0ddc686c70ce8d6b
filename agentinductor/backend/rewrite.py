"""Rewrite: put a solution in a region's place.

A Triton solution is embedded as functional Triton-kernel nodes, traced from its launcher, so that Inductor launches,
schedules and captures it like its own kernels. CUDA C++ and CPU C++ solutions become one functional custom op.
"""

import operator

import torch

from ..codegen.launcher_trace import trace
from ..codegen.triton_builder import load
from ..errors import UnsupportedRegionError
from ..schema import Reason, Solution
from ..schema.axes import DTYPES
from . import inductor, operators
from .dims import hint, is_one, known_equal, known_multiple, plain
from .region import Binding, Lowered

aten = torch.ops.aten


def embed(graph: torch.fx.Graph, lowered: Lowered, solution: Solution, replaced: dict[torch.fx.Node, torch.fx.Node]) -> None:
    """Replace the region by `solution`. Every new node carries meta["val"]; the graph stays functional.

    `replaced` maps outputs of regions to what took their place in this graph: it is looked up here, and added to.
    Raises before the graph is changed, or leaves nodes without users, which dead-code elimination removes.
    """
    builder = _Builder(graph, lowered, replaced)
    with graph.inserting_after(builder.anchor()):
        views = [builder.canonical(binding) for binding in lowered.inputs]
        if solution.language == "triton":
            results = _launches(builder, lowered, solution, views)
        else:
            results = _operator(builder, lowered, solution, views)
        replacements = [builder.original(b, r) for b, r in zip(lowered.outputs, results, strict=True)]
    for binding, replacement in zip(lowered.outputs, replacements, strict=True):
        _check_alike(binding.node, replacement)
    for binding, replacement in zip(lowered.outputs, replacements, strict=True):
        binding.node.replace_all_uses_with(replacement, delete_user_cb=lambda user: user not in lowered.region.members)
        replaced[binding.node] = replacement


def _check_alike(node: torch.fx.Node, replacement: torch.fx.Node) -> None:
    """The replacement has the node's type, sizes and strides."""
    fake, new = node.meta["val"], replacement.meta["val"]
    alike = new.dtype == fake.dtype and new.dim() == fake.dim() and all(
        known_equal(a, b) for a, b in zip((*new.shape, *new.stride()), (*fake.shape, *fake.stride()), strict=True))
    if not alike:
        raise UnsupportedRegionError(Reason.INTERNAL_ERROR, f"{node} would change from {fake.shape}, {fake.stride()} "
                                     f"to {new.shape}, {new.stride()}")


class _Builder:
    """Adds nodes and computes their fake values. The caller sorts the graph afterwards."""

    def __init__(self, graph: torch.fx.Graph, lowered: Lowered, replaced: dict[torch.fx.Node, torch.fx.Node]):
        self.graph, self.replaced, self.inputs = graph, replaced, lowered.inputs
        self.fake_mode = lowered.region.outputs[0].meta["val"].fake_mode
        # symbolic sizes are read off the region's inputs: its own nodes will be gone
        self.sizes = [(size, self.current(b.node), dim) for b in lowered.inputs for dim, size in enumerate(b.node.meta["val"].shape)
                      if not isinstance(size, int)]

    def anchor(self) -> torch.fx.Node:
        """The last of the inputs: no reader of an output has to move behind a node that it was in front of."""
        last = max(self.current(binding.node) for binding in self.inputs)
        return self.graph.find_nodes(op="placeholder")[-1] if last.op == "placeholder" else last

    def current(self, node: torch.fx.Node) -> torch.fx.Node:
        """`node`, or what another region's kernel put in its place."""
        return self.replaced.get(node, node)

    def call(self, target, *args, **kwargs) -> torch.fx.Node:
        node = self.graph.call_function(target, args, kwargs)
        values, keywords = torch.fx.node.map_arg((args, kwargs), lambda n: n.meta["val"])
        with self.fake_mode:
            node.meta["val"] = target(*values, **keywords)
        return node

    def size(self, value):
        """An int, or a node that computes the symbolic size from the inputs' sizes or products of them."""
        value = plain(value)
        if isinstance(value, int):
            return value
        for size, node, dim in self.sizes:
            if known_equal(size, value):
                return self.call(aten.sym_size.int, node, dim)
        for size, node, dim in self.sizes:
            if known_multiple(value, size) and not known_equal(value // size, value):
                return self.call(operator.mul, self.size(value // size), self.call(aten.sym_size.int, node, dim))
        raise UnsupportedRegionError(Reason.UNSUPPORTED_SHAPE, f"size {value} is not made of the inputs' sizes")

    def reshape(self, node: torch.fx.Node, sizes) -> torch.fx.Node:
        """Reshape; one symbolic size is inferred, others are computed."""
        current = node.meta["val"].shape
        if len(current) == len(sizes) and all(known_equal(a, b) for a, b in zip(current, sizes, strict=True)):
            return node
        symbolic = [i for i, size in enumerate(sizes) if not isinstance(size, int)]
        out = [-1 if symbolic and i == symbolic[0] else self.size(size) for i, size in enumerate(sizes)]
        return self.call(aten.reshape.default, node, out)

    def permute(self, node: torch.fx.Node, order) -> torch.fx.Node:
        return node if list(order) == list(range(len(order))) else self.call(aten.permute.default, node, list(order))

    def canonical(self, binding: Binding) -> torch.fx.Node:
        """The graph's tensor as the definition sees it."""
        node = self.reshape(self.current(binding.node), binding.split)
        return self.reshape(self.permute(node, binding.order), binding.merged)

    def original(self, binding: Binding, result: torch.fx.Node) -> torch.fx.Node:
        """The way back: a result in the shape of the node it replaces."""
        ordered = [binding.split[i] for i in binding.order]
        inverse = [binding.order.index(i) for i in range(len(binding.order))]
        fake = binding.node.meta["val"]
        node = self.reshape(self.permute(self.reshape(result, ordered), inverse), fake.shape)
        odd = [size for size, a, b in zip(fake.shape, node.meta["val"].stride(), fake.stride(), strict=True) if not known_equal(a, b)]
        if not all(map(is_one, odd)):
            raise UnsupportedRegionError(Reason.INTERNAL_ERROR, f"{binding.node} would change its strides")
        if not odd:
            return node
        # dims of one element: their strides mean nothing, but callers can see them
        return self.call(aten.as_strided.default, node, [self.size(n) for n in fake.shape], [self.size(n) for n in fake.stride()])


def _memory_order(binding: Binding) -> list[int]:
    """Dims from the outermost in memory to the innermost. Raises where the output is not a dense permutation."""
    order = sorted(range(len(binding.strides)), key=lambda i: -hint(binding.strides[i]))
    dense = 1
    for index in reversed(order):
        if not known_equal(binding.strides[index], dense):
            raise UnsupportedRegionError(Reason.UNSUPPORTED_LAYOUT, "an output's memory has gaps")
        dense = dense * binding.merged[index]
    return order


def _launches(builder: _Builder, lowered: Lowered, solution: Solution, views: list) -> list[torch.fx.Node]:
    """Inline the traced launcher, each launch made functional."""
    outputs = []
    for spec, binding in zip(lowered.definition.outputs, lowered.outputs, strict=True):
        order = _memory_order(binding)
        sizes = [builder.size(binding.merged[i]) for i in order]
        buffer = builder.call(aten.empty.memory_format, sizes, dtype=getattr(torch, spec.dtype), device=lowered.device, pin_memory=False)
        outputs.append(builder.permute(buffer, [order.index(i) for i in range(len(order))]))
    values = [node.meta["val"] for node in views + outputs]
    traced = trace(load(solution, operators.build_directory()), values[:len(views)], values[len(views):])
    env: dict[torch.fx.Node, torch.fx.Node] = {}
    placeholders = [n for n in traced.graph.nodes if n.op == "placeholder"]
    env.update(zip(placeholders, views + outputs, strict=True))
    written = {n: n for n in placeholders[len(views):]}
    for node in traced.graph.nodes:
        if node.op == "call_function" and inductor.is_kernel_launch(node):
            _functional_launch(builder, node, env, written)
        elif node.op == "call_function":
            copy = builder.graph.node_copy(node, lambda n: env[n])
            copy.meta["val"] = node.meta["val"]
            env[node] = copy
            if node.target in (aten.empty.memory_format, aten.empty_strided.default, aten.new_empty.default):
                written[node] = node
    return [env[n] for n in placeholders[len(views):]]


def _functional_launch(builder: _Builder, node: torch.fx.Node, env: dict, written: dict) -> None:
    launch = node.kwargs["kwargs"]
    mutated = [name for name, arg in launch.items() if arg in written]  # type: ignore[union-attr]
    if not mutated:
        raise UnsupportedRegionError(Reason.FORBIDDEN_LAUNCHER, "a launch writes to none of the outputs or scratch")
    kwargs = torch.fx.node.map_arg(dict(node.kwargs), lambda n: env[n])
    results = inductor.functional_kernel(builder.graph, kwargs, mutated)
    for name in mutated:
        env[launch[name]] = results[name]  # type: ignore[index]


def _operator(builder: _Builder, lowered: Lowered, solution: Solution, views: list) -> list[torch.fx.Node]:
    operators.prepare(lowered.definition, solution)
    shapes, strides, ranks, dtypes, names = [], [], [], [], list(DTYPES)
    for spec, binding in zip(lowered.definition.outputs, lowered.outputs, strict=True):
        order = _memory_order(binding)
        stride: list = [1] * len(order)
        dense = 1
        for index in reversed(order):
            stride[index] = dense
            dense = _multiply(builder, dense, builder.size(binding.merged[index]))
        shapes += [builder.size(s) for s in binding.merged]
        strides += stride
        ranks.append(len(order))
        dtypes.append(names.index(spec.dtype))
    call = builder.call(operators.run_op, views, solution.digest, shapes, strides, ranks, dtypes)
    return [builder.call(operator.getitem, call, i) for i in range(len(ranks))]


def _multiply(builder: _Builder, a, b):
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    if isinstance(a, int) and a == 1:
        return b
    return builder.call(operator.mul, a, b)

