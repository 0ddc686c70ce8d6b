"""The body's pointwise ops as CUDA C++ expressions, and the device functions that kernels start with."""

import math
from collections.abc import Sequence

from ..errors import UnsupportedRegionError
from ..schema import Node, Reason
from ..schema.axes import FLOATS
from .loops import Term, combined

TYPES = {"float64": "double", "float32": "float", "int64": "long long", "int32": "int", "int16": "short", "int8": "signed char",
         "uint8": "unsigned char", "bool": "bool"}
STORED = {**TYPES, "float16": "__half", "bfloat16": "__nv_bfloat16", "bool": "unsigned char"}

PRELUDE = """\
template <typename T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack { T at[N]; };

// N neighbours at once; `aligned` says that the address is a multiple of 16 bytes (or of the pack's size)
template <int N, typename T>
__device__ __forceinline__ Pack<T, N> read(const T* p, bool aligned) {
    Pack<T, N> out;
    if (aligned) return *reinterpret_cast<const Pack<T, N>*>(p);
#pragma unroll
    for (int j = 0; j < N; ++j) out.at[j] = p[j];
    return out;
}

template <int N, typename T>
__device__ __forceinline__ void write(T* p, const Pack<T, N>& pack, bool aligned) {
    if (aligned) { *reinterpret_cast<Pack<T, N>*>(p) = pack; return; }
#pragma unroll
    for (int j = 0; j < N; ++j) p[j] = pack.at[j];
}

struct Sum { template <typename T> __device__ T operator()(T a, T b) const { return a + b; } };
struct Product { template <typename T> __device__ T operator()(T a, T b) const { return a * b; } };
struct Max { template <typename T> __device__ T operator()(T a, T b) const { return a > b || a != a ? a : b; } };  // NaN wins
struct Min { template <typename T> __device__ T operator()(T a, T b) const { return a < b || a != a ? a : b; } };

// Over a row's threads: WARPS whole warps. Always in the same order, so two runs agree to the last bit.
template <int WARPS, typename Op, typename T>
__device__ __forceinline__ T reduce(T value, Op op) {
#pragma unroll
    for (int distance = 16; distance > 0; distance >>= 1) value = op(value, __shfl_xor_sync(0xffffffffu, value, distance));
    if (WARPS > 1) {
        __shared__ T parts[WARPS];
        __syncthreads();  // whoever still reads an earlier reduction's parts
        if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
        __syncthreads();
        value = parts[0];
#pragma unroll
        for (int w = 1; w < WARPS; ++w) value = op(value, parts[w]);
    }
    return value;
}
"""

_INFIX = {"add": "+", "sub": "-", "mul": "*", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
          "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^", "logical_and": "&", "logical_or": "|", "logical_xor": "^"}
_LIBRARY = {"exp", "exp2", "expm1", "tanh", "erf", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "atan", "sinh", "cosh",
            "asin", "acos", "asinh", "acosh", "atanh", "sqrt", "rsqrt", "floor", "ceil", "trunc", "fmod", "copysign", "atan2",
            "pow"}
_POWERS = {2.0: "{0} * {0}", 3.0: "{0} * {0} * {0}", 1.0: "{0}"}


def literal(text: str, dtype: str) -> str:
    """A Python number in a term's text, as a constant of `dtype`."""
    named = {"True": 1, "False": 0}.get(text)
    value = named if named is not None else float(text) if any(c in text for c in ".einfa") else int(text)
    if dtype == "bool":
        return "true" if value else "false"
    if dtype not in FLOATS:
        return f"({int(value)}LL)" if dtype == "int64" else f"({TYPES[dtype]})({int(value)})"
    value, single = float(value), dtype == "float32"
    if math.isnan(value):
        return "__int_as_float(0x7fffffff)" if single else "__longlong_as_double(0x7fffffffffffffffLL)"
    if math.isinf(value) or (single and abs(value) >= 3.4028235677973366e38):
        infinity = "__int_as_float(0x7f800000)" if single else "__longlong_as_double(0x7ff0000000000000LL)"
        return f"(-{infinity})" if value < 0 else infinity
    return f"({value!r}{'f' if single else ''})" if math.copysign(1, value) < 0 else f"{value!r}{'f' if single else ''}"


