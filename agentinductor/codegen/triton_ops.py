"""The body's pointwise ops as Triton expressions, and the helper functions some of them need.

Half floats arrive as float32. Functions that Triton's own language lacks come from helpers written here where they can
be exact enough and run in Triton's interpreter too, otherwise from libdevice.
"""

import re
from collections.abc import Sequence

from ..errors import UnsupportedRegionError
from ..schema import Node, Reason
from ..schema.axes import FLOATS
from .loops import Term, combined

TYPES = {"float64": "tl.float64", "float32": "tl.float32", "float16": "tl.float16", "bfloat16": "tl.bfloat16",
         "int64": "tl.int64", "int32": "tl.int32", "int16": "tl.int16", "int8": "tl.int8", "uint8": "tl.uint8", "bool": "tl.int1"}

HELPERS = {  # in the order they are written: a helper may call those above it
    "_max": """
def _max(a, b):  # propagates NaN, as torch.maximum does
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
""",
    "_min": """
def _min(a, b):  # propagates NaN, as torch.minimum does
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
""",
    "_max64": """
def _max64(a, b):  # float64 has no NaN-propagating instruction
    return tl.where((a != a) | (a > b), a, b)
""",
    "_min64": """
def _min64(a, b):
    return tl.where((a != a) | (a < b), a, b)
""",
    "_imax": """
def _imax(a, b):
    return tl.maximum(a, b)
""",
    "_imin": """
def _imin(a, b):
    return tl.minimum(a, b)
""",
    "_product": """
def _product(a, b):
    return a * b
""",
    "_tanh": """
def _tanh(x):  # a polynomial near 0, where 1 - 2 / (exp(2x) + 1) cancels
    z = x * x
    p = ((((-5.70498872745e-3 * z + 2.06390887954e-2) * z - 5.37397155531e-2) * z + 1.33314422036e-1) * z - 3.33332819422e-1) * z
    a = tl.abs(x)
    large = 1.0 - 2.0 / (tl.exp(2.0 * a) + 1.0)
    return tl.where(a < 0.625, p * x + x, tl.where(x < 0.0, -large, large))
""",
    "_log1p": """
def _log1p(x):
    u = 1.0 + x
    d = u - 1.0
    exact = (d == 0.0) | (tl.abs(x) == float("inf"))
    return tl.where(exact, tl.where(x == float("-inf"), float("nan"), x), tl.log(u) * (x / tl.where(exact, 1.0, d)))
""",
    "_expm1": """
def _expm1(x):  # a polynomial near 0, where exp(x) - 1 cancels
    p = x * (1.0 + x * (0.5 + x * (1.6666667e-1 + x * (4.1666668e-2 + x * (8.333334e-3 + x * (1.3888889e-3 + x * 1.984127e-4))))))
    return tl.where(tl.abs(x) < 0.5, p, tl.exp(x) - 1.0)
""",
    "_trunc": """
def _trunc(x):
    return tl.where(x < 0.0, tl.ceil(x), tl.floor(x))
""",
    "_round": """
def _round(x):  # half to even
    down = tl.floor(x)
    rest = x - down
    odd = down - 2.0 * tl.floor(down * 0.5) != 0.0
    return tl.where((rest > 0.5) | ((rest == 0.5) & odd), down + 1.0, down)
""",
    "_remainder_int": """
def _remainder_int(a, b):  # the sign of the divisor
    r = a % b
    return tl.where((r != 0) & ((r < 0) != (b < 0)), r + b, r)
""",
    "_floordiv_int": """
def _floordiv_int(a, b):
    q = a // b
    r = a % b
    return tl.where((r != 0) & ((r < 0) != (b < 0)), q - 1, q)
""",
    "_remainder": """
def _remainder(a, b):  # the sign of the divisor
    r = libdevice.fmod(a, b)
    return tl.where((r != 0.0) & ((r < 0.0) != (b < 0.0)), r + b, r)
""",
    "_floordiv": """
def _floordiv(a, b):  # as PyTorch's div_floor on floats
    r = libdevice.fmod(a, b)
    q = (a - r) / b
    q = tl.where((r != 0.0) & ((b < 0.0) != (r < 0.0)), q - 1.0, q)
    whole = tl.floor(q)
    whole = tl.where(q - whole > 0.5, whole + 1.0, whole)
    return tl.where(b == 0.0, a / b, tl.where(q != 0.0, whole, a / b * 0.0))
""",
}

