"""What people call a definition: a name read off its body. It decides nothing."""

from ..schema import Definition


def name_kind(definition: Definition) -> str:
    """Such as "rms_norm", "add_layer_norm", "softmax", "rope", "gelu_bias", ..., or else "pointwise" or "reduction"."""
    ops = {node.op for node in definition.body}
    reductions = [node.op for node in definition.body if node.attrs and "axes" in dict(node.attrs)]
    if "cat" in ops and not reductions:
        return "rope" if "neg" in ops else "pointwise"
    if not reductions:
        return _pointwise_kind(definition, ops)
    if "var" in reductions and "rsqrt" in ops:
        return _residual(definition, "layer_norm")
    if "mean" in reductions and "rsqrt" in ops:
        return _residual(definition, "rms_norm")
    if "amax" in reductions and "exp" in ops and "sum" in reductions:
        return "log_softmax" if "log" in ops else "softmax"
    return "reduction"


def _residual(definition: Definition, stem: str) -> str:
    """A norm whose row is a sum of two full tensors is called add_<norm>."""
    full = {spec.name for spec in definition.inputs if len(spec.shape) == len(definition.axes)}
    added = any(node.op == "add" and len(set(node.operands) & full) == 2 for node in definition.body)
    return f"add_{stem}" if added or len(full) > 1 else stem


def _pointwise_kind(definition: Definition, ops: set[str]) -> str:
    if "erf" in ops:
        stem = "gelu"
    elif "tanh" in ops:
        stem = "gelu_tanh" if len(ops & {"mul", "add"}) == 2 else "tanh"
    elif "sigmoid" in ops or {"exp", "neg", "div"} <= ops:
        stem = "silu"
    else:
        return "pointwise"
    full = [spec for spec in definition.inputs if len(spec.shape) == len(definition.axes)]
    bias = len(full) < len(definition.inputs)
    gated = len(full) > 1 and not bias and any(node.op == "mul" and node.name == definition.results[0] for node in definition.body)
    if gated:
        return {"silu": "swiglu", "gelu": "geglu", "gelu_tanh": "geglu_tanh"}.get(stem, f"{stem}_gated")
    return stem + ("_bias" if bias else "") + ("_residual" if len(full) > 1 else "")
