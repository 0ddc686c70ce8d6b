"""Hand-built definitions: small, readable examples of everything a body can hold.

`ALL` maps a name to a function without required arguments that returns a Definition. Sizes of const axes can be chosen
where it matters (`cols=`), and the float type of the boundary tensors with `dtype=`.
"""

import torch

from agentinductor.schema import Axis, Definition, Node, TensorSpec
from agentinductor.schema.axes import FLOATS, HALVES


class Body:
    """Builds a Definition a line at a time; axes are in domain order, every value's axes follow from its operands."""

    def __init__(self, kind: str, *axes: Axis):
        self.kind, self.axes = kind, axes
        self.inputs: list[TensorSpec] = []
        self.nodes: list[Node] = []
        self.outputs: list[TensorSpec] = []
        self.results: list[str] = []
        self.values: dict[str, tuple[str, tuple[str, ...]]] = {}  # name -> dtype, axes

    def input(self, dtype: str, *shape: str, layout: str = "contiguous") -> str:
        spec = TensorSpec(f"x{len(self.inputs)}", shape, dtype, layout)
        self.inputs.append(spec)
        self.values[spec.name] = (dtype, shape)
        return spec.name

    def op(self, op: str, *args, dtype: str | None = None, **attrs) -> str:
        names = [a for a in args if isinstance(a, str)]
        axes = {axis for name in names for axis in self.values[name][1]}
        if op in ("sum", "mean", "amax", "amin", "prod", "any", "all", "var"):
            axes -= set(attrs["axes"])
        elif op == "slice":
            axes = axes - {attrs["axis"]} | {attrs["to"]}
        elif op == "cat":
            axes = axes - set(attrs["parts"]) | {attrs["axis"]}
        elif op == "iota":
            axes = {attrs["axis"]}
        if dtype is None:
            dtype = self.values[names[-1] if op == "where" else names[0]][0]
        node = Node(f"t{len(self.nodes)}", op, args, dtype, self._order(axes), tuple(sorted(attrs.items())))
        self.nodes.append(node)
        self.values[node.name] = (dtype, node.axes)
        return node.name

    def f32(self, name: str) -> str:
        return self.op("cast", name, dtype="float32") if self.values[name][0] in HALVES else name

    def output(self, name: str, *shape: str, dtype: str | None = None, layout: str = "contiguous") -> None:
        own, axes = self.values[name]
        dtype = dtype or own
        if dtype != own:
            name = self.op("cast", name, dtype=dtype)
        self.outputs.append(TensorSpec(f"y{len(self.outputs)}", shape or axes, dtype, layout))
        self.results.append(name)

    def done(self) -> Definition:
        return Definition(self.axes, tuple(self.inputs), tuple(self.nodes), tuple(self.outputs), tuple(self.results), self.kind)

    def _order(self, axes: set[str]) -> tuple[str, ...]:
        return tuple(axis.name for axis in self.axes if axis.name in axes)


def gelu_bias_residual(cols: int | None = 4096, dtype: str = "bfloat16") -> Definition:
    b = Body("gelu_bias_residual", Axis("rows"), Axis("cols", cols))
    x, bias, residual = b.input(dtype, "rows", "cols"), b.input(dtype, "cols"), b.input(dtype, "rows", "cols")
    h = b.op("add", b.f32(x), b.f32(bias))
    erf = b.op("add", b.op("erf", b.op("mul", h, 0.7071067811865476)), 1.0)
    gelu = b.op("mul", b.op("mul", h, 0.5), erf)
    b.output(b.op("add", gelu, b.f32(residual)), dtype=dtype)
    return b.done()


def gelu_tanh(dtype: str = "bfloat16") -> Definition:
    """One tensor in, one out: the flat case."""
    b = Body("pointwise", Axis("n"))
    x = b.f32(b.input(dtype, "n"))
    inner = b.op("mul", b.op("add", x, b.op("mul", b.op("pow", x, 3.0), 0.044715)), 0.7978845608028654)
    b.output(b.op("mul", b.op("mul", x, 0.5), b.op("add", b.op("tanh", inner), 1.0)), dtype=dtype)
    return b.done()