_INFIX = {"add": "+", "sub": "-", "mul": "*", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
          "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^", "logical_and": "&", "logical_or": "|", "logical_xor": "^"}
_CALLS = {
    "abs": "tl.abs({0})", "exp": "tl.exp({0})", "exp2": "tl.exp2({0})", "log": "tl.log({0})", "log2": "tl.log2({0})",
    "rsqrt": "tl.rsqrt({0})", "erf": "tl.erf({0})", "sin": "tl.sin({0})", "cos": "tl.cos({0})", "sigmoid": "tl.sigmoid({0})",
    "reciprocal": "1.0 / {0}", "floor": "tl.floor({0})", "ceil": "tl.ceil({0})", "isnan": "{0} != {0}",
    "isinf": 'tl.abs({0}) == float("inf")', "neg": "-{0}", "div": "{0} / {1}", "trunc": "_trunc({0})", "round": "_round({0})",
}
_LIBDEVICE = ("log10", "tan", "atan", "sinh", "cosh", "asin", "acos", "asinh", "acosh", "atanh", "atan2", "copysign", "pow")
_POWERS = {2.0: "{0} * {0}", 3.0: "{0} * {0} * {0}", 4.0: "({0} * {0}) * ({0} * {0})", 1.0: "{0}", -1.0: "1.0 / {0}",
           0.5: "tl.sqrt({0})", -0.5: "tl.rsqrt({0})"}


def literal(value: str) -> str:
    """A number of the body as Triton reads it; negative ones in parentheses, so that they fit into any expression."""
    if value in ("inf", "-inf", "nan"):
        return f'float("{value}")'
    return f"({value})" if value.startswith("-") else value


def converted(term: Term, dtype: str) -> str:
    """`term` in `dtype`; numbers take the type of what they meet."""
    if term.number:
        return literal(term.text)
    if term.dtype == dtype:
        return term.text
    if dtype == "bool":
        return f"({term.text} != 0)"
    return f"{term.text}.to({TYPES[dtype]})"


def pointwise(node: Node, args: Sequence[Term]) -> str:
    """`node` as an expression. Raises UnsupportedRegionError for what Triton cannot say."""
    dtype = combined(node, args)
    if all(arg.number for arg in args):
        values = [f"tl.full([], {literal(arg.text)}, {TYPES[dtype]})" for arg in args]
    else:
        values = [converted(arg, dtype) for arg in args]
    if node.op == "cast":
        return values[0]
    if node.op == "where":
        condition = f"{literal(args[0].text)} != 0" if args[0].number else converted(args[0], "bool")
        text = f"tl.where({condition}, {values[1]}, {values[2]})"
        return text if not (args[1].number and args[2].number) else f"{text}.to({TYPES[dtype]})"
    if dtype == "bool" and node.op in ("add", "sub", "mul", "neg", "div", "maximum", "minimum"):
        raise UnsupportedRegionError(Reason.UNSUPPORTED_DTYPE, f"{node.op} of booleans")
    if node.op in _INFIX:
        if node.op.startswith("logical"):
            truth = [str(arg.text not in ("0", "0.0", "False")) for arg in args]
            values = [t if arg.number else value for t, value, arg in zip(truth, values, args, strict=True)]
        return f"{values[0]} {_INFIX[node.op]} {values[1]}"
    if node.op in ("logical_not", "bitwise_not"):
        return f"{values[0]} == 0" if dtype == "bool" else f"~{values[0]}"
    return _function(node.op, values, args, dtype)


