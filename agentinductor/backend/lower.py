"""Lower a region to a definition: views become index maps, dims become axes, the rest becomes a loop program.

The reverse way, from the definition's tensors to the graph's, is kept as Bindings.
"""

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from ..errors import UnsupportedRegionError
from ..schema import Axis, Definition, Node, Reason, TensorSpec, Workload
from ..schema.axes import DTYPES
from ..schema.body import Operand
from ..schema.canonical import canonicalize, simplify
from . import op_support as ops
from .dims import Atom, Dim, fresh_dims, hint, is_one, known_equal, leaves, plain, regroup, unify
from .kinds import name_kind
from .region import Binding, Lowered, Region


@dataclass
class Value:
    """A value while lowering: its dims as atoms, what it is called, what it varies over."""

    operand: Operand
    dims: list[Dim]
    varies: list[Atom]
    dtype: str


@dataclass
class RawNode:
    op: str
    args: tuple[Operand, ...]
    dtype: str
    varies: list[Atom]
    attrs: dict = field(default_factory=dict)  # values may be Atoms or lists of Atoms


def lower(region: Region) -> Lowered:
    """The region's definition, workload and bindings. Raises UnsupportedRegionError with the reason."""
    return _Lowering(region).run()


def dtype_name(dtype: torch.dtype) -> str:
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise UnsupportedRegionError(Reason.UNSUPPORTED_DTYPE, name)
    return name


