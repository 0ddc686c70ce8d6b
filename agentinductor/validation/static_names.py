"""The names that Triton solutions may use, place by place."""

IMPORTS = {  # (from, name, as)
    (None, "torch", None), (None, "triton", None), (None, "math", None), (None, "triton.language", "tl"), ("triton", "language", "tl"),
    ("triton.language.extra", "libdevice", None), (None, "triton.language.extra.libdevice", "libdevice"),
}
BUILTINS = frozenset(("min", "max", "len", "int", "range", "abs", "bool"))  # of a launcher
KERNEL_BUILTINS = frozenset(("min", "max", "len", "int", "float", "range", "abs"))
TORCH_CALLS = frozenset(("empty", "empty_like", "empty_strided"))
TORCH = frozenset(("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"))
TRITON = frozenset(("jit", "cdiv", "next_power_of_2"))
MATH = frozenset(("ceil", "floor", "sqrt", "log2", "exp", "log", "pi", "e", "inf", "prod", "gcd"))
LAUNCHER_ATTRIBUTES = frozenset(("shape", "dtype", "device", "ndim", "T", "mT", "itemsize"))
LAUNCHER_METHODS = frozenset((
    "view", "reshape", "permute", "transpose", "as_strided", "stride", "size", "numel", "dim", "unsqueeze", "squeeze", "expand", "flatten",
    "unflatten", "narrow", "select", "element_size", "is_contiguous", "t", "new_empty",
))
TL_DENIED = frozenset((  # modules, and what runs or prints outside the language
    "core", "math", "random", "semantic", "standard", "target_info", "extra", "tensor_descriptor", "inline_asm_elementwise",
    "static_print", "device_print", "device_assert", "constexpr_function", "PropagateNan",
))
TL_NESTED = {
    "PropagateNan": frozenset(("ALL", "NONE")),
    "math": frozenset(("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sqrt_rn", "div_rn", "erf", "sin", "cos", "abs", "fma", "floor",
                       "ceil", "umulhi", "fdiv", "max", "min", "cdiv")),
}
KERNEL_ATTRIBUTES = frozenset((  # of tensors, types and descriptors
    "to", "cast", "shape", "dtype", "T", "trans", "reshape", "view", "broadcast_to", "expand_dims", "permute", "split", "element_ty", "sum",
    "max", "min", "exp", "exp2", "log", "log2", "sqrt", "rsqrt", "abs", "floor", "ceil", "sigmoid", "softmax", "argmax", "argmin", "load",
    "store", "primitive_bitwidth", "is_floating", "is_int", "logical_and", "logical_or", "value", "item", "gather", "associative_scan",
    "cumsum", "cumprod", "cdiv", "ravel", "erf", "sin", "cos", "fma",
))