def _function(op: str, values: list[str], args: Sequence[Term], dtype: str) -> str:
    if op == "relu":
        op, values = "maximum", [values[0], "0.0" if dtype in FLOATS else "0"]
    if op in ("maximum", "minimum"):
        return f"{combiner(op, dtype)}({values[0]}, {values[1]})"
    if op == "sign":
        return f"({values[0]} > 0).to({TYPES[dtype]}) - ({values[0]} < 0).to({TYPES[dtype]})"
    if op in ("fmod", "remainder", "floordiv", "truncdiv"):
        return _division(op, values, args, dtype)
    if op == "pow" and args[1].number and float(args[1].text) in _POWERS:
        power = float(args[1].text)
        if dtype in FLOATS or power >= 1:
            return _POWERS[power].format(values[0])
    if op == "sqrt":
        return f"tl.sqrt_rn({values[0]})" if dtype == "float32" else f"tl.sqrt({values[0]})"
    if op in ("floor", "ceil", "trunc", "round") and dtype not in FLOATS:
        return values[0]
    if op in _CALLS:
        return _CALLS[op].format(*values)
    if dtype not in FLOATS:
        raise UnsupportedRegionError(Reason.UNSUPPORTED_DTYPE, f"{op} of {dtype}")
    if op in ("tanh", "log1p", "expm1"):
        return f"_{op}({values[0]})" if dtype == "float32" else f"libdevice.{op}({values[0]})"
    if op in _LIBDEVICE:
        full = [v if not a.number else f"tl.full([], {v}, {TYPES[dtype]})" for v, a in zip(values, args, strict=True)]
        return f"libdevice.{op}({', '.join(full)})"
    raise UnsupportedRegionError(Reason.UNSUPPORTED_OP, op)


def _division(op: str, values: list[str], args: Sequence[Term], dtype: str) -> str:
    if dtype not in FLOATS:
        text = {"fmod": "{0} % {1}", "truncdiv": "{0} // {1}"}.get(op, f"_{op}_int({{0}}, {{1}})")
        return text.format(*values)
    if op == "truncdiv":
        return f"_trunc({values[0]} / {values[1]})"
    full = [v if not a.number else f"tl.full([], {v}, {TYPES[dtype]})" for v, a in zip(values, args, strict=True)]
    return f"libdevice.fmod({full[0]}, {full[1]})" if op == "fmod" else f"_{op}({full[0]}, {full[1]})"


def combiner(op: str, dtype: str) -> str:
    """The helper that is `maximum` or `minimum` on `dtype`."""
    short = "max" if op in ("maximum", "amax") else "min"
    if dtype not in FLOATS:
        return f"_i{short}"
    return f"_{short}64" if dtype == "float64" else f"_{short}"


def helpers(code: str) -> str:
    """The helper functions that `code` uses, and those they use, as source."""
    wanted: list[str] = []
    for name in reversed(HELPERS):
        text = code + "".join(HELPERS[w] for w in wanted)
        if re.search(rf"\b{name}\(|, {name}[,)]", text):
            wanted.append(name)
    return "".join(f"\n\n@triton.jit{HELPERS[name]}" for name in reversed(wanted))


def extreme(op: str, dtype: str) -> str:
    """The neutral element of a reduction over `dtype`, as a literal."""
    if op in ("sum", "mean", "var"):
        return "0.0" if dtype in FLOATS else "0"
    if op == "prod":
        return "1.0" if dtype in FLOATS else "1"
    if op in ("any", "all"):
        return "0" if op == "any" else "1"
    if dtype in FLOATS:
        return 'float("-inf")' if op == "amax" else 'float("inf")'
    low, high = {"bool": (0, 1), "uint8": (0, 255)}.get(dtype, (None, None))
    if low is None:
        bits = int(re.sub(r"\D", "", dtype))
        low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return str(low if op == "amax" else high)


