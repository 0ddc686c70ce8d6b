"""Turns a definition into what kernel templates need, whatever the language.

`analyse` splits the axes into outer ones (a program, block or thread is given one index) and inner ones (vectors run
over them), and sorts the reductions into stages: those of one stage need only results of earlier stages. `Walker` then
writes expressions: asked for a value at an index of each of its axes, it emits the statements that compute it through
a small printer of the target language, once for each (value, index). A slice or cat asks for its operand at another
index; nothing is ever materialised.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from ..errors import UnsupportedRegionError
from ..schema import Definition, Node, Reason, TensorSpec
from ..schema.axes import FLOATS, HALVES
from ..schema.body import REDUCTIONS

OUTER, INNER = 1, 2  # scopes: what a piece of code varies with; 0 is neither, 3 both

COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
LOGICAL = ("logical_and", "logical_or", "logical_xor", "logical_not")
_RANK = ("bool", "uint8", "int8", "int16", "int32", "int64", "float32", "float64")  # of compute types, narrow to wide


def compute_dtype(dtype: str) -> str:
    """The type a kernel holds a value in: halves live in float32."""
    return "float32" if dtype in HALVES else dtype


@dataclass(frozen=True)
class Index:
    """An index expression, `base * scale + offset - sum(minus)`, over one loop variable `base`.

    `guards` are conditions (in words that Triton, C and Python share) without which the index may be out of bounds.
    """

    base: str
    scope: int
    scale: int = 1
    offset: int = 0
    minus: tuple[str, ...] = ()  # names of var axes
    guards: tuple[str, ...] = ()

    def sliced(self, start: int, step: int) -> "Index":
        """The operand's index where the result of a slice has this one."""
        if self.minus and step != 1:
            raise UnsupportedRegionError(Reason.UNSUPPORTED_SHAPE, "a slice with a step of a cat along a var axis")
        return replace(self, scale=self.scale * step, offset=self.offset * step + start)

    def within(self, first: "Extent", last: "Extent | None") -> "Index":
        """This index less `first`, for a part of a cat that begins there and ends before `last` (None: the end)."""
        here, guards = self.text(), list(self.guards)
        if first.text() != "0":
            guards.append(f"{here} >= {first.text()}")
        if last is not None:
            guards.append(f"{here} < {last.text()}")
        return replace(self, offset=self.offset - first.constant, minus=self.minus + first.names, guards=tuple(guards))

    @property
    def plain(self) -> bool:
        return self.scale == 1 and not self.offset and not self.minus

    def text(self) -> str:
        out = self.base if self.scale == 1 else f"{self.base} * {self.scale}"
        if self.offset:
            out += f" + {self.offset}" if self.offset > 0 else f" - {-self.offset}"
        return out + "".join(f" - {name}" for name in self.minus)


@dataclass(frozen=True)
class Extent:
    """A length: a constant plus var axes."""

    constant: int = 0
    names: tuple[str, ...] = ()

    def plus(self, axis) -> "Extent":
        if axis.value is None:
            return Extent(self.constant, (*self.names, axis.name))
        return Extent(self.constant + axis.value, self.names)

    def text(self) -> str:
        parts = list(self.names) + ([str(self.constant)] if self.constant or not self.names else [])
        return " + ".join(parts) if len(parts) == 1 else f"({' + '.join(parts)})"


@dataclass(frozen=True)
class Term:
    """An operand in emitted code. `number` marks a literal: it takes the other operand's type."""

    text: str
    dtype: str  # compute type
    scope: int = 0
    number: bool = False


@dataclass(frozen=True)
class Loops:
    """The loop structure of a definition."""

    definition: Definition
    outer: tuple[str, ...]
    inner: tuple[str, ...]
    stages: tuple[tuple[Node, ...], ...]  # reductions, in the order they can run

    @property
    def reduces(self) -> bool:
        return bool(self.stages)

    def size_factors(self, axes: Sequence[str]) -> tuple[int, tuple[str, ...]]:
        """The number of elements over `axes`: a constant and the names of var axes to multiply."""
        constant, names = 1, []
        for name in axes:
            value = self.definition.axis(name).value
            if value is None:
                names.append(name)
            else:
                constant *= value
        return constant, tuple(names)

    def outputs(self, inner: bool) -> list[tuple[TensorSpec, str]]:
        """(output, result) pairs that vary over the inner axes, or those that do not."""
        pairs = zip(self.definition.outputs, self.definition.results, strict=True)
        return [(spec, name) for spec, name in pairs if bool(set(spec.shape) & set(self.inner)) == inner]


