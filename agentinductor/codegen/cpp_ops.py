"""The body's pointwise ops as C++ expressions, and the helper functions they call.

Helpers are free of branches, tables and library calls, so that compilers vectorise the loops around them. Each is
accurate to 2 units in the last place of float32 and right for NaN, infinities and denormals; float64 goes to libm.
"""

import math
from collections.abc import Sequence

from ..errors import UnsupportedRegionError
from ..schema import Node, Reason
from ..schema.axes import FLOATS
from .loops import Term, combined

TYPES = {
    "float64": "double",
    "float32": "float",
    "float16": "uint16_t",
    "bfloat16": "uint16_t",
    "int64": "int64_t",
    "int32": "int32_t",
    "int16": "int16_t",
    "int8": "int8_t",
    "uint8": "uint8_t",
    "bool": "bool",
}

PRELUDE = """\
#include <cmath>
#include <cstdint>
#include <limits>

#define INLINE static inline __attribute__((always_inline))

INLINE uint32_t bits_of(float v) { return __builtin_bit_cast(uint32_t, v); }
INLINE float float_of(uint32_t v) { return __builtin_bit_cast(float, v); }
"""

HELPERS = {  # in the order they are written: a helper may call those above it
    "from_bfloat16": "INLINE float from_bfloat16(uint16_t h) { return float_of((uint32_t)h << 16); }",
    "to_bfloat16": """\
INLINE uint16_t to_bfloat16(float v) {  // to nearest, ties to even
    const uint32_t u = bits_of(v);
    const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    return (uint16_t)(v != v ? ((u >> 16) | 0x40u) : rounded);
}""",
    "from_float16": """\
INLINE float from_float16(uint16_t h) {
    const uint32_t magnitude = (uint32_t)(h & 0x7fffu) << 13;
    const float scaled = float_of(magnitude) * float_of(0x77800000u);  // times 2^112: denormals become normal
    const uint32_t special = magnitude >= 0x0f800000u ? 0x7f800000u : 0u;
    return float_of(bits_of(scaled) | special | ((uint32_t)(h & 0x8000u) << 16));
}""",
    "to_float16": """\
INLINE uint16_t to_float16(float v) {  // to nearest, ties to even
    const uint32_t sign = (bits_of(v) >> 16) & 0x8000u, a = bits_of(v) & 0x7fffffffu;
    const uint32_t normal = (a + 0xc8000fffu + ((a >> 13) & 1u)) >> 13;
    const uint32_t denormal = bits_of(float_of(a) + 0.5f) - 0x3f000000u;
    const uint32_t special = a > 0x7f800000u ? 0x7e00u : 0x7c00u;
    const uint32_t finite = a < 0x38800000u ? denormal : normal;
    return (uint16_t)((a >= 0x47800000u ? special : finite) | sign);
}""",
    "max_of": "template <typename T> INLINE T max_of(T a, T b) { return (a > b) | (a != a) ? a : b; }  // NaN wins",
    "min_of": "template <typename T> INLINE T min_of(T a, T b) { return (a < b) | (a != a) ? a : b; }",
    "relu_of": "template <typename T> INLINE T relu_of(T a) { return a <= T(0) ? T(0) : a; }",
    "sign_of": "template <typename T> INLINE T sign_of(T a) { return (T)((a > T(0)) - (a < T(0))); }",
    "reduced_exp": """\
INLINE float reduced_exp(float r) {  // exp(r) - 1 for |r| <= log(2) / 2
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    return p * (r * r) + r;
}""",
    "power_of_2": """\
INLINE float power_of_2(int32_t n) { return float_of((uint32_t)(n + 127) << 23); }""",
    "exp_of": """\
INLINE float exp_of(float x) {
    x = x > 89.0f ? 89.0f : x;
    x = x < -104.0f ? -104.0f : x;
    const float shifted = x * 1.44269504f + 12582912.0f;  // 1.5 * 2^23: rounds to an integer, held in the low bits
    const float n = shifted - 12582912.0f;
    const float r = n * -1.42860677e-6f + (n * -0.693145752f + x);
    const int32_t k = (int32_t)(bits_of(shifted) - 0x4b400000u), half = k >> 1;
    return ((reduced_exp(r) + 1.0f) * power_of_2(half)) * power_of_2(k - half);
}""",
    "exp2_of": """\
INLINE float exp2_of(float x) {
    x = x > 129.0f ? 129.0f : x;
    x = x < -151.0f ? -151.0f : x;
    const float shifted = x + 12582912.0f, n = shifted - 12582912.0f;
    const int32_t k = (int32_t)(bits_of(shifted) - 0x4b400000u), half = k >> 1;
    return ((reduced_exp((x - n) * 0.693147181f) + 1.0f) * power_of_2(half)) * power_of_2(k - half);
}""",
    "expm1_of": """\
INLINE float expm1_of(float x) {
    const float given = x;
    x = x > 89.0f ? 89.0f : x;
    x = x < -80.0f ? -80.0f : x;
    const float shifted = x * 1.44269504f + 12582912.0f, n = shifted - 12582912.0f;
    const float q = reduced_exp(n * -1.42860677e-6f + (n * -0.693145752f + x));
    const int32_t k = (int32_t)(bits_of(shifted) - 0x4b400000u);
    const float s = power_of_2(k - 1), large = (s * q + (s - 0.5f)) * 2.0f;
    return given == 0.0f ? given : k == 0 ? q : large;
}""",
    "sigmoid_of": "INLINE float sigmoid_of(float x) { return 1.0f / (1.0f + exp_of(-x)); }",
    "tanh_of": """\
INLINE float tanh_of(float x) {
    float a = std::fabs(x);
    a = a > 10.0f ? 10.0f : a;
    const float e = expm1_of(2.0f * a);
    return std::copysign(e / (e + 2.0f), x);
}""",
    "erf_of": """\
INLINE float erf_of(float x) {
    float t = std::fabs(x);
    t = t > 4.0f ? 4.0f : t;
    const float s = t * t;
    float p = -1.72853470e-5f * t + 3.83197126e-4f;
    p = p * s + (-3.88396438e-3f * t + 2.42546219e-2f);
    p = p * t + -1.06777877e-1f;
    p = p * t + -6.34846687e-1f;
    p = p * t + -1.28717512e-1f;
    p = p * t - t;  // 1 - exp(p), with p from -17 to -0.7: one scale, and a shorter polynomial, do
    const float shifted = p * 1.44269504f + 12582912.0f;
    const float r = (shifted - 12582912.0f) * -0.693147182f + p;
    float e = 1.3888950e-3f * r + 8.3334519e-3f;
    e = e * r + 4.1666657e-2f;
    e = e * r + 1.6666667e-1f;
    e = e * r + 0.5f;
    e = (e * r + 1.0f) * r + 1.0f;
    const float large = 1.0f - float_of((bits_of(shifted) << 23) + bits_of(e));
    float q = -5.96761703e-4f;
    q = q * s + 4.99119423e-3f;
    q = q * s + -2.67681349e-2f;
    q = q * s + 1.12819925e-1f;
    q = q * s + -3.76125336e-1f;
    q = q * s + 1.28379166e-1f;
    return t > 0.927734375f ? std::copysign(large, x) : q * x + x;
}""",
    "log_parts": """\
INLINE float log_parts(float x, float* exponent) {  // log of the mantissa; x > 0
    const bool tiny = x < 1.17549435e-38f;
    const uint32_t u = bits_of(tiny ? x * 8388608.0f : x);
    const int32_t k = (int32_t)(u - 0x3f2aaaabu) >> 23;
    const float f = float_of(u - ((uint32_t)k << 23)) - 1.0f, s = f * f;
    *exponent = (float)(tiny ? k - 23 : k);
    float r = -0.130310059f * s + -0.121483512f;
    r = r * s + -0.166846126f;
    float t = 0.140869141f * s + 0.139814854f;
    t = t * s + 0.200120345f;
    r = t * f + (r * s + -0.249996200f);
    r = r * f + 0.333331972f;
    r = r * f + -0.5f;
    return r * s + f;
}""",
    "log_ends": """\
INLINE float log_ends(float x, float inside) {  // what every logarithm is outside the positive finite numbers
    const float low = x < 0.0f ? std::numeric_limits<float>::quiet_NaN() : -std::numeric_limits<float>::infinity();
    const float high = x - 0.0f;
    const float ends = x <= 0.0f ? low : high;
    return (x > 0.0f) & (x < std::numeric_limits<float>::infinity()) ? inside : ends;
}""",
    "log_of": """\
INLINE float log_of(float x) {
    float exponent;
    const float r = log_parts(x, &exponent);
    return log_ends(x, exponent * 0.693147182f + r);
}""",
    "log2_of": """\
INLINE float log2_of(float x) {
    float exponent;
    const float r = log_parts(x, &exponent);
    return log_ends(x, r * 1.44269504f + exponent);
}""",
    "log1p_of": """\
INLINE float log1p_of(float x) {
    const float u = 1.0f + x, lost = (x - (u - 1.0f)) / u, whole = log_of(u);
    return (x > -1.0f) & (u < std::numeric_limits<float>::infinity()) ? (x == 0.0f ? x : whole + lost) : whole;
}""",
}