class _Lowering:
    def __init__(self, region: Region):
        self.region = region
        self.values: dict[torch.fx.Node, Value] = {}
        self.inputs: list[tuple[torch.fx.Node, Value]] = []
        self.raw: list[RawNode] = []
        self.sliced = _bases_used_twice(region)

    def run(self) -> Lowered:
        for node in self.region.nodes:
            self.visit(node)
        outputs = [(node, self.values[node]) for node in self.region.outputs]
        order = self.domain_order(outputs)
        for value in self.values.values():
            _check_distinct(value)
        for raw in self.raw:
            raw.varies = list(dict.fromkeys(leaves(raw.varies)))
        groups = self.merge(order, outputs)
        return self.finish(groups, outputs)

    # -- values ----------------------------------------------------------------------------------------------------

    def visit(self, node: torch.fx.Node) -> Value:
        if node not in self.values:
            self.values[node] = self.make(node)
        return self.values[node]

    def make(self, node: torch.fx.Node) -> Value:
        member = node in self.region.members
        if member and node.target is operator.getitem:
            return self.var_mean(node)
        if member and ops.is_call(node, (ops.VAR_MEAN,)):
            return Value(0, [], [], "float32")  # its getitems speak for it
        if member and ops.is_call(node, (ops.CAT,)):
            return self.cat(node)
        if member and ops.is_reduction(node):
            return self.reduction(node)
        if member:
            return self.pointwise(node)
        if ops.is_constant(node):
            return self.constant(node)
        if ops.is_view(node) and self.reads_through(node):
            return self.view(node)
        return self.external(node)

    def reads_through(self, node: torch.fx.Node) -> bool:
        """Views of members, of constants, broadcasts of anything, and slices of a tensor that is read more than once."""
        base = node
        while ops.is_view(base):
            base = _args(base)[0]
        if base in self.region.members or ops.is_constant(base):
            return True
        if ops.is_call(node, (torch.ops.aten.slice.Tensor,)):
            return node.args[0] in self.sliced
        return ops.is_call(node, ops.TRANSPARENT)

    def external(self, node: torch.fx.Node) -> Value:
        val = _tensor(node)
        if free_unbacked_symbols(val):
            raise UnsupportedRegionError(Reason.UNSUPPORTED_SHAPE, "a size depends on data")
        dims = fresh_dims(val.shape)
        value = Value(f"x{len(self.inputs)}", dims, [a for dim in dims for a in dim], dtype_name(val.dtype))
        self.inputs.append((node, value))
        return value

    def emit(self, op, args, dtype, varies, **attrs) -> Operand:
        self.raw.append(RawNode(op, tuple(args), dtype, varies, attrs))
        return f"t{len(self.raw) - 1}"

    def constant(self, node: torch.fx.Node) -> Value:
        val = _tensor(node)
        dtype = dtype_name(val.dtype)
        dims = fresh_dims(val.shape)
        if ops.is_call(node, (ops.IOTA,)):
            start, step = _kwargs(node)["start"], _kwargs(node)["step"]
            if not dims[0]:
                return Value(_scalar(start), dims, [], dtype)
            atom = dims[0][0]
            atom.frozen = True
            return Value(self.emit("iota", (), dtype, [atom], axis=atom, start=_scalar(start), step=_scalar(step)), dims, [atom], dtype)
        fill = _args(node)[1] if ops.is_call(node, (torch.ops.aten.full.default,)) else _args(node)[0]
        return Value(self.emit("cast", (_scalar(fill),), dtype, []), dims, [], dtype)

    def pointwise(self, node: torch.fx.Node) -> Value:
        if ops.is_call(node, ops.CLAMPS):
            return self.clamp(node)
        op = ops.POINTWISE[node.target]
        args = list(node.args[:1] if op in ("cast", "copy") else node.args)
        alpha = node.kwargs.get("alpha", 1)
        if node.kwargs.get("rounding_mode") is not None or alpha != 1 or (op == "round" and node.kwargs.get("decimals")):
            raise UnsupportedRegionError(Reason.UNSUPPORTED_OP, f"{node.target} with {dict(node.kwargs)}")
        operands = [self.visit(a) if isinstance(a, torch.fx.Node) else _scalar(a) for a in args]
        dtype = dtype_name(_tensor(node).dtype)
        dims, varies = self.broadcast(node, [v for v in operands if isinstance(v, Value)])
        names = [v.operand if isinstance(v, Value) else v for v in operands]
        if op == "copy":
            return Value(names[0], dims, varies, dtype)
        return Value(self.emit(op, names, dtype, varies), dims, varies, dtype)

    def clamp(self, node: torch.fx.Node) -> Value:
        args = [*_args(node), None, None]
        low, high = args[1], args[2]
        if ops.is_call(node, (torch.ops.aten.clamp_max.default,)):
            low, high = None, args[1]
        low, high = _kwargs(node).get("min", low), _kwargs(node).get("max", high)
        value = self.visit(args[0])
        dtype, operand = dtype_name(_tensor(node).dtype), value.operand
        for op, bound in (("maximum", low), ("minimum", high)):
            if bound is not None:
                operand = self.emit(op, (operand, _scalar(bound)), dtype, value.varies)
        return Value(operand, value.dims, value.varies, dtype)

    def broadcast(self, node: torch.fx.Node, operands: Sequence[Value]) -> tuple[list[Dim], list[Atom]]:
        rank = _tensor(node).dim()
        dims: list[Dim] = [()] * rank
        for value in operands:
            for offset, dim in enumerate(reversed(value.dims)):
                index = rank - 1 - offset
                if dim and dims[index]:
                    unify(dims[index], dim)
                elif dim:
                    dims[index] = dim
        for dim, size in zip(dims, _tensor(node).shape, strict=True):
            if not dim and not is_one(size):
                raise UnsupportedRegionError(Reason.UNSUPPORTED_SHAPE, "a result is larger than its operands")
        return dims, [atom for value in operands for atom in value.varies]

    def reduction(self, node: torch.fx.Node) -> Value:
        op = ops.REDUCTIONS[node.target]
        args, kwargs = _args(node), _kwargs(node)
        value = self.visit(args[0])
        axes = args[1] if len(args) > 1 and args[1] is not None else kwargs.get("dim")
        keepdim = args[2] if len(args) > 2 else kwargs.get("keepdim", False)
        attrs = {}
        if op == "var":
            keepdim = kwargs.get("keepdim", False)
            attrs["correction"] = _correction(node)
        dtype = kwargs.get("dtype")
        operand = value.operand
        if dtype is not None and dtype_name(dtype) != value.dtype:
            operand = self.emit("cast", (operand,), dtype_name(dtype), value.varies)
        return self.reduce(node, op, Value(operand, value.dims, value.varies, value.dtype), axes, bool(keepdim), attrs)

    def var_mean(self, node: torch.fx.Node) -> Value:
        call, which = _args(node)
        value = self.visit(call.args[0])
        axes = call.args[1] if len(call.args) > 1 else call.kwargs.get("dim")
        op, attrs = ("var", {"correction": _correction(call)}) if which == 0 else ("mean", {})
        return self.reduce(node, op, value, axes, bool(call.kwargs.get("keepdim", False)), attrs)

    def reduce(self, node, op, value: Value, axes, keepdim: bool, attrs: dict) -> Value:
        rank = len(value.dims)
        axes = range(rank) if axes is None or axes == [] else ([axes] if isinstance(axes, int) else axes)
        reduced = {axis % rank for axis in axes} if rank else set()
        atoms = leaves([atom for axis in sorted(reduced) for atom in value.dims[axis]])
        varies = set(leaves(value.varies))
        if any(atom not in varies for atom in atoms):
            raise UnsupportedRegionError(Reason.UNSUPPORTED_SHAPE, "a reduction over a broadcast dim")
        dims = [() if i in reduced else dim for i, dim in enumerate(value.dims) if keepdim or i not in reduced]
        rest = [atom for atom in leaves(value.varies) if atom not in set(atoms)]
        dtype = dtype_name(_tensor(node).dtype)
        if op in ("any", "all"):  # of bytes they are bytes, 0 or 1
            truth = self.reduced(op, self.cast(value, "bool"), atoms, rest, "bool", attrs)
            return self.cast(Value(truth, dims, rest, "bool"), dtype)
        return Value(self.reduced(op, value, atoms, rest, dtype, attrs), dims, rest, dtype)

    def reduced(self, op: str, value: Value, atoms: list[Atom], rest: list[Atom], dtype: str, attrs: dict) -> Operand:
        if atoms:
            return self.emit(op, (value.operand,), dtype, rest, axes=atoms, **attrs)
        if op == "var" or dtype != value.dtype:  # every reduced dim has one element
            raise UnsupportedRegionError(Reason.UNSUPPORTED_SHAPE, f"{op} over one element")
        return value.operand

    def cast(self, value: Value, dtype: str) -> Value:
        if value.dtype == dtype:
            return value
        return Value(self.emit("cast", (value.operand,), dtype, value.varies), value.dims, value.varies, dtype)

    def cat(self, node: torch.fx.Node) -> Value:
        tensors, *rest = _args(node)
        axis = (rest[0] if rest else _kwargs(node).get("dim", 0)) % _tensor(node).dim()
        parts = [self.visit(tensor) for tensor in tensors]
        joined = Atom(_tensor(node).shape[axis], frozen=True)
        dims, along = list(parts[0].dims), []
        for part in parts:
            for index, dim in enumerate(part.dims):
                if index != axis and index < len(dims):
                    unify(dims[index], dim)
            along.append(_whole(part.dims[axis]))
        dims[axis] = (joined,)
        varies = [atom for part in parts for atom in part.varies if atom.find() not in {a.find() for a in along}] + [joined]
        dtype = dtype_name(_tensor(node).dtype)
        if any(not isinstance(part.operand, str) or part.dtype != dtype for part in parts):
            raise UnsupportedRegionError(Reason.UNSUPPORTED_OP, "cat of constants or of mixed dtypes")
        return Value(self.emit("cat", [p.operand for p in parts], dtype, varies, axis=joined, parts=along), dims, varies, dtype)

    def view(self, node: torch.fx.Node) -> Value:
        aten = torch.ops.aten
        args = _args(node)
        value = self.visit(args[0])
        target, sizes, rank = node.target, _tensor(node).shape, len(value.dims)
        if target is aten.slice.Tensor:
            return self.slice(node, value)
        if target is aten.permute.default:
            dims = [value.dims[i] for i in args[1]]
        elif target is aten.transpose.int:
            dims = list(value.dims)
            a, b = args[1] % rank, args[2] % rank
            dims[a], dims[b] = dims[b], dims[a]
        elif target is aten.t.default:
            dims = list(reversed(value.dims))
        elif target is aten.expand.default:
            padded: list[Dim] = [()] * (len(sizes) - rank) + value.dims
            dims = [dim if dim or is_one(size) else (Atom(size),) for dim, size in zip(padded, sizes, strict=True)]
        elif target in (aten.alias.default,):
            dims = value.dims
        else:  # reshape, view, squeeze, unsqueeze
            dims = regroup(value.dims, sizes)
        return Value(value.operand, dims, value.varies, value.dtype)

    def slice(self, node: torch.fx.Node, value: Value) -> Value:
        args = [*_args(node), None, None, None, None]
        axis = (args[1] or 0) % len(value.dims)
        source, size = plain(_tensor(args[0]).shape[axis]), plain(_tensor(node).shape[axis])
        if known_equal(source, size):
            return value
        start, step = args[2] or 0, args[4] or 1
        if not all(isinstance(n, int) for n in (source, size, start, step)):
            raise UnsupportedRegionError(Reason.UNSUPPORTED_SHAPE, "a slice of symbolic size")
        start = max(start + source, 0) if start < 0 else start
        if is_one(size):
            raise UnsupportedRegionError(Reason.UNSUPPORTED_SHAPE, "a slice of one element")
        atom, to = _whole(value.dims[axis]), Atom(size, frozen=True)
        if atom not in {a.find() for a in leaves(value.varies)}:
            raise UnsupportedRegionError(Reason.UNSUPPORTED_SHAPE, "a slice of a broadcast dim")
        atom.frozen = True
        dims = list(value.dims)
        dims[axis] = (to,)
        varies = [a for a in leaves(value.varies) if a is not atom] + [to]
        operand = self.emit("slice", (value.operand,), value.dtype, varies, axis=atom, to=to, start=start, step=step)
        return Value(operand, dims, varies, value.dtype)

    # -- axes ------------------------------------------------------------------------------------------------------

    def domain_order(self, outputs) -> list[Atom]:
        """All axes: those of the largest output by stride, then the others, reduced ones last."""
        reduced = {a.find() for raw in self.raw for a in leaves(raw.attrs.get("axes", []))}
        tensors = sorted(outputs, key=lambda item: -len(leaves(_flat(item[1].dims)))) + self.inputs
        order: list[Atom] = []
        for node, value in tensors:
            strides = _tensor(node).stride()
            dims = sorted(range(len(value.dims)), key=lambda i: -hint(strides[i]))
            order.extend(leaves([a for i in dims for a in value.dims[i]]))
        order.extend(a for raw in self.raw for a in leaves(raw.varies))
        order.extend(a for raw in self.raw if raw.op == "slice" for a in (raw.attrs["axis"].find(), raw.attrs["to"].find()))
        order.extend(a.find() for raw in self.raw for a in raw.attrs.get("parts", []))  # a constant part varies over nothing
        order = list(dict.fromkeys(order))
        return [a for a in order if a not in reduced] + [a for a in order if a in reduced]

    def merge(self, order: list[Atom], outputs) -> list[list[Atom]]:
        """Groups of adjacent axes that every value and every tensor treats as one."""
        marked = {raw.attrs[key].find() for raw in self.raw for key in ("axis", "to") if key in raw.attrs}
        marked |= {a.find() for raw in self.raw for a in raw.attrs.get("parts", [])}
        sets = [set(raw.varies) for raw in self.raw] + [set(leaves(raw.attrs["axes"])) for raw in self.raw if "axes" in raw.attrs]
        strided = [dict(_leaf_strides(node, value)) for node, value in self.inputs + outputs]
        sets += [set(strides) for strides in strided]
        groups: list[list[Atom]] = []
        for atom in order:
            if groups and self._mergeable(groups[-1][-1], atom, marked, sets, strided):
                groups[-1].append(atom)
            else:
                groups.append([atom])
        return groups

    @staticmethod
    def _mergeable(outer: Atom, inner: Atom, marked, sets, strided) -> bool:
        if outer in marked or inner in marked or any((outer in s) != (inner in s) for s in sets):
            return False
        return all(known_equal(s[outer], s[inner] * inner.size) for s in strided if outer in s)

    # -- the definition --------------------------------------------------------------------------------------------

    def finish(self, groups: list[list[Atom]], outputs) -> Lowered:
        axes, names = self.name_axes(groups, outputs)
        body = [self._node(i, raw, names, axes) for i, raw in enumerate(self.raw)]
        ins = [_binding(node, value, groups) for node, value in self.inputs]
        outs = [_binding(node, value, groups) for node, value in outputs]
        specs = [_spec(f"x{i}", b, v, groups, axes) for i, (b, (_, v)) in enumerate(zip(ins, self.inputs, strict=True))]
        out_specs = [_spec(f"y{i}", b, v, groups, axes) for i, (b, (_, v)) in enumerate(zip(outs, outputs, strict=True))]
        results = []
        for _, value in outputs:
            if not isinstance(value.operand, str):
                raise UnsupportedRegionError(Reason.UNSUPPORTED_OP, "an output is a constant")
            if set(leaves(value.varies)) != set(leaves(_flat(value.dims))):
                raise UnsupportedRegionError(Reason.UNSUPPORTED_SHAPE, "an output is a broadcast")
            results.append(value.operand)
        body, results = simplify(body, results, {s.name: s.dtype for s in specs})
        if any(r in {s.name for s in specs} for r in results):
            raise UnsupportedRegionError(Reason.UNSUPPORTED_OP, "an output is a copy of an input")
        inputs, nodes, new_outputs, new_results, in_order, out_order = canonicalize(specs, body, out_specs, results)
        used = {a for s in inputs + new_outputs for a in s.shape} | {a for n in nodes for a in n.axes}
        used |= {a for n in nodes for _, v in n.attrs for a in ((v,) if isinstance(v, str) else v if isinstance(v, tuple) else ())}
        definition = Definition(tuple(a for a in axes if a.name in used), inputs, nodes, new_outputs, new_results)
        definition = Definition(definition.axes, inputs, nodes, new_outputs, new_results, name_kind(definition))
        workload, dynamic = self._workload(definition, groups, axes, [ins[i] for i in in_order], [outs[i] for i in out_order])
        device = _tensor(self.region.outputs[0]).device
        inputs_back, outputs_back = tuple(ins[i] for i in in_order), tuple(outs[i] for i in out_order)
        return Lowered(self.region, definition, workload, inputs_back, outputs_back, device, dynamic)

    def name_axes(self, groups, outputs) -> tuple[list[Axis], dict[Atom, str]]:
        reduced = {a.find() for raw in self.raw for a in leaves(raw.attrs.get("axes", []))}
        looped = {a for _, value in outputs for a in leaves(_flat(value.dims))} | reduced
        marked = {raw.attrs[key].find() for raw in self.raw for key in ("axis", "to") if key in raw.attrs}
        marked |= {a.find() for raw in self.raw for a in raw.attrs.get("parts", [])}
        spatial = [g for g in groups if g[0] not in reduced and g[0] in looped]
        parts = [g for g in groups if g[0] not in looped]
        columns = [g for g in groups if g[0] in reduced]
        const = {id(g) for g in columns + parts} | {id(g) for g in groups if g[0] in marked}
        labels: dict[int, str] = {}
        if not columns and len(spatial) > 1:
            columns = [spatial.pop()]
            const.add(id(columns[0]))
        _label(spatial, "rows" if columns else "numel", labels)
        _label(columns, "cols", labels)
        _label(parts, "part", labels, always=True)
        axes, names = [], {}
        for group in groups:
            size = _product([a.size for a in group])
            static = isinstance(size, int) and id(group) in const
            if not isinstance(size, int) and group[0] in marked:
                raise UnsupportedRegionError(Reason.UNSUPPORTED_SHAPE, "a slice, cat or iota along an axis of symbolic size")
            axes.append(Axis(labels[id(group)], size if static else None, group[0] in reduced))
            names.update(dict.fromkeys(group, labels[id(group)]))
        return axes, names

    def _node(self, index: int, raw: RawNode, names: dict[Atom, str], axes: list[Axis]) -> Node:
        def named(value):
            if isinstance(value, Atom):
                return names[value.find()]
            return tuple(dict.fromkeys(names[a.find()] for a in leaves(value))) if isinstance(value, list) and raw.op != "cat" else (
                tuple(names[a.find()] for a in value) if isinstance(value, list) else value)

        varies = {names[a] for a in raw.varies}
        attrs = tuple(sorted((key, named(value)) for key, value in raw.attrs.items()))
        return Node(f"t{index}", raw.op, raw.args, raw.dtype, tuple(a.name for a in axes if a.name in varies), attrs)

    def _workload(self, definition, groups, axes, ins, outs) -> tuple[Workload, bool]:
        group_of = {axis.name: group for axis, group in zip(axes, groups, strict=True)}
        sizes, dynamic = {}, False
        for axis in definition.var_axes:
            size = _product([a.size for a in group_of[axis.name]])
            dynamic = dynamic or not isinstance(size, int)
            sizes[axis.name] = hint(size)
        strides = {}
        for spec, binding in zip(definition.inputs + definition.outputs, ins + outs, strict=True):
            if spec.layout != "contiguous":
                strides[spec.name] = tuple(hint(s) for s in binding.strides)
        return Workload.of(sizes, strides), dynamic


