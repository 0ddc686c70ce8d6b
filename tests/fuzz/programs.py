"""Random small PyTorch programs as source text, drawn by hypothesis and grown while they run in eager.

A step that eager PyTorch refuses, or whose values grow out of hand, is dropped, so every program is valid. Discontinuous
ops (comparisons, rounding, casts to integers) only see values that are exact in every precision: otherwise two right
compilers may differ by whole units.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from hypothesis import strategies as st
from torch.nn import functional as F

FLOATS = (torch.float32, torch.float32, torch.float32, torch.bfloat16, torch.float16, torch.float64)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
SIZES = (1, 2, 3, 4, 5, 6, 8, 8, 16)
LAYOUTS = ("dense", "dense", "transposed", "stepped", "offset", "expanded")
LARGEST, NUMBERS = 1e3, 3000  # of a value, of elements

SMOOTH = (
    "torch.tanh({0})",
    "torch.sigmoid({0})",
    "torch.sin({0})",
    "torch.erf({0})",
    "F.gelu({0})",
    "F.silu({0})",
    "F.gelu({0}, approximate='tanh')",
    "torch.exp({0}.clamp(-3, 3))",
    "torch.log({0}.abs() + 0.5)",
    "({0}.abs() + 0.1).sqrt()",
    "torch.rsqrt({0}.abs() + 0.5)",
    "torch.reciprocal({0}.abs() + 0.5)",
    "{0} * {0}",
    "{0} ** 3",
    "torch.expm1({0}.clamp(max=2))",
    "torch.log1p({0}.abs())",
    "{0} * 1.7",
    "2 - {0}",
    "0.5 / ({0}.abs() + 1)",
    "F.softplus({0})",
    "{0}.atan()",
    "F.hardswish({0})",
    "F.leaky_relu({0}, 0.1)",
    "F.elu({0})",
    "{0}.add(1, alpha=3)",
    "torch.exp2({0}.clamp(-3, 3))",
    "F.mish({0})",
    "{0}.pow(0.5 * 4)",
    "torch.logit({0}.sigmoid(), eps=0.01)",
    "2.0 ** {0}.clamp(-3, 3)",
)
EXACT = (
    "torch.relu({0})",
    "{0}.abs()",
    "-{0}",
    "{0}.clamp(-1, 1)",
    "{0}.clamp(min=0)",
    "{0}.clamp_max(2)",
    "{0}.clone()",
    "{0}.contiguous()",
    "torch.tril({0})",
    "torch.triu({0}, 1)",
    "{0} + 1",
    "{0} * 2",
    "{0}.detach()",
)  # on exact operands
STEPS = (
    "{0}.floor()",
    "{0}.ceil()",
    "{0}.round()",
    "{0}.trunc()",
    "torch.sign({0})",
    "{0} > 0",
    "{0} <= 0.5",
    "{0} == 1",
    "{0} != 0",
    "torch.logical_not({0})",
    "torch.isnan({0})",
    "{0} // 2",
    "{0} % 3",
    "torch.fmod({0}, 2)",
    "~({0} > 0)",
    "{0}.bool()",
    "{0} >= 1",
)
INTEGER = (
    "{0} + 3",
    "{0} * 2",
    "{0} - 1",
    "-{0}",
    "~{0}",
    "{0}.abs()",
    "{0} & 3",
    "{0} | 1",
    "{0} ^ 5",
    "{0} * 0.5",
    "{0} / 3",
    "{0} ** 2",
    "{0} + True",
    "{0}.clamp(0, 3)",
    "{0}.clamp(min=0.5)",
    "torch.sign({0})",
    "{0}.float().exp()",
)
BINARY = (
    "{0} + {1}",
    "{0} - {1}",
    "{0} * {1}",
    "{0} / ({1}.abs() + 0.5)",
    "torch.maximum({0}, {1})",
    "torch.minimum({0}, {1})",
    "torch.add({0}, {1}, alpha=2)",
    "torch.lerp({0}, {1}, 0.3)",
    "torch.addcmul({0}, {1}, {1}, value=0.5)",
    "torch.sub({0}, {1}, alpha=0.5)",
    "torch.hypot({0}, {1})",
)
COMPARING = (
    "{0} < {1}",
    "{0} >= {1}",
    "{0} == {1}",
    "{0} != {1}",
    "torch.where({0} > {1}, {0}, {1})",
    "torch.logical_and({0}, {1})",
    "torch.logical_xor({0}, {1})",
    "({0} > 0) & ({1} > 0)",
    "({0} > 0) | {1}.bool()",
)
REDUCTIONS = (
    "{0}.sum({d}, keepdim={k})",
    "{0}.mean({d}, keepdim={k})",
    "{0}.amax({d}, keepdim={k})",
    "{0}.amin({d}, keepdim={k})",
    "{0}.var({d}, keepdim={k})",
    "({0}.var({d}, correction=0, keepdim={k}) + 0.1).sqrt()",
    "{0}.logsumexp({d}, keepdim={k})",
    "{0}.square().mean({d}, keepdim={k})",
    "{0}.sum({d}, keepdim={k}, dtype=cast_type(torch.float32))",
    "torch.linalg.vector_norm({0}, dim={d}, keepdim={k})",
    "{0}.tanh().prod({d0}, keepdim={k})",
    "{0}.max({d0}, keepdim={k}).values",
)
EXACT_REDUCTIONS = (
    "{0}.any({d0}, keepdim={k})",
    "{0}.all({d0}, keepdim={k})",
    "({0} > 0).sum({d}, keepdim={k})",
    "({0} > 0).any({d}, keepdim={k})",
    "{0}.amax({d}, keepdim={k})",
    "{0}.sum()",
    "{0}.count_nonzero({d0})",
)
COMPOSITES = (
    "F.softmax({0}, {d0})",
    "F.log_softmax({0}, {d0})",
    "F.layer_norm({0}, {0}.shape[-1:])",
    "F.normalize({0}, dim={d0})",
    "{0} * torch.rsqrt({0}.square().mean({d0}, keepdim=True) + 1e-3)",
    "({0} - {0}.mean({d}, keepdim=True)) * 2",
    "F.softmax({0}.masked_fill({0}.detach() * 0 + torch.arange({0}.shape[-1]) > 2, -1e4), -1)",
    "F.softmin({0}, {d0})",
    "F.rms_norm({0}, {0}.shape[-1:])",
    "F.glu(torch.cat([{0}, {0} * 2], {d0}), {d0})",
)
VIEWS = (
    "{0}.permute({p})",
    "{0}.transpose({d0}, {d1})",
    "{0}.flatten()",
    "{0}.unsqueeze({u})",
    "{0}.squeeze()",
    "{0}.mT",
    "{0}.flatten({d0s})",
    "{0}.reshape({r})",
    "{0}.expand({e})",
    "{0}[..., 1:]",
    "{0}[1:]",
    "{0}[..., ::2]",
    "{0}.select({d0}, 0)",
    "{0}.narrow({d0}, 0, 1)",
    "{0}.chunk(2, {d0})[0]",
    "{0}.chunk(2, {d0})[-1]",
    "{0}[None]",
    "{0}.movedim({d0}, {d1})",
    "{0}.repeat_interleave(2, {d0})",
    "torch.cat([{0}, {0}], {d0})",
    "torch.stack([{0}, {0}], {u})",
    "{0}.flip({d0})",
    "{0}.unflatten({d0}, (-1, 1))",
    "{0}.roll(1, {d0})",
    "{0}.view({r})",
    "{0}.unbind({d0})[0]",
    "{0}.diagonal(0, {d0}, {d1})",
    "F.pad({0}, (1, 0))",
    "{0}[:, None]",
    "{0}.split(2, {d0})[0]",
)
INPLACE = ("{0}.mul_(2)", "{0}.add_(1)", "{0}.relu_()", "{0}.clamp_(-1, 1)", "{0}.zero_()", "{0}.neg_()")
INPLACE_BINARY = ("{0}.add_({1})", "{0}.copy_({1})", "{0}[..., 0] = {1}[..., 0]", "{0}[1:].mul_({1}[1:])", "{0}.sub_({1}, alpha=2)")


def cast(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return value.to(dtype)


def cast_type(dtype: torch.dtype) -> torch.dtype:
    return dtype


def truth_type(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype.is_floating_point else dtype


def truth_cast(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return value.to(truth_type(dtype))


@dataclass(frozen=True)
class Input:
    shape: tuple[int, ...]
    dtype: torch.dtype
    layout: str
    seed: int

    def make(self, truth: bool = False, grow: int = 0) -> torch.Tensor:
        """The tensor. `grow` lengthens every dim that is not 1."""
        shape = [n + grow if n > 1 else n for n in self.shape]
        generator = torch.Generator().manual_seed(self.seed)
        store = [n * (2 if self.layout == "stepped" and i == len(shape) - 1 else 1) for i, n in enumerate(shape)]
        if self.layout == "expanded" and shape:
            store[0] = 1
        if self.layout == "transposed":
            store = store[::-1]
        if self.dtype.is_floating_point:
            raw = (torch.randint(-16, 17, store, generator=generator) / 8).to(self.dtype)  # exact in every type
        elif self.dtype == torch.bool:
            raw = torch.randint(0, 2, store, generator=generator).bool()
        else:
            raw = torch.randint(0, 6, store, generator=generator).to(self.dtype)
        raw = raw.to(truth_type(self.dtype)) if truth else raw
        if self.layout == "offset":
            raw = torch.cat([raw.new_zeros(1), raw.flatten()])[1:].view(store)
        if self.layout == "transposed":
            return raw.permute(*range(len(shape) - 1, -1, -1)) if shape else raw
        if self.layout == "stepped" and shape:
            return raw[..., ::2]
        return raw.expand(shape)


@dataclass
class Program:
    inputs: list[Input]
    lines: list[str] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    generic: bool = True  # right for other sizes too
    mutates: bool = False

    @property
    def source(self) -> str:
        names = ", ".join(f"x{i}" for i in range(len(self.inputs)))
        body = "".join(f"    {line}\n" for line in self.lines)
        return f"def model({names}):\n{body}    return ({', '.join(self.results)},)\n"

    def compiled(self, truth: bool = False) -> Callable:
        scope = {"torch": torch, "F": F, "cast": truth_cast if truth else cast, "cast_type": truth_type if truth else cast_type}
        exec(self.source, scope)
        return scope["model"]

    def __repr__(self) -> str:
        return "\n".join([*(f"x{i} = {spec}" for i, spec in enumerate(self.inputs)), self.source])


class _Growing:
    """The program so far, and what every name holds in eager."""

    def __init__(self, draw, program: Program):
        self.draw, self.program = draw, program
        self.scope = {"torch": torch, "F": F, "cast": cast, "cast_type": cast_type}
        self.names = [f"x{i}" for i in range(len(program.inputs))]
        self.scope |= {name: spec.make() for name, spec in zip(self.names, program.inputs, strict=True)}
        self.exact = dict.fromkeys(self.names, True)

    def pick(self, options):
        return self.draw(st.sampled_from(list(options)))

    def value(self, name) -> torch.Tensor:
        return self.scope[name]

    def step(self) -> None:
        kind = self.pick(
            (
                "smooth",
                "smooth",
                "smooth",
                "simple",
                "steps",
                "binary",
                "binary",
                "binary",
                "comparing",
                "where",
                "reduction",
                "reduction",
                "composite",
                "view",
                "view",
                "view",
                "cast",
                "inplace",
                "cat",
            )
        )
        name = self.pick(self.names[-4:] + self.names[-1:] * 5)
        getattr(self, kind)(name)

    def add(self, template: str, exact: bool, *operands: str, **words) -> None:
        line = template.format(*operands, **words)
        try:
            value = eval(line, self.scope)
        except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError):
            return
        if value.is_complex() or value.numel() > NUMBERS or value.numel() == 0 or value.dim() > 6 or not self.tame(value):
            return
        name = f"v{len(self.program.lines)}"
        self.program.lines.append(f"{name} = {line}")
        self.scope[name], self.exact[name] = value, exact
        self.names.append(name)

    @staticmethod
    def tame(value: torch.Tensor) -> bool:
        return bool((value.double().abs() <= LARGEST).all())

    def words(self, name: str) -> dict:
        rank = max(self.value(name).dim(), 1)
        axes = sorted(self.draw(st.sets(st.integers(0, rank - 1), min_size=1)))
        shape = list(self.value(name).shape)
        return {
            "d": axes if len(axes) > 1 else axes[0],
            "d0": self.pick(range(-rank, rank)),
            "d1": self.pick(range(rank)),
            "d0s": self.pick(range(rank)),
            "k": self.pick((True, False)),
            "p": list(self.draw(st.permutations(range(self.value(name).dim())))),
            "u": self.pick(range(-rank, rank + 1)),
            "r": self.reshaped(shape),
            "e": self.expanded(shape),
        }

    def reshaped(self, shape: list[int]) -> list[int]:
        shape = shape or [1]
        at = self.pick(range(len(shape)))
        factors = [f for f in (2, 3, 4) if shape[at] % f == 0]
        if factors and self.pick((True, False)):
            factor = self.pick(factors)
            return [*shape[:at], factor, shape[at] // factor, *shape[at + 1 :]]
        return [*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :]] if at + 1 < len(shape) else [-1, shape[-1]]

    def expanded(self, shape: list[int]) -> list[int]:
        return [self.pick((2, 3)), *[self.pick((1, 3, 4)) if n == 1 else n for n in shape]]

    def smooth(self, name: str) -> None:
        if self.value(name).is_floating_point():
            self.add(self.pick(SMOOTH), False, name)
        else:
            self.add(self.pick(INTEGER), self.exact[name], name)

    def is_integer(self, name: str) -> bool:
        return not self.value(name).is_floating_point()

    def steps(self, name: str) -> None:
        if self.exact[name]:
            self.add(self.pick(STEPS), True, name)

    def partner(self, name: str) -> str:
        return self.pick(self.names)

    def binary(self, name: str) -> None:
        other = self.partner(name)
        self.add(
            self.pick(BINARY), self.exact[name] and self.exact[other] and self.is_integer(name) and self.is_integer(other), name, other
        )

    def comparing(self, name: str) -> None:
        other = self.partner(name)
        if self.exact[name] and self.exact[other]:
            self.add(self.pick(COMPARING), True, name, other)

    def where(self, name: str) -> None:
        masks = [n for n in self.names if self.value(n).dtype == torch.bool]
        if not masks:
            self.add("{0} > 0", True, name) if self.exact[name] else None
            return
        other = self.partner(name)
        template = self.pick(
            (
                "torch.where({2}, {0}, {1})",
                "torch.where({2}, {0}, 0)",
                "torch.where({2}, 1.5, {0})",
                "{0}.masked_fill({2}, -1)",
                "{0} * {2}",
                "torch.where({2}, {1}, {0}) + {0}",
            )
        )
        mask = self.pick(masks)
        self.add(template, False, name, other, mask)

    def reduction(self, name: str) -> None:
        exact = self.exact[name] and (self.is_integer(name) or self.pick((True, False)))
        template = self.pick(EXACT_REDUCTIONS if exact else REDUCTIONS)
        self.add(template, exact and "sum()" not in template, name, **self.words(name))

    def composite(self, name: str) -> None:
        if self.value(name).is_floating_point():
            self.add(self.pick(COMPOSITES), False, name, **self.words(name))

    def view(self, name: str) -> None:
        template = self.pick(VIEWS)
        before = len(self.names)
        self.add(template, self.exact[name], name, **self.words(name))
        if len(self.names) > before:
            self.program.generic = self.program.generic and template in ("{0}.permute({p})", "{0}[None]", "{0}.flatten()", "{0}.mT")

    def cast(self, name: str) -> None:
        target = self.pick(FLOATS + INTEGERS)
        if target.is_floating_point or self.exact[name]:
            self.add("cast({0}, {t})", self.exact[name], name, t=target)

    def simple(self, name: str) -> None:
        halves = self.value(name).dtype in (torch.bfloat16, torch.float16)
        self.add(self.pick(EXACT), self.exact[name] and not halves, name)

    def cat(self, name: str) -> None:
        other = self.partner(name)
        self.program.generic = False
        self.add("torch.cat([{0}, {1}], {d0})", self.exact[name] and self.exact[other], name, other, **self.words(name))

    def inplace(self, name: str) -> None:
        other = self.partner(name)
        line = self.pick(INPLACE + INPLACE_BINARY).format(name, other)
        if self.pick((True, False)) or (self.value(name).untyped_storage().data_ptr() == self.value(other).untyped_storage().data_ptr()):
            line = self.pick(INPLACE).format(name)
        saved = {n: self.value(n).clone() for n in self.names}
        try:
            exec(line, self.scope)
        except (RuntimeError, IndexError, TypeError, ValueError):
            self.recover(saved)
            return
        self.program.lines.append(line)
        self.program.mutates = True
        storage = self.value(name).untyped_storage().data_ptr()
        for n in self.names:
            if self.value(n).untyped_storage().data_ptr() == storage:
                self.exact[n] = False

    def recover(self, saved: dict) -> None:
        for n, value in saved.items():
            if not torch.equal(self.value(n), value):
                self.value(n).copy_(value)


@st.composite
def programs(draw, steps: int = 12) -> Program:
    """A program with one to three inputs and results."""
    rank = draw(st.sampled_from((0, 1, 2, 2, 3, 3, 3, 4)))
    shape = tuple(draw(st.lists(st.sampled_from(SIZES), min_size=rank, max_size=rank)))
    inputs = []
    for _ in range(draw(st.integers(1, 3))):
        drop = draw(st.integers(0, rank))
        mine = tuple(1 if draw(st.integers(0, 4)) == 0 else n for n in shape[drop if draw(st.booleans()) else 0 :])
        dtype = draw(st.sampled_from(FLOATS * 4 + INTEGERS))
        inputs.append(Input(mine, dtype, draw(st.sampled_from(LAYOUTS)), draw(st.integers(0, 2**20))))
    program = Program(inputs)
    growing = _Growing(draw, program)
    for _ in range(draw(st.integers(5, steps))):
        growing.step()
    made = [n for n in growing.names if n.startswith("v")] or growing.names
    program.results = [made[-1], *draw(st.lists(st.sampled_from(growing.names[-3:] + growing.names), max_size=3))]
    return program