def analyse(definition: Definition) -> Loops:
    """The loops of `definition`. Raises UnsupportedRegionError when one nest of loops cannot express it."""
    needed = live(definition)
    reductions = [n for n in definition.body if n.op in REDUCTIONS and n.name in needed]
    order = [axis.name for axis in definition.axes]
    reduced = {frozenset(n.attr("axes")) for n in reductions}
    if len(reduced) > 1:
        raise UnsupportedRegionError(Reason.UNSUPPORTED_SHAPE, "reductions over different axes in one region")
    iterated = set().union(*(set(s.shape) for s in definition.outputs), *reduced)
    if reductions:
        inner = [name for name in order if name in next(iter(reduced))]
        outer = [name for name in order if name in iterated and name not in inner]
    else:
        spatial = [name for name in order if name in iterated]
        count = _collapsible(definition, spatial)
        outer, inner = spatial[: len(spatial) - count], spatial[len(spatial) - count :]
    if not reductions and not inner:
        raise UnsupportedRegionError(Reason.TOO_SMALL, "a single element")
    return Loops(definition, tuple(outer), tuple(inner), _stages(definition, reductions))


def live(definition: Definition) -> set[str]:
    """Names of the values that some output needs."""
    needed = set(definition.results)
    for node in reversed(definition.body):
        if node.name in needed:
            needed.update(node.operands)
    return needed


def _stages(definition: Definition, reductions: list[Node]) -> tuple[tuple[Node, ...], ...]:
    level: dict[str, int] = {}
    for node in definition.body:
        level[node.name] = max((level.get(name, 0) for name in node.operands), default=0) + (node in reductions)
    depth = max((level[n.name] for n in reductions), default=0)
    return tuple(tuple(n for n in reductions if level[n.name] == k) for k in range(1, depth + 1))


def _collapsible(definition: Definition, spatial: list[str]) -> int:
    """How many trailing spatial axes can be one flat index: every tensor has all of them, dense and last, or none."""
    indexed = {n.attr("axis") for n in definition.body if n.op in ("slice", "cat", "iota")}
    indexed |= {n.attr("to") for n in definition.body if n.op == "slice"}
    best = min(1, len(spatial))
    for count in range(2, len(spatial) + 1):
        suffix = tuple(spatial[-count:])
        if set(suffix) & indexed:
            break
        for spec in definition.inputs + definition.outputs:
            shared = tuple(a for a in spec.shape if a in suffix)
            dense = spec.layout == "contiguous" and spec.shape[-count:] == suffix
            if shared and not (shared == suffix and dense):
                return best
        best = count
    return best


class Printer(Protocol):
    """What a language must be able to write. All texts are expressions except `statement`'s effect."""

    def load(self, spec: TensorSpec, indices: dict[str, Index]) -> str:
        """Read one element (or a vector of them), converted to the compute type; masked by the indices' guards."""

    def pointwise(self, node: Node, args: list[Term]) -> str:
        """One pointwise op; operands of the node's combining type (see `combined`) or numbers."""

    def index(self, index: Index, start: int, step: int) -> str:
        """`start + index * step` as int64."""

    def choose(self, condition: str, yes: Term, no: Term, dtype: str) -> str:
        """`yes` where the condition on indices holds, else `no`."""

    def statement(self, scope: int, name: str, text: str, dtype: str) -> None:
        """Bind `name` to the expression, in the block for `scope`."""