def _label(groups, stem: str, labels: dict[int, str], always: bool = False) -> None:
    for i, group in enumerate(groups):
        labels[id(group)] = stem if len(groups) == 1 and not always else f"{stem}{i}"


def _flat(dims: Sequence[Dim]) -> list[Atom]:
    return [atom for dim in dims for atom in dim]


def _product(sizes):
    total = 1
    for size in sizes:
        total = total * size
    return plain(total)


def _args(node: torch.fx.Node) -> tuple[Any, ...]:
    """torch.fx types an argument as a union of everything; the op tables say what it is."""
    return node.args


def _kwargs(node: torch.fx.Node) -> Mapping[str, Any]:
    return node.kwargs


def _tensor(node: torch.fx.Node) -> torch.Tensor:
    val = node.meta.get("val")
    if not isinstance(val, torch.Tensor):
        raise UnsupportedRegionError(Reason.UNSUPPORTED_OP, f"{node} has no single tensor value")
    return val


def _scalar(value) -> int | float | bool:
    if not isinstance(value, int | float | bool):
        raise UnsupportedRegionError(Reason.UNSUPPORTED_SHAPE, "a number known only at run time takes part in the arithmetic")
    return value


def _correction(node: torch.fx.Node) -> int:
    correction = _kwargs(node).get("correction", 1)
    if correction is None:
        return 1
    if int(correction) != correction:
        raise UnsupportedRegionError(Reason.UNSUPPORTED_OP, f"var with correction {correction}")
    return int(correction)