_USES = {
    "exp_of": ("reduced_exp", "power_of_2"),
    "exp2_of": ("reduced_exp", "power_of_2"),
    "expm1_of": ("reduced_exp", "power_of_2"),
    "sigmoid_of": ("exp_of",),
    "tanh_of": ("expm1_of",),
    "log_of": ("log_parts", "log_ends"),
    "log2_of": ("log_parts", "log_ends"),
    "log1p_of": ("log_of",),
}
_VECTORISED = {"exp", "exp2", "expm1", "sigmoid", "tanh", "erf", "log", "log2", "log1p"}  # float32, through `<op>_of`
_LIBM = {
    "exp",
    "exp2",
    "expm1",
    "tanh",
    "erf",
    "log",
    "log2",
    "log10",
    "log1p",
    "sin",
    "cos",
    "tan",
    "atan",
    "sinh",
    "cosh",
    "asin",
    "acos",
    "asinh",
    "acosh",
    "atanh",
    "sqrt",
    "floor",
    "ceil",
    "trunc",
}
_INFIX = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "bitwise_and": "&",
    "bitwise_or": "|",
    "bitwise_xor": "^",
    "logical_and": "&",
    "logical_or": "|",
    "logical_xor": "^",
}
_INTEGER_DIVISIONS = ("fmod", "remainder", "floordiv", "truncdiv")