class Walker:
    """Writes values through a printer, each (value, index) once until `forget` is called for its scope."""

    def __init__(self, loops: Loops, printer: Printer):
        self.loops, self.printer = loops, printer
        self.specs = {spec.name: spec for spec in loops.definition.inputs}
        self.memo: dict[tuple, Term] = {}
        self.names: dict[tuple, str] = {}
        self.copies: dict[str, int] = {}

    def bind(self, node: Node, text: str) -> None:
        """The result of a reduction is in the variable `text`."""
        self.memo[node.name, "reduced"] = Term(text, compute_dtype(node.dtype), OUTER)  # never hoisted above its loop

    def forget(self, scope: int) -> None:
        """A new inner loop begins: whatever varies with `scope` must be computed again."""
        self.memo = {key: term for key, term in self.memo.items() if not term.scope & scope or key[1] == "reduced"}

    def value(self, operand, env: dict[str, Index]) -> Term:
        """The Term of `operand` (a name or a number) at the indices `env`, emitting what it needs."""
        if not isinstance(operand, str):
            kind = "bool" if isinstance(operand, bool) else "int64" if isinstance(operand, int) else "float32"
            return Term(repr(operand), kind, number=True)
        reduced = self.memo.get((operand, "reduced"))
        if reduced is not None:
            self._check_identity(operand, env)
            return reduced
        axes = self.specs[operand].shape if operand in self.specs else self.loops.definition.nodes[operand].axes
        missing = [name for name in axes if name not in env]
        if missing:
            raise UnsupportedRegionError(Reason.UNSUPPORTED_SHAPE, f"{operand} varies over {missing[0]}, which nothing iterates")
        indices = {name: env[name] for name in axes}
        key = (operand, tuple(indices.items()))
        if key not in self.memo:
            self.memo[key] = self._input(key, indices) if operand in self.specs else self._node(key, indices)
        return self.memo[key]

    def _check_identity(self, operand: str, env: dict[str, Index]) -> None:
        for name in self.loops.definition.nodes[operand].axes:
            if not env[name].plain or env[name].guards:
                raise UnsupportedRegionError(Reason.UNSUPPORTED_SHAPE, f"a slice or cat of the reduced value {operand}")

    def _input(self, key: tuple, indices: dict[str, Index]) -> Term:
        spec = self.specs[key[0]]
        return self._emit(key, f"v{spec.name[1:]}", self.printer.load(spec, indices), compute_dtype(spec.dtype), _scope(indices))

    def _node(self, key: tuple, indices: dict[str, Index]) -> Term:
        node = self.loops.definition.nodes[key[0]]
        dtype = compute_dtype(node.dtype)
        if node.op in REDUCTIONS:
            raise UnsupportedRegionError(Reason.UNSUPPORTED_SHAPE, f"{node.name} is needed before it is reduced")
        if node.op == "iota":
            text = self.printer.index(indices[node.attr("axis")], node.attr("start"), node.attr("step"))
            return self._emit(key, node.name, text, dtype, _scope(indices))
        if node.op == "slice":
            env = {k: v for k, v in indices.items() if k != node.attr("to")}
            env[node.attr("axis")] = indices[node.attr("to")].sliced(node.attr("start"), node.attr("step"))
            return self.value(node.args[0], env)
        if node.op == "cat":
            return self._cat(key, node, indices)
        args = [self.value(arg, indices) for arg in node.args]
        if node.op == "cast" and args[0].dtype == dtype and not args[0].number:
            return args[0]
        scope = 0
        for arg in args:
            scope |= arg.scope
        return self._emit(key, node.name, self.printer.pointwise(node, args), dtype, scope)

    def _cat(self, key: tuple, node: Node, indices: dict[str, Index]) -> Term:
        axis, parts, dtype = node.attr("axis"), node.attr("parts"), compute_dtype(node.dtype)
        here = indices[axis]
        rest = {k: v for k, v in indices.items() if k != axis}
        bounds = [Extent()]
        for part in parts:
            bounds.append(bounds[-1].plus(self.loops.definition.axis(part)))
        terms = []
        for k, (arg, part) in enumerate(zip(node.args, parts, strict=True)):
            last = bounds[k + 1] if k + 1 < len(parts) else None
            terms.append(self.value(arg, {**rest, part: here.within(bounds[k], last)}))
        result = terms[-1]
        for k in reversed(range(len(parts) - 1)):
            text = self.printer.choose(f"{here.text()} < {bounds[k + 1].text()}", terms[k], result, dtype)
            name = node.name if k == 0 else f"{node.name}_from{k}"
            self_key = key if k == 0 else (*key, k)
            result = self._emit(self_key, name, text, dtype, terms[k].scope | result.scope | here.scope)
        return result

    def _emit(self, key: tuple, name: str, text: str, dtype: str, scope: int) -> Term:
        if key not in self.names:
            count = self.copies[name] = self.copies.get(name, 0) + 1
            self.names[key] = name if count == 1 else f"{name}_{count}"
        self.printer.statement(scope, self.names[key], text, dtype)
        return Term(self.names[key], dtype, scope)


