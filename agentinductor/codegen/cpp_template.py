"""C++ for CPUs: rows spread over OpenMP threads, vectors over a row, a row's values kept in the first-level cache.

A loop over a row runs in steps of `lanes` elements; each reduction has as many accumulators, so that adding does not wait
for the last addition, and partial sums stay small. A value that costs something to compute and is needed by a
later pass over the row is kept in a buffer on the stack (`rows`); the `loop` form computes it again.
"""

from dataclasses import dataclass

from ..errors import UnsupportedRegionError
from ..schema import Definition, Guard, Node, Reason, Solution, Source, TensorSpec
from . import cpp_ops
from .cpp_ops import TYPES, convert, literal
from .loops import INNER, OUTER, Index, Loops, Term, Walker, address, analyse, compute_dtype, stride_arguments
from .schedule import Schedule

KEPT_BYTES = 96 * 1024  # of stack for one row's kept values
VAR_CAPACITY = 8192  # elements of a kept row whose length is a var axis
PARALLEL_FROM = 16384  # elements: below it starting threads costs more than they save
_CHEAP = (
    "float32",
    "float64",
    "bfloat16",
    "int32",
    "int64",
    "bool",
    "uint8",
    "int8",
    "int16",
)  # inputs that are read again, not kept
_START = {"sum": "0", "mean": "0", "prod": "1", "any": "False", "all": "True", "amax": "-inf", "amin": "inf", "var": "0"}


def emit(definition: Definition, schedule: Schedule) -> Solution:
    """The solution for `schedule`. Raises UnsupportedRegionError when this template cannot express the definition."""
    if schedule.language != "cpp" or schedule.form not in ("tile", "rows", "loop"):
        raise UnsupportedRegionError(Reason.UNSUPPORTED_OP, f"no C++ template for {schedule}")
    writer = _Writer(analyse(definition), schedule)
    text = writer.text()
    options = ("-mprefer-vector-width=512",) if schedule.vector >= 64 else ()
    guards = (Guard("device", "cpu"), *writer.guards)
    return Solution(definition.digest, "cpp", "kernel.cpp::kernel", (Source("kernel.cpp", text),), guards, (), options)


@dataclass(frozen=True)
class _Pass:
    """A loop over the inner axes."""

    body: list[str]
    stores: list[str]  # into buffers; later passes add to it
    effects: list[str]  # reductions or outputs
    lanes: bool  # in steps of as many elements as there are accumulators


class _Printer:
    """Writes expressions; statements go to the block of their scope."""

    def __init__(self, loops: Loops, flat: dict[tuple[str, ...], Index]):
        self.loops, self.flat = loops, flat
        self.head: list[str] = []  # once a call
        self.row: list[str | _Pass] = []  # once for each outer index
        self.body: list[str] = []  # once for each element
        self.used: set[str] = set()

    def offset(self, spec: TensorSpec, indices: dict[str, Index]) -> str:
        parts = []
        for piece in address(spec, indices, self.loops, self.flat):
            text = piece.index.text()
            factors = [str(factor) for factor in piece.factors]
            parts.append(" * ".join([f"({text})" if factors and not piece.index.plain else text, *factors]))
        return " + ".join(parts) or "0"

    def load(self, spec: TensorSpec, indices: dict[str, Index]) -> str:
        text = f"{spec.name}[{self.offset(spec, indices)}]"
        if spec.dtype in ("bfloat16", "float16"):
            self.used.add(f"from_{spec.dtype}")
            text = f"from_{spec.dtype}({text})"
        elif spec.dtype == "bool":
            text = f"({text} != 0)"
        guards = list(dict.fromkeys(guard for index in indices.values() for guard in index.guards))
        if guards:
            text = f"{' && '.join(guards)} ? {text} : {literal('0', compute_dtype(spec.dtype))}"
        return text

    def store(self, spec: TensorSpec, indices: dict[str, Index], term: Term) -> str:
        value = convert(term, compute_dtype(spec.dtype))
        if spec.dtype in ("bfloat16", "float16"):
            self.used.add(f"to_{spec.dtype}")
            value = f"to_{spec.dtype}({value})"
        return f"{spec.name}[{self.offset(spec, indices)}] = {value};"

    def pointwise(self, node: Node, args: list[Term]) -> str:
        return cpp_ops.pointwise(node, args, self.used)

    def index(self, index: Index, start: int, step: int) -> str:
        return f"({index.text()}) * INT64_C({step}) + INT64_C({start})"

    def choose(self, condition: str, yes: Term, no: Term, dtype: str) -> str:
        return f"{condition} ? {convert(yes, dtype)} : {convert(no, dtype)}"

    def statement(self, scope: int, name: str, text: str, dtype: str) -> None:
        block = self.body if scope & INNER else self.row if scope else self.head
        block.append(f"const {TYPES[dtype]} {name} = {text};")