def converted(term: Term, dtype: str) -> str:
    """`term` in compute type `dtype`."""
    if term.number:
        return literal(term.text, dtype)
    if term.dtype == dtype:
        return term.text
    return f"({term.text} != 0)" if dtype == "bool" else f"(({TYPES[dtype]}){term.text})"


def from_memory(text: str, dtype: str) -> str:
    """A stored element in its compute type."""
    wrap = {"bfloat16": "__bfloat162float({})", "float16": "__half2float({})", "bool": "({} != 0)"}
    return wrap.get(dtype, "{}").format(text)


def to_memory(text: str, dtype: str) -> str:
    """A value of the compute type as it is stored."""
    wrap = {"bfloat16": "__float2bfloat16_rn({})", "float16": "__float2half_rn({})", "bool": "(unsigned char)({})"}
    return wrap.get(dtype, "{}").format(text)


def pointwise(node: Node, terms: Sequence[Term]) -> str:
    """`node` as an expression. Raises UnsupportedRegionError for what is not spelled here."""
    dtype = combined(node, terms)
    args = [converted(term, dtype) for term in terms]
    floating, op = dtype in FLOATS, node.op
    if op == "cast":
        return args[0]
    if op == "where":
        return f"{converted(terms[0], 'bool')} ? {args[1]} : {args[2]}"
    if dtype == "bool" and op in ("add", "sub", "mul", "neg", "div"):
        raise UnsupportedRegionError(Reason.UNSUPPORTED_DTYPE, f"{op} of booleans")
    if op in _INFIX:
        return f"{args[0]} {_INFIX[op]} {args[1]}"
    if op == "pow" and terms[1].number and float(terms[1].text) in _POWERS:
        return _POWERS[float(terms[1].text)].format(args[0])
    if not floating and op in ("fmod", "remainder", "floordiv", "truncdiv"):
        return _integer_division(op, *args)
    if op in _LIBRARY and floating:
        return f"{op}{'f' if dtype == 'float32' else ''}({', '.join(args)})"
    return _other(op, args, dtype, floating)


def _other(op: str, args: list[str], dtype: str, floating: bool) -> str:
    a, suffix = args[0], "f" if dtype == "float32" else ""
    one, zero = literal("1", dtype), literal("0", dtype)
    table = {
        "maximum": "Max()({}, {})", "minimum": "Min()({}, {})", "relu": f"Max()({{}}, {zero})", "neg": "-{}", "div": "{} / {}",
        "reciprocal": f"{one} / {{}}", "sigmoid": f"{one} / ({one} + exp{suffix}(-{{}}))", "logical_not": "!{}",
        "bitwise_not": "!{}" if dtype == "bool" else "~{}", "sign": f"({TYPES[dtype]})(({{0}} > 0) - ({{0}} < 0))",
        "abs": f"fabs{suffix}({{}})" if floating else "({0} < 0 ? -{0} : {0})",
        "isnan": "{0} != {0}", "isinf": f"fabs{suffix}({{}}) == {literal('inf', dtype)}" if floating else "false",
    }
    if floating:
        table |= {"round": f"rint{suffix}({{}})", "truncdiv": f"trunc{suffix}({{}} / {{}})"}
    elif op in ("floor", "ceil", "trunc", "round"):
        return a
    if op not in table:
        raise UnsupportedRegionError(Reason.UNSUPPORTED_OP, f"{op} of {dtype} in CUDA C++")
    return table[op].format(*args)


def _integer_division(op: str, a: str, b: str) -> str:
    if op in ("fmod", "truncdiv"):
        return f"{a} {'%' if op == 'fmod' else '/'} {b}"
    opposite = f"({a} % {b} != 0 && (({a} % {b} < 0) != ({b} < 0)))"
    return f"{a} % {b} + ({opposite} ? {b} : 0)" if op == "remainder" else f"{a} / {b} - ({opposite} ? 1 : 0)"
