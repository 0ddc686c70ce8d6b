"""CUDA C++ kernels for pointwise definitions and row reductions, compiled by NVRTC.

A row belongs to a block of `warps` warps, or to one warp of a block that has `rows` of them. A thread reads `vector`
neighbours at once (16 bytes where the addresses allow, checked when the kernel starts). "rows" and "tile" read every
input once, into registers, before anything is computed; "loop" reads a row again for each stage. Row offsets are 64 bit.
"""

import re

from ..errors import UnsupportedRegionError
from ..schema import Definition, Guard, Launch, Node, Reason, Solution, Source, TensorSpec
from .cuda_ops import PRELUDE, STORED, TYPES, converted, from_memory, literal, pointwise, to_memory
from .loops import (
    INNER,
    OUTER,
    Index,
    Loops,
    Offset,
    Term,
    Walker,
    address,
    analyse,
    compute_dtype,
    online_softmax,
    source_value,
    stride_arguments,
)
from .reference import source as reference_source
from .schedule import Schedule

RESERVED = {"row", "col", "col0", "lane", "aligned", "across", "start", "kernel", "k", "j", "read", "write", "reduce"}
LONGEST = 2**30  # elements of a row: its index is an int
_OPERATORS = {"sum": "Sum", "mean": "Sum", "prod": "Product", "amax": "Max", "amin": "Min", "any": "Max", "all": "Min"}
_NEUTRAL = {"sum": "0", "mean": "0", "prod": "1", "amax": "-inf", "amin": "inf", "any": "0", "all": "1"}


def emit(definition: Definition, schedule: Schedule) -> Solution:
    """A CUDA solution. Raises UnsupportedRegionError when the template cannot express the definition so."""
    if schedule.language != "cuda":
        raise UnsupportedRegionError(Reason.UNSUPPORTED_OP, f"no CUDA template for {schedule}")
    kernel = _Kernel(analyse(definition), schedule)
    text = kernel.text()
    sources, launches = (Source("kernel.cu", text),), (kernel.launch(),)
    return Solution(definition.digest, "cuda", "kernel.cu::kernel", sources, tuple(kernel.guards()), launches)