class _KeepingWalker(Walker):
    """A walker that finds values of earlier passes in the row's buffers, and notes which must be kept there."""

    def __init__(self, loops: Loops, printer: _Printer, position: str | None, budget: int):
        super().__init__(loops, printer)
        self.position, self.budget = position, budget  # None: nothing is kept
        self.earlier: dict[tuple, tuple[Term, list[str]]] = {}  # value -> its term, and the pass's stores into buffers
        self.stores: list[str] = []
        self.kept: dict[str, str] = {}  # buffer -> type

    def end_pass(self) -> None:
        """The pass is written: its values are now earlier ones."""
        for key, term in self.memo.items():
            if term.scope & INNER and key[1] != "reduced":
                self.earlier.setdefault(key, (term, self.stores))
        self.stores = []
        self.forget(INNER)

    def _input(self, key: tuple, indices: dict[str, Index]) -> Term:
        return self._recall(key) or super()._input(key, indices)

    def _node(self, key: tuple, indices: dict[str, Index]) -> Term:
        return self._recall(key) or super()._node(key, indices)

    def _recall(self, key: tuple) -> Term | None:
        if self.position is None or key not in self.earlier:
            return None
        term, stores = self.earlier[key]
        spec = self.specs.get(key[0])
        plain = all(index.plain and not index.guards for _, index in key[1])
        if (spec is not None and spec.dtype in _CHEAP) or not plain or not term.scope & OUTER or term.number:
            return None
        buffer = f"kept_{term.text}"
        if buffer not in self.kept:
            if self.budget < (len(self.kept) + 1) * 4:
                return None
            self.kept[buffer] = TYPES[term.dtype]
            stores.append(f"{buffer}[{self.position}] = {term.text};")
        return self._emit((*key, "kept"), f"{term.text}_kept", f"{buffer}[{self.position}]", term.dtype, term.scope)