def _whole(dim: Dim) -> Atom:
    atoms = leaves(dim)
    if len(atoms) != 1:
        raise UnsupportedRegionError(Reason.UNSUPPORTED_SHAPE, "a slice or cat along a dim that is one element or several axes")
    atoms[0].frozen = True
    return atoms[0]


def _check_distinct(value: Value) -> None:
    atoms = leaves(_flat(value.dims))
    if len(set(atoms)) != len(atoms):
        raise UnsupportedRegionError(Reason.UNSUPPORTED_SHAPE, "a tensor meets its own transpose")


def _bases_used_twice(region: Region) -> set:
    """Tensors from outside that members slice and read otherwise too: the slice is taken inside."""
    uses: dict[torch.fx.Node, set[torch.fx.Node]] = {}
    stack, seen = list(region.nodes), set(region.nodes)
    while stack:
        node = stack.pop()
        for arg in node.all_input_nodes:
            if arg not in region.members:
                uses.setdefault(arg, set()).add(node)
                if ops.is_view(arg) and arg not in seen:
                    seen.add(arg)
                    stack.append(arg)
    return {base for base, users in uses.items() if len(users) > 1}


def _leaf_strides(node: torch.fx.Node, value: Value) -> list[tuple[Atom, Any]]:
    """(axis, stride in elements) for each axis of a boundary tensor, in graph order."""
    out: list[tuple[Atom, Any]] = []
    for dim, stride in zip(value.dims, _tensor(node).stride(), strict=True):
        pairs = []
        for atom in reversed(leaves(dim)):
            pairs.append((atom, stride))
            stride = stride * atom.size
        out.extend(reversed(pairs))
    return out


def _binding(node: torch.fx.Node, value: Value, groups: list[list[Atom]]) -> Binding:
    pairs = _leaf_strides(node, value)
    position = {atom: i for i, (atom, _) in enumerate(pairs)}
    order: list[int] = []
    merged, strides = [], []
    for group in groups:
        if group[0] in position:
            order.extend(position[atom] for atom in group)
            merged.append(_product([atom.size for atom in group]))
            strides.append(pairs[position[group[-1]]][1])
    return Binding(node, tuple(atom.size for atom, _ in pairs), tuple(order), tuple(merged), tuple(strides))


def _spec(name: str, binding: Binding, value: Value, groups, axes) -> TensorSpec:
    atoms = set(leaves(_flat(value.dims)))
    shape = tuple(axis.name for axis, group in zip(axes, groups, strict=True) if group[0] in atoms)
    dense, layout = 1, "contiguous"
    for size, stride in zip(reversed(binding.merged), reversed(binding.strides), strict=True):
        if not known_equal(stride, dense):
            layout = "strided"
        dense = dense * size
    if layout == "strided" and binding.strides and known_equal(binding.strides[-1], 1):
        layout = "inner_contiguous"
    return TensorSpec(name, shape, value.dtype, layout)