class _Kernel:
    """One kernel: writes it, and is the printer that the walker writes values through."""

    def __init__(self, loops: Loops, schedule: Schedule):
        self.loops, self.schedule, self.definition = loops, schedule, loops.definition
        self.constant, self.names = loops.size_factors(loops.inner)
        self.vector, self.warps, self.rows = schedule.vector, schedule.warps, schedule.rows
        self.threads = 32 * self.warps  # that share a row
        self.per_thread = max(schedule.block // (self.threads * self.vector), 1)  # packs
        self._check()
        self.flat_long = not loops.outer and not loops.reduces and bool(self.names)
        self.body: list[str] = []  # the kernel's statements
        self.element: list[str] = self.body  # statements for one element, while a pass is written
        self.packs: dict[str, str] = {}  # tensor -> the declaration of its pack in this pass
        self.held: dict[str, str] = {}  # tensor -> the packs in registers
        self.pointers: dict[str, str] = {}
        self.env = {name: Index("row" if len(loops.outer) == 1 else f"i_{name}", OUTER) for name in loops.outer}
        self.env |= {name: Index("col" if len(loops.inner) == 1 else f"i_{name}", INNER) for name in loops.inner}
        self.flat = {axes: Index(base, scope) for axes, base, scope in ((loops.outer, "row", OUTER), (loops.inner, "col", INNER))
                     if len(axes) > 1}
        self.walker = Walker(loops, self)

    def _check(self) -> None:
        taken = {axis.name for axis in self.definition.axes} & RESERVED
        if taken:
            raise UnsupportedRegionError(Reason.UNSUPPORTED_SHAPE, f"axis named {sorted(taken)[0]}")
        if (self.schedule.form == "tile") == self.loops.reduces:
            raise UnsupportedRegionError(Reason.UNSUPPORTED_SHAPE, f"form {self.schedule.form} does not fit this definition")
        if self.rows > 1 and self.warps > 1:
            raise UnsupportedRegionError(Reason.UNSUPPORTED_SHAPE, "several rows a block only with a warp for each")
        if not self.names and self.constant % self.vector:
            raise UnsupportedRegionError(Reason.UNSUPPORTED_SHAPE, f"rows of {self.constant} in packs of {self.vector}")
        if len(self.names) > 1 and self.constant % self.vector:
            raise UnsupportedRegionError(Reason.UNSUPPORTED_SHAPE, "packs over several var axes")
        block = self.schedule.block
        if self.schedule.form == "rows" and not self.names and self.constant > block:
            raise UnsupportedRegionError(Reason.UNSUPPORTED_SHAPE, f"block {block} is less than the row's {self.constant}")
        for spec in self.definition.outputs:
            if self.loops.outer and not set(spec.shape) >= set(self.loops.outer):
                raise UnsupportedRegionError(Reason.UNSUPPORTED_SHAPE, f"{spec.name} lacks an axis that others iterate")
            if set(spec.shape) & set(self.loops.inner) and not set(spec.shape) >= set(self.loops.inner):
                raise UnsupportedRegionError(Reason.UNSUPPORTED_SHAPE, f"{spec.name} has only some inner axes")

    def guards(self) -> list[Guard]:
        """Sizes of at least 1, rows that fit, whole packs, a grid that one launch can hold."""
        out = [Guard("device", "cuda")]
        longest = self.schedule.block if self.schedule.form == "rows" else 2**40 if self.flat_long else LONGEST
        if len(self.names) > 1:
            longest = max(int(longest ** (1 / len(self.names))), 1)
        for axis in self.definition.var_axes:
            high = max(longest // self.constant, 1) if axis.name in self.names else 2**31 - 1
            out.append(Guard("range", axis.name, 1, high))
            if axis.name in self.names and self.constant % self.vector:
                out.append(Guard("divisible", axis.name, self.vector))
        return out

    def launch(self) -> Launch:
        """How the kernel starts."""
        outer = self._product(*self.loops.size_factors(self.loops.outer), cast=False)
        grid = f"cdiv({outer}, {self.rows})" if self.rows > 1 else outer
        if self.schedule.form == "tile":
            grid = f"{grid} * cdiv({self._product(self.constant, self.names, cast=False)}, {self.schedule.block})"
        arguments = tuple(argument for _, _, argument in self._parameters())
        return Launch("kernel", (grid, "1", "1"), self.threads * self.rows, arguments)

    def _parameters(self) -> list[tuple[str, str, str]]:
        """(type, name, launch argument) of each kernel parameter."""
        tensors = self.definition.inputs + self.definition.outputs
        out = [(f"const {STORED[s.dtype]}* __restrict__", s.name, s.name) for s in self.definition.inputs]
        out += [(f"{STORED[s.dtype]}* __restrict__", s.name, s.name) for s in self.definition.outputs]
        out += [("const long long", axis.name, axis.name) for axis in self.definition.var_axes]
        return out + [("const long long", name, f"stride({s.name},{dim})") for s in tensors for name, dim in stride_arguments(s)]

    def _product(self, constant: int, names: tuple[str, ...], cast: bool = True) -> str:
        number = [f"{constant}{'LL' if cast and names else ''}"] if constant > 1 or not names else []
        return " * ".join([*names, *number])

    # ---- what the walker asks for -----------------------------------------------------------------------------------------

    def statement(self, scope: int, name: str, text: str, dtype: str) -> None:
        (self.element if scope & INNER else self.body).append(f"const {TYPES[dtype]} {name} = {text};")

    def pointwise(self, node: Node, args: list[Term]) -> str:
        return pointwise(node, args)

    def index(self, index: Index, start: int, step: int) -> str:
        return f"((long long){index.text() if index.plain else f'({index.text()})'}) * {step}LL + {start}LL"

    def choose(self, condition: str, yes: Term, no: Term, dtype: str) -> str:
        return f"{condition} ? {converted(yes, dtype)} : {converted(no, dtype)}"

    def load(self, spec: TensorSpec, indices: dict[str, Index]) -> str:
        offsets = address(spec, indices, self.loops, self.flat)
        guards = list(dict.fromkeys(guard for index in indices.values() for guard in index.guards))
        if self._packed(offsets) and not guards:
            if spec.name in self.held:
                return from_memory(f"{self.held[spec.name]}[k].at[j]", spec.dtype)
            place = f"{self._pointer(spec, offsets)} + col0"
            self.packs[spec.name] = f"const auto {spec.name}_pack = read<{self.vector}>({place}, aligned);"
            return from_memory(f"{spec.name}_pack.at[j]", spec.dtype)
        inner = " + ".join(self._summand(o) for o in offsets if o.index.scope != OUTER)
        text = from_memory(f"{self._pointer(spec, offsets)}[{inner or '0'}]", spec.dtype)
        return f"{' && '.join(guards)} ? {text} : {literal('0', compute_dtype(spec.dtype))}" if guards else text

    def _packed(self, offsets: list[Offset]) -> bool:
        """Whether neighbours along `col` are neighbours in memory."""
        inner = [o for o in offsets if o.index.scope == INNER]
        return len(inner) == 1 and inner[0].index.base == "col" and inner[0].index.plain and not inner[0].factors

    def _pointer(self, spec: TensorSpec, offsets: list[Offset]) -> str:
        """The row's pointer, computed once."""
        outer = [self._summand(o) for o in offsets if o.index.scope == OUTER]
        if not outer:
            return spec.name
        key = f"{spec.name} + {' + '.join(outer)}"
        if key not in self.pointers:
            count = sum(name.startswith(f"{spec.name}_row") for name in self.pointers.values())
            self.pointers[key] = f"{spec.name}_row" + (f"_{count + 1}" if count else "")
            const = "" if spec.name.startswith("y") else "const "
            self.body.append(f"{const}{STORED[spec.dtype]}* const {self.pointers[key]} = {key};")
        return self.pointers[key]

    def _summand(self, offset: Offset) -> str:
        text = offset.index.text() if offset.index.plain else f"({offset.index.text()})"
        factors = [f"{f}LL" if isinstance(f, int) else f for f in offset.factors]
        return " * ".join([f"(long long){text}" if factors else text, *factors])

    # ---- text -------------------------------------------------------------------------------------------------------------

    def text(self) -> str:
        if self.schedule.form != "loop":
            self._hold()
        pair = online_softmax(self.loops) if self.schedule.form == "loop" and self.schedule.online else None
        done: set[str] = set()
        for stage in self.loops.stages:
            todo = [node for node in stage if node.name not in done]
            if pair is not None and pair[0] in todo:
                self._online(*pair)
                done |= {node.name for node in pair}
            elif todo:
                self._stage(todo)
        self._stores()
        body = "\n".join(f"    {line}".rstrip() if not line.startswith("#") else line for line in self._preamble() + self.body)
        parameters = ", ".join(f"{kind} {name}" for kind, name, _ in self._parameters())
        block = self.threads * self.rows
        return (f"{self._header()}\n{self._includes()}\n{PRELUDE}\n"
                f'extern "C" __global__ void __launch_bounds__({block}) kernel({parameters}) {{\n{body}\n}}\n')

    def _header(self) -> str:
        meaning = reference_source(self.definition).split("\n\n\n", 1)[1].rstrip().splitlines()
        axes = ", ".join(f"{a.name}={a.value or 'any'}" for a in self.definition.axes)
        title = f"{self.definition.kind} over {axes}; schedule: {self.schedule}"
        lines = [title, "", "Computes", "", *(f"    {m}" for m in meaning)]
        return "\n".join(f"// {line}".rstrip() for line in lines)

    def _includes(self) -> str:
        dtypes = {spec.dtype for spec in self.definition.inputs + self.definition.outputs}
        names = {"bfloat16": "#include <cuda_bf16.h>\n", "float16": "#include <cuda_fp16.h>\n"}
        return "".join(text for dtype, text in names.items() if dtype in dtypes)

    def _preamble(self) -> list[str]:
        """Which row (and part of it) this thread works on."""
        loops, used = self.loops, "\n".join(self.body)
        lines = [f"const int lane = threadIdx.x{' % 32' if self.rows > 1 else ''};"]
        if self.schedule.form == "tile":
            kind = "long long" if self.flat_long else "int"
            size = self._product(self.constant, self.names)
            block = self.schedule.block
            if loops.outer:
                lines.append(f"const long long across = ({size} + {block - 1}) / {block};")
                lines.append("const long long row = blockIdx.x / across;")
                lines.append(f"const {kind} start = (int)(blockIdx.x % across) * {block};")
            else:
                lines.append(f"const {kind} start = ({kind})blockIdx.x * {block};")
        elif loops.outer:
            many = f" * {self.rows} + threadIdx.x / 32" if self.rows > 1 else ""
            lines.append(f"const long long row = (long long)blockIdx.x{many};")
            if self.rows > 1:
                lines.append(f"if (row >= {self._product(*loops.size_factors(loops.outer))}) return;")
        tensors = self.definition.inputs + self.definition.outputs
        pointers = " | ".join(f"(unsigned long long){spec.name}" for spec in tensors)
        names = [name for spec in tensors for name, _ in stride_arguments(spec)] if self.vector > 1 else []
        strides = "".join(f" && {name} % {self.vector} == 0" for name in names)
        lines.append(f"const bool aligned = ({pointers}) % 16 == 0{strides};")
        split = [f"const long long {line};" for line in self._split(loops.outer, "row", used)]
        return lines + split

    def _split(self, axes: tuple[str, ...], flat: str, used: str) -> list[str]:
        lines = []
        for position, name in enumerate(axes):
            if len(axes) > 1 and re.search(rf"\bi_{name}\b", used):
                constant, names = self.loops.size_factors(axes[position + 1 :])
                text = flat + "".join(f" / {f}" for f in (*names, *([constant] if constant > 1 else [])))
                size = self._product(*self.loops.size_factors((name,)))
                lines.append(f"i_{name} = {text}" + (f" % {size}" if position else ""))
        return lines

    # ---- passes over a row ------------------------------------------------------------------------------------------------

    def _loop(self, inside: list[str], closing: list[str]) -> None:
        """A loop over the thread's packs: `inside` for each pack's elements, `closing` after them."""
        size, kind = self._product(self.constant, self.names), "long long" if self.flat_long else "int"
        step = self.threads * self.vector
        whole = not self.names and self.constant % self.schedule.block == 0 and self.schedule.form != "loop"
        if self.schedule.form == "loop":
            head = [f"for (int col0 = lane * {self.vector}; col0 < {size}; col0 += {step}) {{"]
        else:
            start = "start + " if self.schedule.form == "tile" else ""
            head = ["#pragma unroll", f"for (int k = 0; k < {self.per_thread}; ++k) {{",
                    f"    const {kind} col0 = {start}k * {step} + lane * {self.vector};"]
            if not whole:
                head.append(f"    if (col0 >= {size}) break;" if self.schedule.form == "tile" else f"    if (col0 < {size}) {{")
        packs = list(self.packs.values())
        columns = [f"const {kind} col = col0 + j;"] if re.search(r"\bcol\b|\bi_", "\n".join(inside)) else []
        columns += [f"const {kind} {line};" for line in self._split(self.loops.inner, "col", "\n".join(inside))]
        elements = ["#pragma unroll", f"for (int j = 0; j < {self.vector}; ++j) {{", *(f"    {s}" for s in columns + inside), "}"]
        lines = packs + (elements if inside else []) + closing
        if whole and not re.search(r"\bcol0\b", "\n".join(lines)):
            del head[2]
        nested = self.schedule.form == "rows" and not whole
        self.body += head + [s if s.startswith("#") else f"{'        ' if nested else '    '}{s}" for s in lines]
        self.body += (["    }"] if nested else []) + ["}"]

    def _pass(self, write) -> None:
        """One loop: `write()` emits element statements and returns those that close a pack."""
        self.walker.forget(INNER)
        self.packs, self.element = {}, []
        closing = write() or []
        inside, self.element = self.element, self.body
        self._loop(inside, closing)

    def _pass_of(self, write, jobs: list[tuple]) -> None:
        """One loop that calls `write` for each job."""
        def statements() -> list[str]:
            for job in jobs:
                write(*job)
            return []

        self._pass(statements)

    def _hold(self) -> None:
        """Read the inputs into registers: all that vary over the row, the row's own first."""
        held = []
        for spec in self.definition.inputs:
            if not set(spec.shape) <= set(self.env):
                continue
            offsets = address(spec, {axis: self.env[axis] for axis in spec.shape}, self.loops, self.flat)
            wanted = any(o.index.scope == OUTER for o in offsets) or self.per_thread * self.vector <= 16
            if self._packed(offsets) and wanted:
                held.append((spec, offsets))
        if not held:
            return
        for spec, _ in held:
            self.body.append(f"Pack<{STORED[spec.dtype]}, {self.vector}> v{spec.name[1:]}_held[{self.per_thread}];")
        self.packs = {}
        reads = [f"v{spec.name[1:]}_held[k] = read<{self.vector}>({self._pointer(spec, offsets)} + col0, aligned);"
                 for spec, offsets in held]
        self._loop([], reads)
        self.held = {spec.name: f"v{spec.name[1:]}_held" for spec, _ in held}

    def _stores(self) -> None:
        stores = self.loops.outputs(inner=True)
        if stores:
            self._pass(lambda: [line for spec, name in stores for line in self._store(spec, name)])
        if self.loops.outputs(inner=False):
            self.body.append("if (lane == 0) {")
            for spec, name in self.loops.outputs(inner=False):
                place = self._pointer_before(spec)
                value = converted(self.walker.value(name, self.env), compute_dtype(spec.dtype))
                self.body.append(f"    {place}[0] = {to_memory(value, spec.dtype)};")
            self.body.append("}")

    def _pointer_before(self, spec: TensorSpec) -> str:
        return self._pointer(spec, address(spec, {axis: self.env[axis] for axis in spec.shape}, self.loops, self.flat))

    def _store(self, spec: TensorSpec, name: str) -> list[str]:
        offsets = address(spec, {axis: self.env[axis] for axis in spec.shape}, self.loops, self.flat)
        value = to_memory(converted(self.walker.value(name, self.env), compute_dtype(spec.dtype)), spec.dtype)
        pointer = self._pointer(spec, offsets)
        if not self._packed(offsets):
            inner = " + ".join(self._summand(o) for o in offsets if o.index.scope != OUTER)
            self.element.append(f"{pointer}[{inner}] = {value};")
            return []
        self.packs[spec.name] = f"Pack<{STORED[spec.dtype]}, {self.vector}> {spec.name}_pack;"
        self.element.append(f"{spec.name}_pack.at[j] = {value};")
        return [f"write<{self.vector}>({pointer} + col0, {spec.name}_pack, aligned);"]

    # ---- reductions -------------------------------------------------------------------------------------------------------

    def _operand(self, node: Node) -> tuple[str, str]:
        """The reduction's operand and its type."""
        term = self.walker.value(node.args[0], self.env)
        dtype = compute_dtype(node.dtype)
        return (f"(int){converted(term, 'bool')}", "int32") if node.op in ("any", "all") else (converted(term, dtype), dtype)

    def _type(self, node: Node) -> str:
        return "int32" if node.op in ("any", "all") else compute_dtype(node.dtype)

    def _across(self, op: str, text: str) -> str:
        return f"reduce<{self.warps}>({text}, {op}())"

    def _count(self, dtype: str) -> str:
        if not self.names:
            return literal(str(self.constant), dtype)
        return f"(({TYPES[dtype]})({self._product(self.constant, self.names)}))"

    def _stage(self, nodes: list[Node]) -> None:
        """All reductions of a stage in one pass, a variance's squares in a second one."""
        variances = [n for n in nodes if n.op == "var"]
        # a variance uses the mean beside it
        twins = {source_value(self.definition, n.args[0]): n for n in nodes if n.op == "mean"}
        means = {n.name: twins[source_value(self.definition, n.args[0])].name for n in variances
                 if source_value(self.definition, n.args[0]) in twins}
        nodes = [n for n in nodes if n.name not in means]
        for node in nodes:
            start = "0" if node.op == "var" else self._neutral(node)
            self.body.append(f"{TYPES[self._type(node)]} {node.name}_acc = {literal(start, self._type(node))};")
        self._pass_of(self._accumulate, [(node,) for node in nodes])
        for node in nodes:
            self._finish(node)
        for node in variances:
            self.body.append(f"{TYPES[self._type(node)]} {node.name}_squares = {literal('0', self._type(node))};")
        if variances:
            self._pass_of(self._centred, [(node, means.get(node.name, f"{node.name}_mean")) for node in variances])
        for node in variances:
            dtype = self._type(node)
            correction = literal(str(node.attr("correction")), dtype)
            total = self._across("Sum", f"{node.name}_squares")
            self._bind(node, f"{total} / ({self._count(dtype)} - {correction})")

    def _neutral(self, node: Node) -> str:
        dtype, text = self._type(node), _NEUTRAL[node.op]
        if "inf" in text and not dtype.startswith("float"):
            low, high = {"bool": (0, 1), "uint8": (0, 255)}.get(dtype, (None, None))
            if low is None:
                bits = int(re.sub(r"\D", "", dtype))
                low, high = -(2 ** (bits - 1)) + (bits == 64), 2 ** (bits - 1) - 1
            return str(low if node.op == "amax" else high)
        return text

    def _accumulate(self, node: Node) -> None:
        value, _ = self._operand(node)
        name = f"{node.name}_acc"
        operator = _OPERATORS.get(node.op, "Sum")
        infix = {"Sum": f"{name} + {value}", "Product": f"{name} * {value}"}
        self.element.append(f"{name} = {infix.get(operator) or f'{operator}()({name}, {value})'};")

    def _finish(self, node: Node) -> None:
        dtype, total = self._type(node), self._across(_OPERATORS.get(node.op, "Sum"), f"{node.name}_acc")
        if node.op == "var":
            self.body.append(f"const {TYPES[dtype]} {node.name}_mean = {total} / {self._count(dtype)};")
        elif node.op == "mean":
            self._bind(node, f"{total} / {self._count(dtype)}")
        else:
            self._bind(node, f"{total} != 0" if node.op in ("any", "all") else total)

    def _centred(self, node: Node, mean: str) -> None:
        value, dtype = self._operand(node)
        self.element.append(f"const {TYPES[dtype]} {node.name}_apart = {value} - {mean};")
        self.element.append(f"{node.name}_squares += {node.name}_apart * {node.name}_apart;")

    def _bind(self, node: Node, text: str) -> None:
        self.body.append(f"const {TYPES[compute_dtype(node.dtype)]} {node.name} = {text};")
        self.walker.bind(node, node.name)

    def _online(self, maximum: Node, total: Node) -> None:
        """A running maximum and sum of exp(value - maximum) in each thread, merged at the end."""
        dtype = compute_dtype(total.dtype)
        kind, exp = TYPES[dtype], "expf" if dtype == "float32" else "exp"
        most, acc, low, zero = f"{maximum.name}_acc", f"{total.name}_acc", literal("-inf", dtype), literal("0", dtype)
        self.body += [f"{kind} {most} = {low};", f"{kind} {acc} = {zero};"]

        def write() -> None:
            value, _ = self._operand(maximum)
            self.element += [f"const {kind} {most}_next = Max()({most}, {value});",
                             f"const {kind} {most}_base = {most}_next == {low} ? {zero} : {most}_next;",
                             f"{acc} = {acc} * {exp}({most} - {most}_base) + {exp}({value} - {most}_base);",
                             f"{most} = {most}_next;"]

        self._pass(write)
        self._bind(maximum, self._across("Max", most))
        self._bind(total, self._across("Sum", f"{acc} * {exp}({most} - {maximum.name})"))
