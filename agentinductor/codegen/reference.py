"""What a definition means, in PyTorch: executed (`evaluate`), and printed as code to read, run and compile (`source`).

`evaluate` is the oracle: one torch call a node, each value laid out over the whole domain (absent axes have size 1), so
that broadcasting by axis name is broadcasting by position. `source` prints the same program the way a person would
write it; compiled by Inductor it is the baseline that a kernel must beat.
"""

import math
from collections.abc import Callable, Sequence

import torch

from ..schema import Definition, Node, TensorSpec
from ..schema.axes import FLOATS

DTYPES = {name: getattr(torch, name) for name in
          ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")}

INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
         "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^"}
SPELLING = {"floordiv": "floor_divide", "relu": "relu", "neg": "neg"}  # where torch's name is another than the body's

_ROUNDING = {"truncdiv": "trunc", "floordiv": "floor"}


def evaluate(
    definition: Definition, inputs: Sequence[torch.Tensor], float_dtype: torch.dtype | None = None
) -> list[torch.Tensor]:
    """The outputs of `definition` on `inputs`, contiguous. With `float_dtype`, every float (casts included) has that type."""
    sizes = input_sizes(definition, inputs)
    order = [axis.name for axis in definition.axes]

    def dtype_of(name: str) -> torch.dtype:
        return float_dtype if float_dtype is not None and name in FLOATS else DTYPES[name]

    values: dict[str, torch.Tensor] = {}
    for spec, tensor in zip(definition.inputs, inputs, strict=True):
        shape = [sizes[name] if name in spec.shape else 1 for name in order]
        values[spec.name] = tensor.to(dtype_of(spec.dtype)).reshape(shape)
    device = inputs[0].device if inputs else torch.device("cpu")
    for node in definition.body:
        args = [values[a] if isinstance(a, str) else a for a in node.args]
        values[node.name] = _execute(node, args, order, sizes, dtype_of, device)
    outputs = []
    for spec, result in zip(definition.outputs, definition.results, strict=True):
        shape = [sizes[name] if name in spec.shape else 1 for name in order]
        value = values[result].to(dtype_of(spec.dtype)).expand(shape)
        outputs.append(value.reshape(definition.shape(spec, sizes)).clone(memory_format=torch.contiguous_format))
    return outputs


def input_sizes(definition: Definition, tensors: Sequence[torch.Tensor]) -> dict[str, int]:
    """Every axis's size, read off `tensors` (the inputs, or inputs and outputs). Raises SchemaError when they do not tell."""
    found: dict[str, int] = {}
    for spec, tensor in zip(definition.inputs + definition.outputs, tensors, strict=False):
        found.update(zip(spec.shape, tensor.shape, strict=True))
    return definition.sizes(found)


def _execute(node: Node, args: list, order: list[str], sizes: dict[str, int], dtype_of: Callable, device) -> torch.Tensor:
    dtype = dtype_of(node.dtype)
    if node.op == "iota":
        axis = node.attr("axis")
        index = torch.arange(sizes[axis], device=device) * node.attr("step") + node.attr("start")
        return index.reshape([sizes[axis] if name == axis else 1 for name in order]).to(dtype)
    tensors = [a if isinstance(a, torch.Tensor) else _scalar(a, order, device) for a in args]
    if node.op == "slice":
        source, target = order.index(node.attr("axis")), order.index(node.attr("to"))
        index = torch.arange(sizes[node.attr("to")], device=device) * node.attr("step") + node.attr("start")
        return tensors[0].index_select(source, index).transpose(source, target)
    if node.op == "cat":
        target = order.index(node.attr("axis"))
        pieces = []
        for tensor, part in zip(tensors, node.attr("parts"), strict=True):
            tensor = _expand(tensor, (part,), order, sizes).transpose(order.index(part), target)
            pieces.append(_expand(tensor, [name for name in node.axes if name != node.attr("axis")], order, sizes).to(dtype))
        return torch.cat(pieces, target)
    if node.op == "cast":
        return tensors[0].to(dtype)
    if "axes" in dict(node.attrs):
        return _reduce(node, _expand(tensors[0], node.attr("axes"), order, sizes), order, dtype)
    return apply(node.op, tensors).to(dtype)


def _scalar(value, order: list[str], device) -> torch.Tensor:
    """A 0-dim tensor: like a Python number it does not raise another tensor's type, and a float keeps all its bits."""
    dtype = torch.bool if isinstance(value, bool) else torch.int64 if isinstance(value, int) else torch.float64
    return torch.tensor(value, dtype=dtype, device=device)