def rms_norm(cols: int | None = 4096, dtype: str = "bfloat16") -> Definition:
    b = Body("rms_norm", Axis("rows"), Axis("cols", cols, reduced=True))
    x, weight = b.f32(b.input(dtype, "rows", "cols")), b.input(dtype, "cols")
    mean = b.op("mean", b.op("mul", x, x), axes=("cols",))
    y = b.op("mul", x, b.op("rsqrt", b.op("add", mean, 1e-5)))
    if dtype in HALVES:
        y = b.op("cast", y, dtype=dtype)
    b.output(b.op("mul", y, weight))
    return b.done()


def add_rms_norm(cols: int | None = 4096, dtype: str = "bfloat16") -> Definition:
    b = Body("add_rms_norm", Axis("rows"), Axis("cols", cols, reduced=True))
    x, residual, weight = b.input(dtype, "rows", "cols"), b.input(dtype, "rows", "cols"), b.input(dtype, "cols")
    total = b.op("add", x, residual)
    h = b.f32(total)
    mean = b.op("mean", b.op("mul", h, h), axes=("cols",))
    y = b.op("mul", h, b.op("rsqrt", b.op("add", mean, 1e-5)))
    b.output(b.op("mul", y, b.f32(weight)), dtype=dtype)
    b.output(total)
    return b.done()


def layer_norm(cols: int | None = 4096, dtype: str = "bfloat16") -> Definition:
    b = Body("layer_norm", Axis("rows"), Axis("cols", cols, reduced=True))
    x, weight, bias = b.f32(b.input(dtype, "rows", "cols")), b.input(dtype, "cols"), b.input(dtype, "cols")
    return _layer_norm(b, x, weight, bias, dtype)


def add_layer_norm(cols: int | None = 4096, dtype: str = "bfloat16") -> Definition:
    b = Body("add_layer_norm", Axis("rows"), Axis("cols", cols, reduced=True))
    x, residual = b.input(dtype, "rows", "cols"), b.input(dtype, "rows", "cols")
    weight, bias = b.input(dtype, "cols"), b.input(dtype, "cols")
    total = b.op("add", x, residual)
    b.output(total)
    return _layer_norm(b, b.f32(total), weight, bias, dtype)


def _layer_norm(b: Body, x: str, weight: str, bias: str, dtype: str) -> Definition:
    var = b.op("var", x, axes=("cols",), correction=0)
    mean = b.op("mean", x, axes=("cols",))
    y = b.op("mul", b.op("sub", x, mean), b.op("rsqrt", b.op("add", var, 1e-5)))
    b.output(b.op("add", b.op("mul", y, b.f32(weight)), b.f32(bias)), dtype=dtype)
    return b.done()


def softmax(cols: int | None = 4096, dtype: str = "bfloat16") -> Definition:
    b = Body("softmax", Axis("rows"), Axis("cols", cols, reduced=True))
    return _softmax(b, b.f32(b.input(dtype, "rows", "cols")), "cols", dtype)


def _softmax(b: Body, x: str, axis: str, dtype: str) -> Definition:
    e = b.op("exp", b.op("sub", x, b.op("amax", x, axes=(axis,))))
    b.output(b.op("div", e, b.op("sum", e, axes=(axis,))), dtype=dtype)
    return b.done()


def causal_softmax(dtype: str = "bfloat16") -> Definition:
    """Scores (batch, heads, queries, keys), masked where key > query, by iota and where; every size is var."""
    b = Body("masked_softmax", Axis("batch"), Axis("heads"), Axis("queries"), Axis("keys", reduced=True))
    x = b.f32(b.input(dtype, "batch", "heads", "queries", "keys"))
    query = b.op("iota", dtype="int64", axis="queries", start=0, step=1)
    key = b.op("iota", dtype="int64", axis="keys", start=0, step=1)
    x = b.op("where", b.op("le", key, query, dtype="bool"), b.op("mul", x, 0.125), float("-inf"), dtype="float32")
    return _softmax(b, x, "keys", dtype)


def swiglu(cols: int | None = 4096, dtype: str = "bfloat16") -> Definition:
    b = Body("swiglu", Axis("rows"), Axis("cols", cols))
    gate, up = b.f32(b.input(dtype, "rows", "cols")), b.f32(b.input(dtype, "rows", "cols"))
    b.output(b.op("mul", b.op("mul", gate, b.op("sigmoid", gate)), up), dtype=dtype)
    return b.done()