def helpers(used: set[str]) -> str:
    """The prelude and the helpers in `used`, with those that they call."""
    wanted, queue = set(), list(used)
    while queue:
        name = queue.pop()
        if name not in wanted:
            wanted.add(name)
            queue += _USES.get(name, ())
    return "\n".join([PRELUDE, *(text for name, text in HELPERS.items() if name in wanted)])


def literal(text: str, dtype: str) -> str:
    """A Python number in a term's text, as a constant of `dtype`."""
    value: float = int(text == "True") if text in ("True", "False") else float(text) if set(text) & set(".einfa") else int(text)
    if dtype in FLOATS:
        kind, suffix = ("double", "") if dtype == "float64" else ("float", "f")
        value = float(value)
        if math.isnan(value):
            return f"std::numeric_limits<{kind}>::quiet_NaN()"
        largest = 3.4028235677973366e38 if suffix else math.inf
        if abs(value) >= largest:
            return f"{'-' if value < 0 else ''}std::numeric_limits<{kind}>::infinity()"
        return f"({value!r}{suffix})" if value < 0 or repr(value)[0] == "-" else f"{value!r}{suffix}"
    if dtype == "bool":
        return "true" if value else "false"
    return f"({TYPES[dtype]}){int(value)}LL" if int(value) > -(2**63) else f"std::numeric_limits<{TYPES[dtype]}>::min()"


def convert(term: Term, dtype: str) -> str:
    """The term as an expression of compute type `dtype`."""
    if term.number:
        return literal(term.text, dtype)
    if term.dtype == dtype:
        return term.text
    if dtype == "bool":
        return f"({term.text} != 0)"
    if term.dtype in FLOATS and dtype not in FLOATS and dtype != "int64":
        return f"({TYPES[dtype]})(int64_t){term.text}"
    return f"({TYPES[dtype]}){term.text}"