class _Writer:
    """Writes one kernel: passes over the inner axes, one for each stage of reductions and one for the outputs."""

    def __init__(self, loops: Loops, schedule: Schedule):
        self.loops, self.schedule, self.definition = loops, schedule, loops.definition
        self.lanes = max(schedule.vector, 8)
        self.guards: list[Guard] = []
        self.collapsed = len(loops.inner) == 1 or not loops.reduces
        flat_names = {loops.inner: Index("i", INNER)} if len(loops.inner) > 1 and self.collapsed else {}
        self.printer = _Printer(loops, flat_names)
        self.env = {name: Index(f"o_{name}", OUTER) for name in loops.outer}
        self.env |= {name: Index("i" if name == loops.inner[-1] else f"i_{name}", INNER) for name in loops.inner}
        self.walker = _KeepingWalker(loops, self.printer, self._position(), self._capacity_budget())

    def text(self) -> str:
        row = self.printer.row
        if self.loops.reduces:
            for stage in self.loops.stages:
                self._stage(stage)
        inner, outer = self.loops.outputs(True), self.loops.outputs(False)
        for spec, result in outer:
            term = self.walker.value(result, self.env)
            row.append(self.printer.store(spec, self.env, term))
        if inner:
            stores = [self.printer.store(spec, self.env, self._in_loop(result)) for spec, result in inner]
            self._pass(stores)
        return self._assemble()

    # ---- passes ----

    def _stage(self, stage: tuple[Node, ...]) -> None:
        """One pass for all reductions of a stage; a second one for the squares of those that are variances."""
        means = {node.args[0]: node.name for node in stage if node.op == "mean"}
        self._reduce(
            [(node, node.op, node.name) for node in stage if node.op != "var"]
            + [(node, "mean", f"{node.name}_mean") for node in stage if node.op == "var" and node.args[0] not in means]
        )
        for node in stage:
            if node.op == "var" and node.args[0] in means:
                kind = TYPES[compute_dtype(node.dtype)]
                self.printer.row.append(f"const {kind} {node.name}_mean = {means[node.args[0]]};")
        squares = [(node, "var", node.name) for node in stage if node.op == "var"]
        if squares:
            self._reduce(squares)
        for node in stage:
            self.walker.bind(node, node.name)

    def _reduce(self, work: list[tuple[Node, str, str]]) -> None:
        row, updates = self.printer.row, []
        finish: list[str] = []
        for node, op, name in work:
            dtype = compute_dtype(node.dtype)
            kind, lane = TYPES[dtype], f"{name}_lanes[lane]"
            value = convert(self._in_loop(node.args[0]), dtype)
            if op == "var":
                value = f"({value} - {name}_mean) * ({value} - {name}_mean)"
            start = self._start(op, dtype)
            row.append(f"alignas(64) {kind} {name}_lanes[{self.lanes}];")
            row.append(f"for (int lane = 0; lane < {self.lanes}; ++lane) {name}_lanes[lane] = {start};")
            updates.append(f"{lane} = {self._combine(op, lane, value, dtype)};")
            finish += self._finish(node, op, name, kind, dtype)
        self._pass(updates, lanes=True)
        row += finish

    def _in_loop(self, operand) -> Term:
        return self.walker.value(operand, self.env)

    def _start(self, op: str, dtype: str) -> str:
        if op in ("amax", "amin") and dtype not in ("float32", "float64"):
            return f"std::numeric_limits<{TYPES[dtype]}>::{'min' if op == 'amax' else 'max'}()"
        return literal(_START[op], dtype)

    def _combine(self, op: str, a: str, b: str, dtype: str) -> str:
        if op in ("amax", "amin"):
            name = "max_of" if op == "amax" else "min_of"
            self.printer.used.add(name)
            return f"{name}<{TYPES[dtype]}>({a}, {b})"
        return f"{a} {({'prod': '*', 'any': '|', 'all': '&'}).get(op, '+')} ({b})"

    def _finish(self, node: Node, op: str, name: str, kind: str, dtype: str) -> list[str]:
        """Fold the lanes pairwise into the result."""
        fold = self._combine(op, f"{name}_lanes[lane]", f"{name}_lanes[lane + width]", dtype)
        out = [
            f"for (int width = {self.lanes // 2}; width; width /= 2)",
            f"    for (int lane = 0; lane < width; ++lane) {name}_lanes[lane] = {fold};",
        ]
        result = f"{name}_lanes[0]"
        if op == "mean":
            result += f" / ({kind})inner_size"
        elif op == "var":
            result += f" / ({kind})(inner_size > {node.attr('correction')} ? inner_size - {node.attr('correction')} : 0)"
        return [*out, f"const {kind} {name} = {result};"]

    def _pass(self, effects: list[str], lanes: bool = False) -> None:
        """A loop over the inner axes: the statements gathered in the printer's body, then `effects`."""
        body = self.printer.body
        self.printer.body = []
        self.printer.row.append(_Pass(body, self.walker.stores, effects, lanes))
        self.walker.end_pass()

    # ---- text ----

    def _assemble(self) -> str:
        names = [axis.name for axis in self.definition.axes]
        lines = [
            f"const int64_t {name} = {axis.value if axis.value is not None else f'sizes[{names.index(name)}]'};"
            for name, axis in zip(names, self.definition.axes, strict=True)
        ]
        position = 0
        for at, spec in enumerate(self.definition.inputs + self.definition.outputs):
            const = "const " if at < len(self.definition.inputs) else ""
            kind = "uint8_t" if spec.dtype == "bool" and const else TYPES[spec.dtype]
            lines.append(f"{const}{kind}* __restrict {spec.name} = ({const}{kind}*)tensors[{at}];")
            lines += [f"const int64_t {name} = strides[{position + dim}];" for name, dim in stride_arguments(spec)]
            position += len(spec.shape)
        lines.append(f"const int64_t outer_size = {self._product(self.loops.outer)};")
        lines.append(f"const int64_t inner_size = {self._product(self.loops.inner)};")
        lines += self.printer.head
        lines += self._parallel()
        function = 'extern "C" void kernel(void* const* tensors, const int64_t* sizes, const int64_t* strides) {'
        body = "\n".join(f"    {line}" for line in lines)
        return f"{cpp_ops.helpers(self.printer.used)}\n\n{function}\n{body}\n}}\n"

    def _parallel(self) -> list[str]:
        # One thread, or all of torch's: another number would resize the pool that every other kernel shares, and slow them.
        parallel = f"#pragma omp parallel for schedule(static) if (outer_size * inner_size >= {PARALLEL_FROM})"
        out = [] if self.schedule.warps == 1 else [parallel]
        if self.loops.reduces:
            out.append("for (int64_t outer = 0; outer < outer_size; ++outer) {")
            span = ("0", "inner_size")
        else:
            out.insert(0, f"const int64_t steps = (inner_size + {self.schedule.block - 1}) / {self.schedule.block};")
            out.append("for (int64_t task = 0; task < outer_size * steps; ++task) {")
            out.append(f"    const int64_t outer = task / steps, first = task % steps * {self.schedule.block};")
            out.append(f"    const int64_t end = first + {self.schedule.block}, last = end < inner_size ? end : inner_size;")
            span = ("first", "last")
        rest = "outer"
        for name in reversed(self.loops.outer):
            last = name == self.loops.outer[0]
            out.append(f"    const int64_t o_{name} = {rest if last else f'{rest} % {name}'};")
            rest = rest if last else f"{rest} / {name}"
        out += [f"    alignas(64) {kind} {name}[{self._capacity()}];" for name, kind in self.walker.kept.items()]
        for item in self.printer.row:
            out += [f"    {line}" for line in ([item] if isinstance(item, str) else self._loop(item, span))]
        return [*out, "}"]

    def _loop(self, item: _Pass, span: tuple[str, str]) -> list[str]:
        inside = [f"    {line}" for line in (*item.body, *item.stores, *item.effects)]
        first, last = span
        if self.loops.reduces:
            last = self.loops.inner[-1]
        if not item.lanes:
            return self._nest(["#pragma omp simd", f"for (int64_t i = {first}; i < {last}; ++i) {{", *inside, "}"])
        step = self.lanes
        whole = [
            f"for (int64_t base = 0; base < {last} / {step} * {step}; base += {step}) {{",
            "    #pragma omp simd",
            f"    for (int lane = 0; lane < {step}; ++lane) {{",
            "        const int64_t i = base + lane;",
            *(f"    {line}" for line in inside),
            "    }",
            "}",
        ]
        axis = self.definition.axis(last)
        if axis.value is None or axis.value % step:
            whole += [
                f"for (int64_t i = {last} / {step} * {step}; i < {last}; ++i) {{",
                f"    const int lane = (int)(i % {step});",
                *inside,
                "}",
            ]
        return self._nest(whole)

    def _nest(self, lines: list[str]) -> list[str]:
        """Loops over the inner axes but the last, around `lines`."""
        if self.collapsed:
            return lines
        for name in reversed(self.loops.inner[:-1]):
            lines = [f"for (int64_t i_{name} = 0; i_{name} < {name}; ++i_{name}) {{", *(f"    {line}" for line in lines), "}"]
        return lines

    def _product(self, names: tuple[str, ...]) -> str:
        return " * ".join(names) or "1"

    # ---- buffers ----

    def _position(self) -> str | None:
        """Where in a buffer the current element is; None when this schedule keeps nothing."""
        if not self.loops.reduces or self.schedule.form != "rows":
            return None
        out = ""
        for name in self.loops.inner:
            here = "i" if name == self.loops.inner[-1] else f"i_{name}"
            out = f"({out}) * {name} + {here}" if out else here
        return out

    def _capacity(self) -> int:
        constant, names = self.loops.size_factors(self.loops.inner)
        return constant if not names else VAR_CAPACITY

    def _capacity_budget(self) -> int:
        """How many bytes an element's kept values may take."""
        if self._position() is None:
            return 0
        names = self.loops.size_factors(self.loops.inner)[1]
        if len(self.loops.inner) > 1 and names:
            raise UnsupportedRegionError(Reason.UNSUPPORTED_SHAPE, "rows of several axes, one of them var, are not kept")
        if names:
            self.guards.append(Guard("range", names[0], 1, VAR_CAPACITY))
        return KEPT_BYTES // self._capacity()