def packed_swiglu(cols: int = 1536, dtype: str = "bfloat16") -> Definition:
    """Gate and up are the two halves of one row: two slices."""
    b = Body("swiglu", Axis("rows"), Axis("cols", cols), Axis("both", 2 * cols))
    x = b.input(dtype, "rows", "both")
    gate = b.f32(b.op("slice", x, axis="both", to="cols", start=0, step=1))
    up = b.f32(b.op("slice", x, axis="both", to="cols", start=cols, step=1))
    b.output(b.op("mul", b.op("mul", gate, b.op("sigmoid", gate)), up), dtype=dtype)
    return b.done()


def rope(size: int = 128, dtype: str = "bfloat16") -> Definition:
    """x * cos + rotate_half(x) * sin over (batch, heads, seq, d); cos and sin are (batch, seq, d); x is a strided view."""
    b = Body("rope", Axis("batch"), Axis("heads", 8), Axis("seq"), Axis("d", size), Axis("half", size // 2))
    x = b.input(dtype, "batch", "heads", "seq", "d", layout="inner_contiguous")
    cos, sin = b.input(dtype, "batch", "seq", "d"), b.input(dtype, "batch", "seq", "d")
    return _rope(b, x, cos, sin, size, dtype)


def _rope(b: Body, x: str, cos: str, sin: str, size: int, dtype: str) -> Definition:
    low = b.op("slice", x, axis="d", to="half", start=0, step=1)
    high = b.op("slice", x, axis="d", to="half", start=size // 2, step=1)
    rotated = b.op("cat", b.op("neg", high), low, axis="d", parts=("half", "half"))
    left, right = b.op("mul", b.f32(x), b.f32(cos)), b.op("mul", b.f32(rotated), b.f32(sin))
    b.output(b.op("add", left, right), dtype=dtype)
    return b.done()


def norm_rope(size: int = 128, dtype: str = "bfloat16") -> Definition:
    """RMSNorm over each head, then rope: a slice of a normalised row."""
    b = Body("norm_rope", Axis("batch"), Axis("heads", 4), Axis("seq"), Axis("half", size // 2), Axis("d", size, reduced=True))
    x = b.f32(b.input(dtype, "batch", "heads", "seq", "d", layout="inner_contiguous"))
    weight = b.input(dtype, "d")
    cos, sin = b.input(dtype, "batch", "seq", "d"), b.input(dtype, "batch", "seq", "d")
    mean = b.op("mean", b.op("mul", x, x), axes=("d",))
    y = b.op("mul", b.op("mul", x, b.op("rsqrt", b.op("add", mean, 1e-6))), b.f32(weight))
    return _rope(b, y, cos, sin, size, dtype)


def interleaved_halves(size: int = 96, dtype: str = "float32") -> Definition:
    """Every second element of a row, then the others: slices with a step, laid end to end."""
    b = Body("pointwise", Axis("rows"), Axis("d", size), Axis("half", size // 2))
    x = b.input(dtype, "rows", "d")
    even = b.op("slice", x, axis="d", to="half", start=0, step=2)
    odd = b.op("slice", x, axis="d", to="half", start=1, step=2)
    b.output(b.op("cat", even, b.op("exp", odd), axis="d", parts=("half", "half")))
    return b.done()


def strided_add(dtype: str = "float32") -> Definition:
    """A transposed or expanded input beside a dense one."""
    b = Body("pointwise", Axis("rows"), Axis("cols"))
    x, y = b.input(dtype, "rows", "cols", layout="strided"), b.input(dtype, "rows", "cols", layout="inner_contiguous")
    b.output(b.op("add", b.op("mul", x, 2.0), y))
    return b.done()


def channel_affine(dtype: str = "float32") -> Definition:
    """NCHW with a scale and shift for each channel."""
    b = Body("pointwise", Axis("batch"), Axis("channels", 6), Axis("height"), Axis("width"))
    x = b.input(dtype, "batch", "channels", "height", "width")
    scale, shift = b.input(dtype, "channels"), b.input(dtype, "channels")
    b.output(b.op("relu", b.op("add", b.op("mul", b.f32(x), b.f32(scale)), b.f32(shift))), dtype=dtype)
    return b.done()


def row_var(cols: int | None = None, dtype: str = "float32") -> Definition:
    b = Body("row_reduction", Axis("rows"), Axis("cols", cols, reduced=True))
    x = b.f32(b.input(dtype, "rows", "cols"))
    b.output(b.op("var", x, axes=("cols",), correction=1), dtype=dtype)
    return b.done()


def row_extremes(dtype: str = "float32") -> Definition:
    """amax, amin, prod and two of bool: several results a row, over two reduced axes."""
    b = Body("row_reduction", Axis("rows"), Axis("a", 12, reduced=True), Axis("b", 10, reduced=True))
    x = b.input(dtype, "rows", "a", "b")
    axes = ("a", "b")
    b.output(b.op("amax", x, axes=axes))
    b.output(b.op("amin", x, axes=axes))
    b.output(b.op("prod", b.op("add", b.op("mul", x, 0.01), 1.0), axes=axes))
    positive = b.op("gt", x, 0, dtype="bool")
    b.output(b.op("any", positive, axes=axes, dtype="bool"))
    b.output(b.op("all", positive, axes=axes, dtype="bool"))
    return b.done()


def full_sum(dtype: str = "float32") -> Definition:
    """No spatial axis at all."""
    b = Body("full_reduction", Axis("rows", reduced=True), Axis("cols", 40, reduced=True))
    x = b.f32(b.input(dtype, "rows", "cols"))
    b.output(b.op("sum", b.op("mul", x, x), axes=("rows", "cols")))
    return b.done()


def column_sum(dtype: str = "float32") -> Definition:
    """A sum down the columns: the reduced axis is outermost in memory, so the input comes strided."""
    b = Body("column_sum", Axis("cols"), Axis("rows", reduced=True))
    x = b.f32(b.input(dtype, "cols", "rows", layout="strided"))
    b.output(b.op("sum", x, axes=("rows",)), dtype=dtype)
    return b.done()


def integers() -> Definition:
    """Integer and boolean arithmetic beside floats: floor and truncating division, remainders, bits, casts, where."""
    b = Body("pointwise", Axis("n"))
    i, j, x = b.input("int32", "n"), b.input("int64", "n"), b.input("float32", "n")
    m = b.input("bool", "n")
    odd = b.op("ne", b.op("bitwise_and", i, 1), 0, dtype="bool")
    b.output(b.op("add", b.op("floordiv", i, 3), b.op("remainder", i, -5)))
    b.output(b.op("add", b.op("truncdiv", j, -3), b.op("fmod", j, 7)))
    b.output(b.op("where", b.op("logical_and", m, b.op("logical_not", odd, dtype="bool"), dtype="bool"), x, i, dtype="float32"))
    b.output(b.op("logical_or", b.op("lt", j, 2.5, dtype="bool"), b.op("isnan", x, dtype="bool"), dtype="bool"))
    b.output(b.op("div", j, 4, dtype="float32"))
    return b.done()


def activations(dtype: str = "float32") -> Definition:
    """A chain through most float functions."""
    b = Body("pointwise", Axis("n"))
    x = b.f32(b.input(dtype, "n"))
    y = b.f32(b.input(dtype, "n"))
    b.output(b.op("maximum", b.op("relu", x), b.op("minimum", y, 0.5)))
    b.output(b.op("add", b.op("sin", x), b.op("mul", b.op("cos", y), b.op("sigmoid", x))))
    b.output(b.op("log1p", b.op("abs", x)))
    b.output(b.op("add", b.op("expm1", b.op("minimum", x, 2.0)), b.op("exp2", b.op("minimum", y, 2.0))))
    b.output(b.op("add", b.op("floor", x), b.op("add", b.op("round", y), b.op("trunc", b.op("mul", x, 3.0)))))
    b.output(b.op("add", b.op("sqrt", b.op("abs", x)), b.op("log", b.op("add", b.op("abs", y), 1.0))))
    b.output(b.op("add", b.op("sign", x), b.op("reciprocal", b.op("add", b.op("mul", y, y), 1.0))))
    return b.done()


def rare_functions(dtype: str = "float32") -> Definition:
    """What Triton leaves to libdevice, which its interpreter does not have."""
    b = Body("pointwise", Axis("n"))
    x, y = b.f32(b.input(dtype, "n")), b.f32(b.input(dtype, "n"))
    b.output(b.op("add", b.op("remainder", x, 0.75), b.op("floordiv", y, 0.5)))
    b.output(b.op("add", b.op("fmod", x, y), b.op("copysign", y, x)))
    b.output(b.op("add", b.op("atan2", x, y), b.op("tan", x)))
    b.output(b.op("add", b.op("pow", b.op("abs", x), y), b.op("log10", b.op("add", b.op("abs", y), 1.0))))
    b.output(b.op("add", b.op("asinh", x), b.op("add", b.op("atan", y), b.op("sinh", x))))
    return b.done()


ALL = {
    function.__name__: function
    for function in (
        gelu_bias_residual, gelu_tanh, rms_norm, add_rms_norm, layer_norm, add_layer_norm, softmax, causal_softmax, swiglu,
        packed_swiglu, rope, norm_rope, interleaved_halves, strided_add, channel_affine, row_var, row_extremes, full_sum,
        column_sum, integers, activations, rare_functions,
    )
}

TORCH = {name: getattr(torch, name) for name in ("float64", "float32", "float16", "bfloat16", "int64", "int32", "bool")}


def make_inputs(definition: Definition, sizes: dict[str, int], seed: int = 0, special: bool = False) -> list[torch.Tensor]:
    """Random inputs of `definition` at `sizes` (var axes), honouring layouts; `special` sprinkles NaN and infinities."""
    generator = torch.Generator().manual_seed(seed)
    every = definition.sizes(sizes)
    out = []
    for spec in definition.inputs:
        shape = definition.shape(spec, every)
        if spec.dtype == "bool":
            tensor = torch.randint(0, 2, shape, generator=generator).bool()
        elif spec.dtype not in FLOATS:
            tensor = torch.randint(-50, 50, shape, generator=generator).to(TORCH[spec.dtype])
        else:
            tensor = torch.randn(shape, generator=generator).to(TORCH[spec.dtype])
            if special and tensor.numel() > 8:
                flat = tensor.view(-1)
                for value in (float("nan"), float("inf"), float("-inf")):
                    flat[torch.randint(0, flat.numel(), (1,), generator=generator)] = value
        out.append(_lay_out(tensor, spec.layout))
    return out


def _lay_out(tensor: torch.Tensor, layout: str) -> torch.Tensor:
    if tensor.dim() == 0 or layout == "contiguous":
        return tensor
    if layout == "strided":  # outermost axis has the smallest stride
        order = list(range(tensor.dim()))[::-1]
        return tensor.permute(order).contiguous().permute(order)
    padded = torch.zeros(*tensor.shape[:-1], tensor.shape[-1] + 3, dtype=tensor.dtype)[..., : tensor.shape[-1]]
    return padded.copy_(tensor)


def make_outputs(definition: Definition, sizes: dict[str, int]) -> list[torch.Tensor]:
    """Outputs filled with NaN (or -77), so that an unwritten element shows."""
    every = definition.sizes(sizes)
    poison = {"bool": True, **dict.fromkeys(FLOATS, float("nan"))}
    return [torch.full(definition.shape(s, every), poison.get(s.dtype, -77)).to(TORCH[s.dtype]) for s in definition.outputs]


SIZES = {  # a small workload for each definition of ALL
    "gelu_bias_residual": {"rows": 5}, "gelu_tanh": {"n": 3001}, "rms_norm": {"rows": 5}, "add_rms_norm": {"rows": 5},
    "layer_norm": {"rows": 5}, "add_layer_norm": {"rows": 5}, "softmax": {"rows": 5},
    "causal_softmax": {"batch": 2, "heads": 3, "queries": 5, "keys": 37}, "swiglu": {"rows": 5}, "packed_swiglu": {"rows": 5},
    "rope": {"batch": 2, "seq": 5}, "norm_rope": {"batch": 2, "seq": 5}, "interleaved_halves": {"rows": 7},
    "strided_add": {"rows": 13, "cols": 70}, "channel_affine": {"batch": 2, "height": 5, "width": 7},
    "row_var": {"rows": 7, "cols": 150}, "row_extremes": {"rows": 5}, "full_sum": {"rows": 9},
    "column_sum": {"cols": 33, "rows": 21},
    "integers": {"n": 700}, "activations": {"n": 700}, "rare_functions": {"n": 700},
}