def _expand(tensor: torch.Tensor, axes: Sequence[str], order: list[str], sizes: dict[str, int]) -> torch.Tensor:
    if tensor.dim() != len(order):
        tensor = tensor.reshape([1] * len(order))
    return tensor.expand([sizes[name] if name in axes else size for name, size in zip(order, tensor.shape, strict=True)])


def _reduce(node: Node, tensor: torch.Tensor, order: list[str], dtype: torch.dtype) -> torch.Tensor:
    dims = [order.index(name) for name in node.attr("axes")]
    if node.op == "var":
        return torch.var(tensor, dims, correction=node.attr("correction"), keepdim=True).to(dtype)
    if node.op == "prod":
        for dim in dims:
            tensor = torch.prod(tensor, dim, keepdim=True, dtype=dtype)
        return tensor
    if node.op in ("sum", "mean"):
        return getattr(torch, node.op)(tensor, dims, keepdim=True, dtype=dtype)
    return getattr(torch, node.op)(tensor, dim=dims, keepdim=True).to(dtype)


def apply(op: str, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """One pointwise op of schema.body.POINTWISE, with PyTorch's own type promotion."""
    if op in _ROUNDING:
        return torch.div(*tensors, rounding_mode=_ROUNDING[op])
    return getattr(torch, op)(*tensors)


# ---- printing -------------------------------------------------------------------------------------------------------------


def source(definition: Definition) -> str:
    """`definition` as a stand-alone PyTorch function `run(x0, x1, ...)` that returns a tuple of outputs."""
    return _Writer(definition).text()


def compile_source(text: str) -> Callable:
    """The `run` function of a printed reference. The text comes from `source`, never from an agent."""
    namespace: dict = {}
    exec(compile(text, "<reference>", "exec"), namespace)
    return namespace["run"]


def scalar_text(value) -> str:
    """A Python literal for a number of a body."""
    return repr(value) if not isinstance(value, float) or math.isfinite(value) else f'float("{value}")'


class _Writer:
    """Prints one definition. Axes that never meet in one value (a row and its half) share a dimension, a slot."""

    def __init__(self, definition: Definition):
        self.definition = definition
        self.axes_of = {spec.name: spec.shape for spec in definition.inputs} | {n.name: n.axes for n in definition.body}
        self.dtype_of = {spec.name: spec.dtype for spec in definition.inputs} | {n.name: n.dtype for n in definition.body}
        self.slot, self.rank = _slots(definition)

    def text(self) -> str:
        d = self.definition
        lines = [f"def run({', '.join(spec.name for spec in d.inputs)}):"]
        lines += [f"    # {spec.name}: {self._describe(spec)}" for spec in d.inputs]
        lines += [f"    {line}" for line in self._sizes() + self._views()]
        statements = [(self._statement(node), f"{node.dtype} ({', '.join(node.axes)})") for node in d.body]
        width = min(max((len(text) for text, _ in statements), default=0), 80)
        lines += [f"    {text:<{width}}  # {comment}" for text, comment in statements]
        results = [self._result(spec, name) for spec, name in zip(d.outputs, d.results, strict=True)]
        lines += [f"    # {spec.name}: {self._describe(spec)}" for spec in d.outputs]
        lines.append(f"    return ({', '.join(results)},)")
        axes = ", ".join(f"{a.name}={a.value or 'any'}{' (reduced)' if a.reduced else ''}" for a in d.axes)
        return f'"""{d.kind}: {axes}"""\n\nimport torch\n\n\n' + "\n".join(lines) + "\n"

    def _describe(self, spec: TensorSpec) -> str:
        layout = "" if spec.layout == "contiguous" else f", {spec.layout}"
        return f"{spec.dtype} ({', '.join(spec.shape)}){layout}"

    def _size(self, axis: str) -> str:
        value = self.definition.axis(axis).value
        return str(value) if value is not None else axis

    def _sizes(self) -> list[str]:
        """`rows = x0.shape[0]` for each var axis whose size the body spells out."""
        spelled = {n.attr("to") for n in self.definition.body if n.op == "slice"}
        spelled |= {n.attr("axis") for n in self.definition.body if n.op == "iota"}
        for node in self.definition.body:
            if node.op == "cat":
                spelled |= set(node.attr("parts")) | set(node.axes)
            elif "axes" in dict(node.attrs):
                spelled |= set(node.attr("axes")) - set(self._operand_axes(node))
        for spec, name in zip(self.definition.outputs, self.definition.results, strict=True):
            if self.axes_of[name] != spec.shape:
                spelled |= set(spec.shape)
        lines = []
        for axis in self.definition.var_axes:
            owner = next((s for s in self.definition.inputs if axis.name in s.shape), None)
            if axis.name in spelled and owner is not None:
                lines.append(f"{axis.name} = {owner.name}.shape[{owner.shape.index(axis.name)}]")
        return lines

    def _operand_axes(self, node: Node) -> tuple[str, ...]:
        return self.axes_of[node.args[0]] if isinstance(node.args[0], str) else ()

    def _views(self) -> list[str]:
        """`x1 = x1[None, :]` for inputs that lack dimensions of the domain, where trailing alignment does not do it."""
        lines = []
        for spec in self.definition.inputs:
            here = [self.slot[name] for name in spec.shape]
            if here == list(range(self.rank - len(here), self.rank)):
                continue  # broadcasting aligns the last dimensions by itself
            index = ", ".join(":" if slot in here else "None" for slot in range(self.rank))
            lines.append(f"{spec.name} = {spec.name}[{index}]")
        return lines

    def _statement(self, node: Node) -> str:
        return f"{node.name} = {self._expression(node)}"

    def _expression(self, node: Node) -> str:
        args = [a if isinstance(a, str) else scalar_text(a) for a in node.args]
        if node.op == "cast":
            target = f"torch.{node.dtype}"
            return f"{args[0]}.to({target})" if isinstance(node.args[0], str) else self._constant(args[0], target)
        if node.op == "iota":
            return self._iota(node)
        if node.op == "slice":
            return self._slice(node, args[0])
        if node.op == "cat":
            return self._cat(node)
        if "axes" in dict(node.attrs):
            return self._reduction(node, args[0])
        text = _pointwise_text(node, args)
        natural = _natural_dtype(node, [self.dtype_of[a] if isinstance(a, str) else a for a in node.args])
        if natural == node.dtype:
            return text
        return f"({text}).to(torch.{node.dtype})" if node.op in INFIX else f"{text}.to(torch.{node.dtype})"

    def _device(self) -> str:
        return f"{self.definition.inputs[0].name}.device" if self.definition.inputs else '"cpu"'

    def _constant(self, value: str, dtype: str) -> str:
        return f"torch.full((), {value}, dtype={dtype}, device={self._device()})"

    def _iota(self, node: Node) -> str:
        text = f"torch.arange({self._size(node.attr('axis'))}, device={self._device()})"
        if node.attr("step") != 1:
            text += f" * {node.attr('step')}"
        if node.attr("start") != 0:
            text += f" + {node.attr('start')}"
        slot = self.slot[node.attr("axis")]
        if slot < self.rank - 1:
            text = f"({text})" if "+" in text or "*" in text else text
            text += f"[{', '.join(':' if i == slot else 'None' for i in range(slot, self.rank))}]"
        return text

    def _slice(self, node: Node, operand: str) -> str:
        start, step, size = node.attr("start"), node.attr("step"), self._size(node.attr("to"))
        last = f"{size} * {step}" if step != 1 else size
        stop = str(start + int(size) * step) if size.isdigit() else f"{start} + {last}" if start else last
        source, target = self.slot[node.attr("axis")], self.slot[node.attr("to")]
        index = f"{start or ''}:{stop}" + (f":{step}" if step != 1 else "")
        behind = self.rank - 1 - source
        text = f"{operand}[..., {index}{', :' * behind}]"
        return text if source == target else f"{text}.transpose({source - self.rank}, {target - self.rank})"

    def _cat(self, node: Node) -> str:
        target = self.slot[node.attr("axis")]
        pieces = []
        for arg, part in zip(node.args, node.attr("parts"), strict=True):
            text = arg if isinstance(arg, str) else self._constant(scalar_text(arg), f"torch.{node.dtype}")
            have = set(self.axes_of[arg]) if isinstance(arg, str) else set()
            want = set(node.axes) - {node.attr("axis")} | {part}
            if have != want:
                shape = [next((self._size(a) for a in want if self.slot[a] == slot), "1") for slot in range(self.rank)]
                text += f".expand({', '.join(shape)})"
            if self.slot[part] != target:
                text += f".transpose({self.slot[part] - self.rank}, {target - self.rank})"
            pieces.append(text)
        return f"torch.cat(({', '.join(pieces)}), {target - self.rank})"

    def _reduction(self, node: Node, operand: str) -> str:
        axes = node.attr("axes")
        missing = set(axes) - set(self._operand_axes(node))
        if missing:
            shape = [next((self._size(a) for a in missing if self.slot[a] == slot), "-1") for slot in range(self.rank)]
            operand = f"{operand}.expand({', '.join(shape)})"
        dims = sorted(self.slot[name] - self.rank for name in axes)
        dim = str(dims[0]) if len(dims) == 1 else f"({', '.join(map(str, dims))})"
        if node.op == "prod":
            return operand + "".join(f".prod({d}, keepdim=True)" for d in dims)
        if node.op == "var":
            return f"torch.var({operand}, {dim}, correction={node.attr('correction')}, keepdim=True)"
        given = self.dtype_of[node.args[0]] if isinstance(node.args[0], str) else node.dtype
        natural = "int64" if node.op == "sum" and given not in FLOATS else "bool" if node.op in ("any", "all") else given
        if natural == node.dtype:
            return f"{operand}.{node.op}({dim}, keepdim=True)"
        if node.op in ("sum", "mean"):
            return f"{operand}.{node.op}({dim}, keepdim=True, dtype=torch.{node.dtype})"
        return f"{operand}.{node.op}({dim}, keepdim=True).to(torch.{node.dtype})"

    def _result(self, spec: TensorSpec, name: str) -> str:
        """The value `name` with exactly the output's dimensions, dtype and dense."""
        text, axes = name, self.axes_of[name]
        if self.dtype_of[name] != spec.dtype:
            text += f".to(torch.{spec.dtype})"
        if any(name == s.name for s in self.definition.inputs):
            text += ".clone()"
        kept = [self.slot[axis] for axis in spec.shape]
        dropped = "" if len(kept) == self.rank else f"[{', '.join(':' if i in kept else '0' for i in range(self.rank))}]"
        if axes == spec.shape:
            return text + dropped
        full = [next((self._size(a) for a in spec.shape if self.slot[a] == slot), "1") for slot in range(self.rank)]
        return f"{text}.expand({', '.join(full)}){dropped}.contiguous()"


def _pointwise_text(node: Node, args: list[str]) -> str:
    named = [isinstance(a, str) for a in node.args]
    if node.op in INFIX:
        return f"{args[0]} {INFIX[node.op]} {args[1]}"
    if node.op in ("maximum", "minimum") and not all(named) and any(named):
        tensor, bound = (args[0], args[1]) if named[0] else (args[1], args[0])
        return f"torch.clamp({tensor}, {'min' if node.op == 'maximum' else 'max'}={bound})"
    if node.op == "truncdiv":
        return f'torch.div({args[0]}, {args[1]}, rounding_mode="trunc")'
    if node.op == "neg":
        return f"-{args[0]}"
    if node.op not in ("where", "pow", "remainder") and not named[0] and any(named):
        args[0] = f"torch.full_like({args[1]}, {args[0]})"
    return f"torch.{SPELLING.get(node.op, node.op)}({', '.join(args)})"


def _natural_dtype(node: Node, args: list) -> str:
    """The dtype eager PyTorch gives `node` on operands of the dtypes (or the Python numbers) `args`."""
    tensors = []
    for arg in args:
        if isinstance(arg, str):
            tensors.append(torch.ones(1, dtype=DTYPES[arg]))
        else:
            kind = torch.bool if isinstance(arg, bool) else torch.int64 if isinstance(arg, int) else torch.float32
            tensors.append(torch.tensor(1, dtype=kind))
    return str(apply(node.op, tensors).dtype).removeprefix("torch.")


def _slots(definition: Definition) -> tuple[dict[str, int], int]:
    """Axis -> dimension, and the number of dimensions. Axes joined by slice or cat share one where no value has both."""
    order = [axis.name for axis in definition.axes]
    group = {name: {name} for name in order}
    values = [set(s.shape) for s in definition.inputs + definition.outputs] + [set(n.axes) for n in definition.body]
    for node in definition.body:
        pairs = [(node.attr("axis"), node.attr("to"))] if node.op == "slice" else []
        if node.op == "cat":
            pairs = [(node.attr("axis"), part) for part in node.attr("parts")]
        for a, b in pairs:
            merged = group[a] | group[b]
            if all(len(value & merged) <= 1 for value in values):
                for name in merged:
                    group[name] = merged
    # a slot stands where the last of its axes stands
    ranked = [group[name] for name in order if name == max(group[name], key=order.index)]
    slot = {name: index for index, names in enumerate(ranked) for name in names}
    shapes = [s.shape for s in definition.inputs + definition.outputs]
    if any([slot[a] for a in shape] != sorted(slot[a] for a in shape) for shape in shapes):
        slot = {name: index for index, name in enumerate(order)}
    return slot, len(set(slot.values()))
