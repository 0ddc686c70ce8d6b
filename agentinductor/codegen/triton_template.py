"""Triton kernels for pointwise definitions and row reductions, written around the definition's own body.

Three forms (see schedule.py). "tile" gives a program a tile of rows x block. "rows" holds whole rows in registers:
every reduction is one `tl.sum` or `tl.reduce`, the row is read once. "loop" reads a row in blocks, once for each stage of
reductions and once to store; `online` merges passes (Welford for a variance, a running maximum for softmax).
Row offsets are int64; whatever a mask cannot cut off is not masked.
"""

import re
from dataclasses import dataclass, field

from ..errors import UnsupportedRegionError
from ..schema import Definition, Guard, Node, Reason, Solution, Source, TensorSpec
from ..schema.axes import FLOATS
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
    stride_arguments,
)
from .reference import source as reference_source
from .schedule import Schedule, power_of_2
from .triton_ops import TYPES, combiner, converted, extreme, helpers, pointwise

RESERVED = {"row", "row32", "col", "tile", "tiles", "inside", "alive", "start", "across", "tl", "triton", "libdevice", "run",
            "kernel", "grid"}
LONGEST_LOOP = 2**30  # inner elements: loop counters are int32
NARROW_ROWS = 128  # rows of at least so many elements are fewer than 2^31 on any device


def emit(definition: Definition, schedule: Schedule) -> Solution:
    """A Triton solution. Raises UnsupportedRegionError when the template cannot express the definition so."""
    loops = analyse(definition)
    writer = _Kernel(loops, schedule)
    text = writer.text()
    return Solution(definition.digest, "triton", "kernel.py::run", (Source("kernel.py", text),), guards=tuple(writer.guards()))


@dataclass
class _Printer:
    """Writes Triton. Statements go to the block of their scope; `blocks` says which scopes share one."""

    loops: Loops
    blocks: dict[int, list[str]]
    flat: dict[tuple[str, ...], Index]
    masks: dict[int, str]  # scope -> mask variable, where one is needed
    other: bool  # masked loads yield 0 rather than anything
    reread: bool = False  # this pass's data will be read again
    streaming: bool = False
    wide: bool = False  # the inner index is int64 already
    pointers: dict[str, str] = field(default_factory=dict)

    def statement(self, scope: int, name: str, text: str, dtype: str) -> None:
        self.blocks[scope].append(f"{name} = {text}")

    def pointwise(self, node: Node, args: list[Term]) -> str:
        return pointwise(node, args)

    def index(self, index: Index, start: int, step: int) -> str:
        text = f"tl.cast({index.text()}, tl.int64)"
        text = text if step == 1 else f"{text} * {step}"
        return text if start == 0 else f"{text} + {start}"

    def choose(self, condition: str, yes: Term, no: Term, dtype: str) -> str:
        return f"tl.where({condition}, {converted(yes, dtype)}, {converted(no, dtype)})"

    def load(self, spec: TensorSpec, indices: dict[str, Index]) -> str:
        pointer, scope, mask = self._place(spec, indices)
        arguments = [pointer]
        if mask:
            arguments.append(f"mask={mask}")
            if self.other:
                arguments.append(f"other={'0.0' if spec.dtype in FLOATS else '0'}")
        if scope == INNER and self.loops.outer or self.reread:
            arguments.append('eviction_policy="evict_last"')
        elif self.streaming and set(spec.shape) >= set(self.loops.outer + self.loops.inner):
            arguments.append('eviction_policy="evict_first"')
        text = f"tl.load({', '.join(arguments)})"
        kept = compute_dtype(spec.dtype)
        return text if kept == spec.dtype else f"{text}.to({TYPES[kept]})"

    def store(self, spec: TensorSpec, value: Term, indices: dict[str, Index]) -> str:
        pointer, _, mask = self._place(spec, indices)
        text = converted(value, compute_dtype(spec.dtype))
        policy = ', eviction_policy="evict_first"' if self.streaming else ""
        return f"tl.store({pointer}, {text}{f', mask={mask}' if mask else ''}{policy})"

    def _place(self, spec: TensorSpec, indices: dict[str, Index]) -> tuple[str, int, str]:
        """Pointer, scope and mask of the elements at `indices`."""
        offsets = address(spec, indices, self.loops, self.flat)
        outer = [self._summand(o) for o in offsets if o.index.scope == OUTER]
        inner = [self._summand(o) for o in offsets if o.index.scope != OUTER]
        pointer = spec.name
        if outer:
            pointer = self._row_pointer(spec.name, " + ".join(outer))
        scope, conditions = 0, []
        for index in indices.values():
            scope |= index.scope
            conditions += [f"({guard})" for guard in index.guards if f"({guard})" not in conditions]
        masks = [self.masks[bit] for bit in (OUTER, INNER) if scope & bit and bit in self.masks]
        return " + ".join([pointer, *inner]), scope, " & ".join(masks + conditions)

    def _row_pointer(self, tensor: str, offset: str) -> str:
        """A pointer to the row, computed once in the outer block."""
        key = f"{tensor} + {offset}"
        if key not in self.pointers:
            count = sum(name.startswith(f"{tensor}_row") for name in self.pointers.values())
            self.pointers[key] = f"{tensor}_row" + (f"_{count + 1}" if count else "")
            self.blocks[OUTER].append(f"{self.pointers[key]} = {key}")
        return self.pointers[key]

    def _summand(self, offset: Offset) -> str:
        text = offset.index.text()
        if not offset.factors:
            return text if offset.index.plain else f"({text})"
        if offset.index.scope != OUTER and not self.wide:
            text = f"tl.cast({text}, tl.int64)"
        elif not offset.index.plain:
            text = f"({text})"
        return " * ".join([text, *map(str, offset.factors)])