def _scope(indices: dict[str, Index]) -> int:
    out = 0
    for index in indices.values():
        out |= index.scope
    return out


def combined(node: Node, args: Sequence[Term]) -> str:
    """The type in which `node` combines its operands: its own, or for comparisons the wider of the operands'."""
    if node.op in LOGICAL:
        return "bool"
    if node.op not in COMPARISONS and node.op not in ("isnan", "isinf"):
        return compute_dtype(node.dtype)
    given = [arg.dtype for arg in args if not arg.number] or [arg.dtype for arg in args]
    widest = max(given, key=_RANK.index)
    if any(arg.number and arg.dtype == "float32" for arg in args) and widest not in FLOATS:
        return "float32"
    if widest == "bool" and any(arg.number and arg.dtype == "int64" for arg in args):
        return "int64"
    if set(given) >= {"uint8", "int8"}:
        return "int16"
    return widest


@dataclass(frozen=True)
class Offset:
    """One summand of an address: `index * factors`, in elements. Factors are numbers, var axes or stride arguments."""

    index: Index
    factors: tuple = ()


def address(spec: TensorSpec, indices: dict[str, Index], loops: Loops, flat: dict[tuple[str, ...], Index]) -> list[Offset]:
    """The summands of an element's offset. `flat` names the index of whole runs of axes, used where `spec` is dense there."""
    out: list[Offset] = []
    axes, position = spec.shape, 0
    while position < len(axes):
        run: tuple[str, ...] = (axes[position],)
        index = indices[axes[position]]
        for names, whole in flat.items():
            plain = all(indices.get(n) is not None and indices[n].plain and not indices[n].guards for n in names)
            dense = spec.layout == "contiguous" or len(names) == 1
            if len(names) > 1 and axes[position : position + len(names)] == names and plain and dense:
                run, index = names, whole
        position += len(run)
        out.append(Offset(index, stride_factors(spec, position, loops)))
    return out


def stride_factors(spec: TensorSpec, position: int, loops: Loops) -> tuple:
    """What multiplies the index of axis `position - 1` of `spec`: () for 1."""
    if spec.layout == "strided" or (spec.layout == "inner_contiguous" and position < len(spec.shape)):
        return (stride_name(spec, position - 1),)
    constant, names = loops.size_factors(spec.shape[position:])
    return (*names, constant) if constant != 1 else names


def stride_name(spec: TensorSpec, dim: int) -> str:
    return f"{spec.name}_stride_{spec.shape[dim]}"


def stride_arguments(spec: TensorSpec) -> list[tuple[str, int]]:
    """(argument name, dim) of each stride that a kernel must be told."""
    if spec.layout == "contiguous":
        return []
    dims = range(len(spec.shape) - (spec.layout == "inner_contiguous"))
    return [(stride_name(spec, dim), dim) for dim in dims]


# ---- patterns that have a better algorithm --------------------------------------------------------------------------------


def source_value(definition: Definition, name):
    """`name` behind casts that change nothing in a kernel."""
    node = definition.nodes.get(name) if isinstance(name, str) else None
    while node is not None and node.op == "cast" and isinstance(node.args[0], str):
        operand = node.args[0]
        given = next((s.dtype for s in definition.inputs if s.name == operand), None) or definition.nodes[operand].dtype
        if compute_dtype(given) != compute_dtype(node.dtype):
            break
        name, node = operand, definition.nodes.get(operand)
    return name


def online_softmax(loops: Loops) -> tuple[Node, Node] | None:
    """(amax, sum) where the sum is of exp(v - amax(v)): both can be had in one pass."""
    definition = loops.definition
    for first, second in zip(loops.stages, loops.stages[1:], strict=False):
        if len(first) != 1 or len(second) != 1 or first[0].op != "amax" or second[0].op != "sum":
            continue
        exp = definition.nodes.get(source_value(definition, second[0].args[0]))
        sub = definition.nodes.get(source_value(definition, exp.args[0])) if exp is not None and exp.op == "exp" else None
        if sub is None or sub.op != "sub":
            continue
        same = source_value(definition, sub.args[0]) == source_value(definition, first[0].args[0])
        if same and source_value(definition, sub.args[1]) == first[0].name:
            return first[0], second[0]
    return None