def pointwise(node: Node, terms: Sequence[Term], used: set[str]) -> str:
    """The expression of `node`; names of helpers that it calls are added to `used`."""
    dtype = combined(node, terms)
    if node.op == "where":
        return f"{convert(terms[0], 'bool')} ? {convert(terms[1], dtype)} : {convert(terms[2], dtype)}"
    if node.op == "cast":
        return convert(terms[0], dtype)
    if node.op == "pow":
        return _pow(terms, dtype, used)
    args = [convert(term, dtype) for term in terms]
    if dtype not in FLOATS and node.op in _INTEGER_DIVISIONS:
        return _integer_division(node.op, terms, args)
    if node.op in _INFIX:
        if dtype == "bool" and node.op in ("add", "mul"):
            return f"{args[0]} {'|' if node.op == 'add' else '&'} {args[1]}"
        return f"{args[0]} {_INFIX[node.op]} {args[1]}"
    if node.op in _VECTORISED and dtype == "float32":
        return _call(f"{node.op}_of", args, used)
    if node.op in _LIBM:
        return f"std::{node.op}({args[0]})" if dtype in FLOATS else args[0]
    return _other(node.op, args, dtype, used)


def _other(op: str, args: list[str], dtype: str, used: set[str]) -> str:
    one = literal("1.0", dtype)
    floating = dtype in FLOATS
    a = args[0]
    if op in ("maximum", "minimum"):
        return _call("max_of" if op == "maximum" else "min_of", args, used)
    if op in ("relu", "sign"):
        return _call(f"{op}_of", args, used)
    table = {
        "div": lambda: f"{a} / {args[1]}",
        "neg": lambda: f"-{a}",
        "reciprocal": lambda: f"{one} / {a}",
        "rsqrt": lambda: f"{one} / std::sqrt({a})",
        "sigmoid": lambda: f"{one} / ({one} + std::exp(-{a}))",
        "abs": lambda: f"std::fabs({a})" if floating else a if dtype in ("bool", "uint8") else f"({a} < 0 ? -{a} : {a})",
        "round": lambda: f"std::nearbyint({a})" if floating else a,
        "isnan": lambda: f"{a} != {a}" if floating else "false",
        "isinf": lambda: f"std::fabs({a}) == std::numeric_limits<{TYPES[dtype]}>::infinity()" if floating else "false",
        "logical_not": lambda: f"!{a}",
        "bitwise_not": lambda: f"!{a}" if dtype == "bool" else f"~{a}",
        "fmod": lambda: f"std::fmod({a}, {args[1]})",
        "copysign": lambda: f"std::copysign({a}, {args[1]})",
        "atan2": lambda: f"std::atan2({a}, {args[1]})",
        "truncdiv": lambda: f"std::trunc({a} / {args[1]})",
    }
    if op not in table:
        raise UnsupportedRegionError(Reason.UNSUPPORTED_OP, f"{op} of {dtype} in C++")
    return table[op]()


def _pow(terms: Sequence[Term], dtype: str, used: set[str]) -> str:
    base = convert(terms[0], dtype)
    if not terms[1].number:
        if dtype not in FLOATS:
            raise UnsupportedRegionError(Reason.UNSUPPORTED_OP, "an integer power that is not a constant")
        return f"std::pow({base}, {convert(terms[1], dtype)})"
    exponent = float(terms[1].text)
    if exponent in (2.0, 3.0, 4.0) and not terms[0].number:
        return " * ".join([base] * int(exponent))
    if dtype not in FLOATS:
        raise UnsupportedRegionError(Reason.UNSUPPORTED_OP, f"the integer power {exponent}")
    one = literal("1.0", dtype)
    special = {
        0.5: f"std::sqrt({base})",
        -0.5: f"{one} / std::sqrt({base})",
        -1.0: f"{one} / {base}",
        -2.0: f"{one} / ({base} * {base})",
        1.0: base,
        0.0: one,
    }
    return special.get(exponent, f"std::pow({base}, {literal(terms[1].text, dtype)})")


def _integer_division(op: str, terms: Sequence[Term], args: list[str]) -> str:
    """Only by a constant: an integer division by zero ends the process."""
    if not terms[1].number or int(float(terms[1].text)) <= 0:
        raise UnsupportedRegionError(Reason.UNSUPPORTED_OP, f"an integer {op} by something that may be 0 or negative")
    a, b = args
    quotient = {
        "truncdiv": f"{a} / {b}",
        "fmod": f"{a} % {b}",
        "remainder": f"({a} % {b} + {b}) % {b}",
        "floordiv": f"({a} - ({a} % {b} + {b}) % {b}) / {b}",
    }
    return quotient[op]


def _call(name: str, args: list[str], used: set[str]) -> str:
    used.add(name)
    return f"{name}({', '.join(args)})"
