"""Which ATen ops a region may hold, and what each is called in a definition's body.

Anything not listed here is a boundary: it stays Inductor's.
"""

import operator
from typing import Any

import torch

aten, prims = torch.ops.aten, torch.ops.prims

# ATen overload -> body op, operands in ATen's order.
POINTWISE: dict[Any, str] = {
    aten.add.Tensor: "add", aten.sub.Tensor: "sub", aten.mul.Tensor: "mul", aten.div.Tensor: "div",
    aten.add.Scalar: "add", aten.sub.Scalar: "sub", aten.mul.Scalar: "mul", aten.div.Scalar: "div",
    aten.pow.Tensor_Tensor: "pow", aten.pow.Tensor_Scalar: "pow", aten.pow.Scalar: "pow",
    aten.maximum.default: "maximum", aten.minimum.default: "minimum", aten.atan2.default: "atan2",
    aten.fmod.Tensor: "fmod", aten.fmod.Scalar: "fmod", aten.remainder.Tensor: "remainder", aten.remainder.Scalar: "remainder",
    aten.neg.default: "neg", aten.abs.default: "abs", aten.exp.default: "exp", aten.exp2.default: "exp2",
    aten.expm1.default: "expm1", aten.log.default: "log", aten.log2.default: "log2", aten.log10.default: "log10",
    aten.log1p.default: "log1p", aten.sqrt.default: "sqrt", aten.rsqrt.default: "rsqrt", aten.reciprocal.default: "reciprocal",
    aten.sigmoid.default: "sigmoid", aten.tanh.default: "tanh", aten.erf.default: "erf", aten.sin.default: "sin",
    aten.cos.default: "cos", aten.tan.default: "tan", aten.atan.default: "atan", aten.sinh.default: "sinh",
    aten.cosh.default: "cosh", aten.asin.default: "asin", aten.acos.default: "acos", aten.asinh.default: "asinh",
    aten.acosh.default: "acosh", aten.atanh.default: "atanh", aten.relu.default: "relu", aten.sign.default: "sign",
    aten.floor.default: "floor", aten.ceil.default: "ceil", aten.round.default: "round", aten.trunc.default: "trunc",
    aten.isnan.default: "isnan", aten.isinf.default: "isinf", aten.copysign.Tensor: "copysign",
    aten.eq.Tensor: "eq", aten.ne.Tensor: "ne", aten.lt.Tensor: "lt", aten.le.Tensor: "le", aten.gt.Tensor: "gt",
    aten.ge.Tensor: "ge", aten.eq.Scalar: "eq", aten.ne.Scalar: "ne", aten.lt.Scalar: "lt", aten.le.Scalar: "le",
    aten.gt.Scalar: "gt", aten.ge.Scalar: "ge",
    aten.logical_and.default: "logical_and", aten.logical_or.default: "logical_or", aten.logical_xor.default: "logical_xor",
    aten.logical_not.default: "logical_not", aten.bitwise_and.Tensor: "bitwise_and", aten.bitwise_or.Tensor: "bitwise_or",
    aten.bitwise_xor.Tensor: "bitwise_xor", aten.bitwise_not.default: "bitwise_not",
    aten.bitwise_and.Scalar: "bitwise_and", aten.bitwise_or.Scalar: "bitwise_or", aten.bitwise_xor.Scalar: "bitwise_xor",
    aten.where.self: "where", prims.convert_element_type.default: "cast",
    aten.clone.default: "copy",
}
# Bounds are applied one after the other, as PyTorch does: a NaN bound or operand gives NaN.
CLAMPS = {aten.clamp.default: ("maximum", "minimum"), aten.clamp_min.default: ("maximum",), aten.clamp_max.default: ("minimum",)}

REDUCTIONS: dict[Any, str] = {
    aten.sum.dim_IntList: "sum", aten.sum.default: "sum", aten.mean.dim: "mean", aten.mean.default: "mean",
    aten.amax.default: "amax", aten.amin.default: "amin", aten.prod.dim_int: "prod", aten.any.dim: "any", aten.any.dims: "any",
    aten.any.default: "any", aten.all.dim: "all", aten.all.dims: "all", aten.all.default: "all",
    aten.var.correction: "var",
}
VAR_MEAN = aten.var_mean.correction  # two results, each behind a getitem

VIEWS = {
    aten.view.default, aten.reshape.default, aten._unsafe_view.default, aten.permute.default, aten.expand.default,
    aten.unsqueeze.default, aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.slice.Tensor, aten.t.default,
    aten.transpose.int, aten.alias.default,
}
# Views that only relabel or broadcast dims: a region reads through them to the tensor behind.
TRANSPARENT = {aten.permute.default, aten.expand.default, aten.unsqueeze.default, aten.squeeze.default, aten.squeeze.dim,
               aten.squeeze.dims, aten.t.default, aten.transpose.int, aten.alias.default}

CAT = aten.cat.default
IOTA = prims.iota.default
FULL = {aten.full.default, aten.scalar_tensor.default}

# Ops that Inductor fuses with their neighbours though no body can hold them: a region that borders on one through a large
# tensor would break a fusion that Inductor makes.
FUSIBLE_ELSEWHERE = {
    aten.embedding.default, aten.index.Tensor, aten.gather.default, aten.index_put.default, aten.index_put_.default,
    aten._unsafe_index.Tensor, aten._unsafe_index_put.default, aten.constant_pad_nd.default, aten.copy.default, aten.copy_.default,
    aten.slice_scatter.default, aten.select_scatter.default, aten.scatter.src, aten.scatter.value, aten.index_select.default,
    aten.select.int, aten.cumsum.default, aten._unsafe_masked_index.default, aten.masked_fill.Scalar,
}


def is_call(node: torch.fx.Node, targets) -> bool:
    return node.op == "call_function" and node.target in targets


def is_view(node: torch.fx.Node) -> bool:
    return is_call(node, VIEWS)


def is_compute(node: torch.fx.Node) -> bool:
    """True for a node that a body can hold (views and constants aside)."""
    if node.op != "call_function":
        return False
    if node.target is operator.getitem:
        return is_call(node.args[0], (VAR_MEAN,))  # type: ignore[arg-type]
    if node.target is aten.clone.default and _reads_broadcast(node):
        return False  # it materialises a broadcast: the copy is Inductor's
    return node.target in POINTWISE or node.target in CLAMPS or node.target in REDUCTIONS or node.target in (VAR_MEAN, CAT)


def _reads_broadcast(node: torch.fx.Node) -> bool:
    source = node.args[0]
    while is_view(source):  # type: ignore[arg-type]
        if source.target is aten.expand.default:  # type: ignore[union-attr]
            return True
        source = source.args[0]  # type: ignore[union-attr]
    return False


def is_reduction(node: torch.fx.Node) -> bool:
    return is_call(node, REDUCTIONS) or is_call(node, (VAR_MEAN,))


def is_constant(node: torch.fx.Node) -> bool:
    """True for a node without tensor inputs, whose value a body recomputes."""
    return is_call(node, FULL) or is_call(node, (IOTA,))


def is_ordered(node: torch.fx.Node) -> bool:
    """True for a node that draws random numbers, talks to other processes or writes: it keeps its place among its like."""
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return False
    communicates = node.target.namespace in ("_c10d_functional", "c10d_functional", "c10d")
    return communicates or torch.Tag.nondeterministic_seeded in node.target.tags or node.target._schema.is_mutable