class _Kernel:
    """One kernel and its launcher."""

    def __init__(self, loops: Loops, schedule: Schedule):
        self.loops, self.schedule, self.definition = loops, schedule, loops.definition
        self._check()
        self.flat_form = not loops.outer
        self.two_d = schedule.rows > 1 and bool(loops.outer)
        self.rows = schedule.rows if loops.outer else 1
        self.block = schedule.block
        self.prologue: list[str] = []
        self.body: list[str] = []
        constant, names = loops.size_factors(loops.inner)
        self.inner_constant = constant if not names else None
        self.single = schedule.form != "loop" and self.inner_constant is not None and self.block >= self.inner_constant
        self.single |= schedule.form == "rows"
        hoist = schedule.form == "rows" and schedule.programs > 0
        self.row_block = self.body
        self.blocks = {0: self.prologue, OUTER: self.body, INNER: self.prologue if hoist else self.body, 3: self.body}
        self.hoist = hoist
        self.masks: dict[int, str] = {}
        self._set_masks()
        self.env, flat = self._indices()
        self.printer = _Printer(loops, self.blocks, flat, self.masks, loops.reduces, wide=self._wide(),
                                streaming=schedule.stream)
        self.walker = Walker(loops, self.printer)

    def _check(self) -> None:
        taken = {axis.name for axis in self.definition.axes} & RESERVED
        if taken:
            raise UnsupportedRegionError(Reason.UNSUPPORTED_SHAPE, f"axis named {sorted(taken)[0]}")
        if (self.schedule.form == "tile") == self.loops.reduces:
            raise UnsupportedRegionError(Reason.UNSUPPORTED_SHAPE, f"form {self.schedule.form} does not fit this definition")
        for spec in self.definition.outputs:
            if not set(spec.shape) >= set(self.loops.outer) and self.loops.outer:
                raise UnsupportedRegionError(Reason.UNSUPPORTED_SHAPE, f"{spec.name} lacks an axis that others iterate")
            if set(spec.shape) & set(self.loops.inner) and not set(spec.shape) >= set(self.loops.inner):
                raise UnsupportedRegionError(Reason.UNSUPPORTED_SHAPE, f"{spec.name} has some of the inner axes only")
        if self.schedule.programs and self.loops.reduces and not self.loops.outer:
            raise UnsupportedRegionError(Reason.UNSUPPORTED_SHAPE, "a persistent grid for a single row")
        constant, names = self.loops.size_factors(self.loops.inner)
        block = self.schedule.block
        if self.schedule.form == "rows" and not names and constant > block:
            raise UnsupportedRegionError(Reason.UNSUPPORTED_SHAPE, f"block {block} is less than the row's {constant}")

    def guards(self) -> list[Guard]:
        """What the kernel relies on: sizes of at least 1, rows that fit, counters that do not overflow."""
        out = [Guard("device", "cuda")]
        longest = self.schedule.block if self.schedule.form == "rows" else 2**60 if self._wide() else LONGEST_LOOP
        constant, names = self.loops.size_factors(self.loops.inner)
        if len(names) > 1:
            longest = max(int(longest ** (1 / len(names))), 1)
        for axis in self.definition.var_axes:
            high = max(longest // constant, 1) if axis.name in names else 2**40
            out.append(Guard("range", axis.name, 1, high))
        return out

    # ---- indices and masks ------------------------------------------------------------------------------------------------

    def _wide(self) -> bool:
        """Pointwise inner indices are int64 when a tensor may hold more than 2^31 elements along them."""
        return not self.loops.outer and not self.loops.reduces and self.inner_constant is None

    def _set_masks(self) -> None:
        constant, names = self.loops.size_factors(self.loops.inner)
        if constant % self.block or (self.single and constant != self.block) or (self.single and names):
            self.masks[INNER] = "inside"
        constant, names = self.loops.size_factors(self.loops.outer)
        if self.two_d and constant % self.rows:
            self.masks[OUTER] = "alive"

    def _indices(self) -> tuple[dict[str, Index], dict[tuple[str, ...], Index]]:
        env = {}
        for axes, base, scope in ((self.loops.outer, "row", OUTER), (self.loops.inner, "col", INNER)):
            for name in axes:
                env[name] = Index(base if len(axes) == 1 else f"i_{name}", scope)
        flat = {self.loops.outer: Index("row", OUTER), self.loops.inner: Index("col", INNER)}
        return env, {axes: index for axes, index in flat.items() if len(axes) > 1}

    def _size(self, axes: tuple[str, ...], wide: bool = True) -> str:
        """The number of elements over `axes` as an expression."""
        constant, names = self.loops.size_factors(axes)
        if not names:
            return str(constant)
        first = f"tl.cast({names[0]}, tl.int64)" if wide and (len(names) > 1 or constant > 1) else names[0]
        return " * ".join([first, *names[1:], *([str(constant)] if constant > 1 else [])])

    def _split(self, axes: tuple[str, ...], flat: str, used: str) -> list[str]:
        """`i_seq = row // 8 % seq` for each axis of a flat index that `used` mentions."""
        lines = []
        for position, name in enumerate(axes):
            if len(axes) > 1 and re.search(rf"\bi_{name}\b", used):
                constant, names = self.loops.size_factors(axes[position + 1 :])
                text = flat + "".join(f" // {f}" for f in (*names, *([constant] if constant > 1 else [])))
                lines.append(f"i_{name} = {text}" + (f" % {self._size((name,))}" if position else ""))
        return lines

    # ---- the kernel's text ------------------------------------------------------------------------------------------------

    def text(self) -> str:
        {"tile": self._tile, "rows": self._rows, "loop": self._loop}[self.schedule.form]()
        kernel = self._kernel()
        needs_libdevice = "libdevice." in helpers(kernel) + kernel
        imports = "import triton\nimport triton.language as tl\n"
        if needs_libdevice:
            imports += "from triton.language.extra import libdevice\n"
        return f"{self._header()}\n\n{imports}{helpers(kernel)}\n\n{kernel}\n\n{self._launcher()}"

    def _header(self) -> str:
        meaning = reference_source(self.definition).split("\n\n\n", 1)[1].replace("\\", "\\\\").rstrip()
        quoted = "\n".join(f"    {line}".rstrip() for line in meaning.splitlines())
        axes = ", ".join(f"{a.name}={a.value or 'any'}" for a in self.definition.axes)
        return f'"""{self.definition.kind} over {axes}; schedule: {self.schedule}\n\nComputes\n\n{quoted}\n"""'

    def _arguments(self) -> tuple[list[str], list[str]]:
        """Kernel parameters and what the launcher passes for them."""
        tensors = self.definition.inputs + self.definition.outputs
        names = [spec.name for spec in tensors]
        passed = list(names)
        sizes = [axis.name for axis in self.definition.var_axes]
        names += sizes
        passed += sizes
        for spec in tensors:
            for name, dim in stride_arguments(spec):
                names.append(name)
                passed.append(f"{spec.name}.stride({dim})")
        return names, passed

    def _constexprs(self) -> list[tuple[str, int]]:
        out = [("ROWS", self.rows)] if self.two_d else []
        out.append(("BLOCK", self.block))
        if self.schedule.programs:
            out += [("PROGRAMS", self.schedule.programs), ("STAGES", self.schedule.stages)]
        elif self.schedule.form == "loop":
            out.append(("STAGES", self.schedule.stages))
        return out

    def _kernel(self) -> str:
        head = (self._columns() if self.hoist else []) + self.prologue
        inside = self._preamble() + self.body
        if self.schedule.programs:
            head += [f"tiles = {self._tiles()}", "for tile in tl.range(tl.program_id(0), tiles, PROGRAMS, num_stages=STAGES):"]
            inside = [f"    {line}" for line in inside]
        elif re.search(r"\btile\b", "\n".join(inside)):
            head.append("tile = tl.program_id(0)")
        code = "\n".join(f"    {line}" for line in head + inside)
        self.parameters = [name for name in self._arguments()[0] if re.search(rf"\b{name}\b", code)]
        constants = [f"{name}: tl.constexpr" for name, _ in self._constexprs()]
        return f"@triton.jit\ndef kernel({', '.join(self.parameters + constants)}):\n{code}\n"

    def _preamble(self) -> list[str]:
        """Which tile this is: row, col and their masks."""
        used = "\n".join(self.body)
        lines: list[str] = []
        tile = "tile"
        if not self.single and self.schedule.form == "tile" and self.loops.outer:
            lines.append(f"across = tl.cdiv({self._size(self.loops.inner)}, BLOCK)")
            tile = "tile // across"
        if self.loops.outer:
            lines += self._row(tile, used)
        if self.schedule.form == "loop" or self.hoist:
            return lines
        return lines + self._columns()

    def _row(self, tile: str, used: str) -> list[str]:
        """`row` (int64) and the axes it splits into. Divisions are done in int32 where no count of rows can overflow it."""
        lanes = " * ROWS + tl.arange(0, ROWS)[:, None]" if self.two_d else ""
        split = self._split(self.loops.outer, "row", used)
        narrow = bool(split) and (not self.two_d or (self.inner_constant or 0) >= NARROW_ROWS)
        if narrow:
            lines = [f"row32 = {tile}{lanes}", "row = tl.cast(row32, tl.int64)"]  # // binds as tightly as *, from the left
            split = [f"{name} = tl.cast({text}, tl.int64)"
                     for name, text in (line.split(" = ") for line in self._split(self.loops.outer, "row32", used))]
        else:
            lines = [f"row = tl.cast({tile}, tl.int64){lanes}"]
        if OUTER in self.masks and "alive" in used:
            lines.append(f"alive = row < {self._size(self.loops.outer)}")
        return lines + split

    def _columns(self, start: str = "") -> list[str]:
        """`col`, its mask and the axes it splits into."""
        arange = "tl.arange(0, BLOCK)[None, :]" if self.two_d else "tl.arange(0, BLOCK)"
        if not start and not self.single and self.schedule.form == "tile":
            index = "tile % across" if self.loops.outer else "tile"
            start = f"tl.cast({index}, tl.int64) * BLOCK" if self._wide() else f"{index} * BLOCK"  # %, too, binds from the left
        lines = [f"col = {start} + {arange}" if start else f"col = {arange}"]
        if INNER in self.masks:
            lines.append(f"inside = col < {self._size(self.loops.inner, wide=self._wide())}")
        return lines + self._split(self.loops.inner, "col", "\n".join(self.body + self.prologue))

    def _tiles(self) -> str:
        """How many tiles there are: in the kernel's words, and the launcher's."""
        parts = []
        if self.loops.outer:
            size = self._size(self.loops.outer)
            parts.append(f"tl.cdiv({size}, ROWS)" if self.two_d else size)
        if self.schedule.form == "tile" and not self.single:
            parts.append(f"tl.cdiv({self._size(self.loops.inner)}, BLOCK)")
        return " * ".join(parts) or "1"

    def _launcher(self) -> str:
        tensors = self.definition.inputs + self.definition.outputs
        every, passed = self._arguments()
        lines = [f"def run({', '.join(spec.name for spec in tensors)}):"]
        outer, inner = self._launch_size(self.loops.outer), self._launch_size(self.loops.inner)
        parts = [outer if self.rows == 1 else self._ceil(outer, self.rows)] if self.loops.outer else []
        if self.schedule.form == "tile" and not self.single:
            parts.append(self._ceil(inner, self.block))
        grid = " * ".join(parts) if parts else "1"
        if self.schedule.programs:
            grid = str(self.schedule.programs)
        for axis in self.definition.var_axes:
            owner = next((s for s in tensors if axis.name in s.shape), None)
            if owner is None:
                raise UnsupportedRegionError(Reason.UNSUPPORTED_SHAPE, f"no tensor has axis {axis.name}")
            if axis.name in self.parameters or re.search(rf"\b{axis.name}\b", grid):
                lines.append(f"    {axis.name} = {owner.name}.shape[{owner.shape.index(axis.name)}]")
        lines.append(f"    grid = ({grid},)")
        arguments = [p for n, p in zip(every, passed, strict=True) if n in self.parameters]
        arguments += [f"{name}={value}" for name, value in self._constexprs()]
        stages = self.schedule.stages if not self.schedule.programs and self.schedule.form != "loop" else 1
        arguments += [f"num_warps={self.schedule.warps}", f"num_stages={stages}"]
        lines.append(f"    kernel[grid]({', '.join(arguments)})")
        return "\n".join(lines) + "\n"

    def _launch_size(self, axes: tuple[str, ...]) -> str:
        constant, names = self.loops.size_factors(axes)
        return " * ".join([*names, *([str(constant)] if constant > 1 or not names else [])])

    def _ceil(self, size: str, block: int) -> str:
        return f"(({size} + {block - 1}) // {block})" if not size.isdigit() else str(-(-int(size) // block))

    # ---- forms ------------------------------------------------------------------------------------------------------------

    def _tile(self) -> None:
        for spec, name in self.loops.outputs(inner=True) + self.loops.outputs(inner=False):
            self._store(spec, name, self.body)

    def _store(self, spec: TensorSpec, name: str, block: list[str]) -> None:
        value = self.walker.value(name, self.env)
        indices = {axis: self.env[axis] for axis in spec.shape}
        text = self.printer.store(spec, value, indices)
        block.append(text)

    def _rows(self) -> None:
        """Whole rows in registers: each reduction is one statement."""
        for stage in self.loops.stages:
            means: dict[str, str] = {}
            for node in sorted(stage, key=lambda n: n.op != "mean"):  # a variance uses the mean beside it
                self._reduce_row(node, means)
        for spec, name in self.loops.outputs(inner=True) + self.loops.outputs(inner=False):
            self._store(spec, name, self.body)

    def _operand(self, node: Node) -> Term:
        """The reduction's operand, in the type it is accumulated in."""
        term = self.walker.value(node.args[0], self.env)
        if not term.scope & INNER:
            raise UnsupportedRegionError(Reason.UNSUPPORTED_SHAPE, f"{node.name} reduces a value that does not vary")
        if node.op in ("any", "all"):
            return Term(f"{converted(term, 'bool')}.to(tl.int32)", "int32", term.scope)
        dtype = compute_dtype(node.dtype)
        return Term(converted(term, dtype), dtype, term.scope)

    def _masked(self, text: str, neutral: str) -> str:
        return f"tl.where(inside, {text}, {neutral})" if INNER in self.masks else text

    def _across(self, op: str, text: str, dtype: str) -> str:
        """Reduce a block across its inner dimension."""
        where = "1, keep_dims=True" if self.two_d else "0"
        if op in ("sum", "mean", "var"):
            return f"tl.sum({text}, {where})"
        if op in ("any", "all"):
            return f"tl.{'max' if op == 'any' else 'min'}({text}, {where})"
        return f"tl.reduce({text}, {where.split(',')[0]}, {'_product' if op == 'prod' else combiner(op, dtype)}" + (
            ", keep_dims=True)" if self.two_d else ")")

    def _count(self) -> str:
        constant, names = self.loops.size_factors(self.loops.inner)
        if not names:
            return f"{constant}.0"
        size = self._size(self.loops.inner, wide=False)
        return f"({size})" if " " in size else size

    def _reduce_row(self, node: Node, means: dict[str, str]) -> None:
        term = self._operand(node)
        out, dtype, add = node.name, term.dtype, self.body.append
        if node.op == "var":
            mean = means.get(term.text)
            if mean is None:
                mean = f"{out}_mean"
                add(f"{mean} = {self._across('sum', self._masked(term.text, '0.0'), dtype)} / {self._count()}")
            add(f"{out}_centred = {self._masked(f'{term.text} - {mean}', '0.0')}")
            add(f"{out} = {self._across('sum', f'{out}_centred * {out}_centred', dtype)} / {self._divisor(node)}")
        else:
            text = self._across(node.op, self._masked(term.text, extreme(node.op, dtype)), dtype)
            add(f"{out} = {self._finish(node, text)}")
            if node.op == "mean":
                means[term.text] = out
        self.walker.bind(node, out)

    def _divisor(self, node: Node) -> str:
        correction = node.attr("correction")
        return f"({self._count()} - {correction})" if correction else self._count()

    def _finish(self, node: Node, text: str) -> str:
        if node.op == "mean":
            return f"{text} / {self._count()}"
        return f"({text}) != 0" if node.op in ("any", "all") else text

    # ---- rows that are read in blocks -------------------------------------------------------------------------------------

    def _loop(self) -> None:
        pair = online_softmax(self.loops) if self.schedule.online else None
        done: set[str] = set()
        for stage in self.loops.stages:
            todo = [node for node in stage if node.name not in done]
            if pair is not None and pair[0] in todo:
                self._online_pass(*pair)
                done |= {node.name for node in pair}
            elif todo:
                self._stage_passes(todo)
        stores = self.loops.outputs(inner=True)
        if stores:
            def write(block: list[str]) -> None:
                for spec, name in stores:
                    self._store(spec, name, block)

            self._pass(write, last=True)
        for spec, name in self.loops.outputs(inner=False):
            self._store(spec, name, self.body)

    def _pass(self, write, last: bool = False) -> None:
        """One loop over the row; `write(block)` emits the loop's statements into `block`."""
        block: list[str] = []
        self.walker.forget(INNER)
        self.blocks[INNER] = self.blocks[3] = block
        self.printer.reread, self.printer.streaming = not last, last and self.schedule.stream
        write(block)
        self.printer.reread, self.printer.streaming = False, self.schedule.stream
        size = self._size(self.loops.inner, wide=False)
        head = f"for start in tl.range(0, {size}, BLOCK, num_stages=STAGES):"
        columns = self._loop_columns(block)
        self.body += [head, *(f"    {line}" for line in columns + block)]

    def _loop_columns(self, block: list[str]) -> list[str]:
        held, self.body = self.body, block
        columns = self._columns("start")
        self.body = held
        return columns

    def _accumulator(self, name: str, value: str, dtype: str) -> None:
        shape = "[ROWS, BLOCK]" if self.two_d else "[BLOCK]"
        self.body.append(f"{name} = tl.full({shape}, {value}, {TYPES[dtype]})")

    def _stage_passes(self, nodes: list[Node]) -> None:
        """The reductions of one stage in one pass; variances that are not online take a second one."""
        simple = [n for n in nodes if n.op != "var"]
        variances = [n for n in nodes if n.op == "var"]
        if variances and self.schedule.online:
            self._pass_of([(n, self._accumulate) for n in simple] + [(n, self._welford) for n in variances])
        else:
            self._pass_of([(n, self._accumulate) for n in simple] + [(n, self._sum) for n in variances])
            if variances:
                self._pass_of([(n, self._centred) for n in variances])

    def _pass_of(self, jobs: list) -> None:
        """Each job is (node, method); the method gets the node, declares accumulators and returns (write, finish)."""
        prepared = [method(node) for node, method in jobs]
        self._pass(lambda block: [write(block) for write, _ in prepared])
        for _, finish in prepared:
            finish()

    def _accumulate(self, node: Node):
        dtype = "int32" if node.op in ("any", "all") else compute_dtype(node.dtype)
        acc = f"{node.name}_acc"
        neutral = extreme(node.op, dtype)
        self._accumulator(acc, neutral, dtype)

        def write(block: list[str]) -> None:
            value = self._masked(self._operand(node).text, neutral)
            text = {"sum": f"{acc} + {value}", "mean": f"{acc} + {value}", "prod": f"{acc} * {value}", "any": f"{acc} | {value}",
                    "all": f"{acc} & {value}"}.get(node.op) or f"{combiner(node.op, dtype)}({acc}, {value})"
            block.append(f"{acc} = {text}")

        def finish() -> None:
            self.body.append(f"{node.name} = {self._finish(node, self._across(node.op, acc, dtype))}")
            self.walker.bind(node, node.name)

        return write, finish

    def _sum(self, node: Node):
        acc, dtype = f"{node.name}_total", compute_dtype(node.dtype)
        self._accumulator(acc, "0.0", dtype)

        def write(block: list[str]) -> None:
            block.append(f"{acc} = {acc} + {self._masked(self._operand(node).text, '0.0')}")

        return write, lambda: self.body.append(f"{node.name}_mean = {self._across('sum', acc, dtype)} / {self._count()}")

    def _centred(self, node: Node):
        acc, dtype = f"{node.name}_squares", compute_dtype(node.dtype)
        self._accumulator(acc, "0.0", dtype)

        def write(block: list[str]) -> None:
            block.append(f"{node.name}_centred = {self._masked(f'{self._operand(node).text} - {node.name}_mean', '0.0')}")
            block.append(f"{acc} = {acc} + {node.name}_centred * {node.name}_centred")

        def finish() -> None:
            self.body.append(f"{node.name} = {self._across('sum', acc, dtype)} / {self._divisor(node)}")
            self.walker.bind(node, node.name)

        return write, finish

    def _welford(self, node: Node):
        """Each lane keeps the mean and the centred squares of what it has seen; the lanes are merged at the end."""
        name, dtype = node.name, compute_dtype(node.dtype)
        mean, squares, count = f"{name}_mean", f"{name}_squares", f"{name}_count"
        for lane in (mean, squares, count):
            self._accumulator(lane, "0.0", dtype)

        def write(block: list[str]) -> None:
            value, masked = self._operand(node).text, INNER in self.masks
            block.append(f"{count} = {count} + {'tl.where(inside, 1.0, 0.0)' if masked else '1.0'}")
            block.append(f"{name}_delta = {self._masked(f'{value} - {mean}', '0.0')}")
            block.append(f"{mean} = {mean} + {name}_delta / {f'tl.maximum({count}, 1.0)' if masked else count}")
            block.append(f"{name}_rest = {self._masked(f'{value} - {mean}', '0.0')}")
            block.append(f"{squares} = {squares} + {name}_delta * {name}_rest")

        def finish() -> None:
            self.body.append(f"{name}_middle = {self._across('sum', f'{mean} * {count}', dtype)} / {self._count()}")
            self.body.append(f"{name}_apart = {mean} - {name}_middle")
            total = self._across("sum", f"{squares} + {count} * {name}_apart * {name}_apart", dtype)
            self.body.append(f"{name} = {total} / {self._divisor(node)}")
            self.walker.bind(node, name)

        return write, finish

    def _online_pass(self, maximum: Node, total: Node) -> None:
        """A running maximum and the sum of exp(value - maximum) in each lane, merged at the end."""
        dtype, most, acc = compute_dtype(total.dtype), f"{maximum.name}_acc", f"{total.name}_acc"
        self._accumulator(most, 'float("-inf")', dtype)
        self._accumulator(acc, "0.0", dtype)

        def write(block: list[str]) -> None:
            value = self._masked(self._operand(maximum).text, 'float("-inf")')
            name = maximum.name
            block.append(f"{name}_value = {value}")
            block.append(f"{name}_next = {combiner('amax', dtype)}({most}, {name}_value)")
            block.append(f'{name}_base = tl.where({name}_next == float("-inf"), 0.0, {name}_next)')
            block.append(f"{acc} = {acc} * tl.exp({most} - {name}_base) + tl.exp({name}_value - {name}_base)")
            block.append(f"{most} = {name}_next")

        self._pass(write)
        self.body.append(f"{maximum.name} = {self._across('amax', most, dtype)}")
        self.body.append(f"{total.name} = {self._across('sum', f'{acc} * tl.exp({most} - {maximum.name})', dtype)}")
        self.walker.bind(maximum, maximum.name)
        self.walker.bind(total, total.name)


def covering_block(definition: Definition, sizes: dict[str, int]) -> int:
    """The block that holds a whole row: what a "rows" schedule needs at `sizes` (every axis)."""
    inner = 1
    for name in analyse(definition).inner:
        inner *= sizes[name]
    return power_of_2(inner)
