"""Programs of steps for the child, and what their raw bytes betray: unwritten elements, writes out of bounds, changed inputs,
results that depend on earlier calls, on addresses, on the stream or on luck.

Each tensor lies between guard bands in a storage of its own; bands, and the gaps of a strided layout, hold secret
canaries. Outputs are poisoned before every call: with NaN, then with something large and finite.
"""

import secrets
from dataclasses import dataclass, field

import torch

from ..codegen.reference import DTYPES
from ..schema import Definition, Reason, TensorSpec
from .compare import Finding
from .inputs import Case, Placement
from .isolation import Child, ChildError

GUARD = 1024  # bytes on each side; keeps the alignment of the storage
POISONS = (0xFF, 0x7B)  # repeated: NaN (-1, no bool), and a large finite number


@dataclass(frozen=True)
class Slot:
    """A tensor's place: its storage's size, and the tensor's part of it."""

    spec: TensorSpec
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    start: int  # bytes from the storage's first
    stop: int
    size: int  # bytes of the storage

    @classmethod
    def of(cls, spec: TensorSpec, shape: tuple[int, ...], placement: Placement) -> "Slot":
        span = 1 + sum((n - 1) * s for n, s in zip(shape, placement.strides, strict=True)) if 0 not in shape else 0
        start = GUARD + placement.shift * spec.itemsize
        stop = start + span * spec.itemsize
        return cls(spec, shape, placement.strides, start, stop, -(-(stop + GUARD) // 512) * 512)

    def view(self, storage: torch.Tensor, raw: bool = False) -> torch.Tensor:
        """The tensor's elements in its storage's bytes; `raw` gives booleans as bytes."""
        dtype = torch.uint8 if raw and self.spec.dtype == "bool" else DTYPES[self.spec.dtype]
        if self.stop == self.start:
            return torch.empty(self.shape, dtype=dtype)
        return storage[self.start:self.stop].clone().view(dtype).as_strided(self.shape, self.strides)

    def filled(self, values: torch.Tensor | None, canary: torch.Tensor, poison: int = 0) -> torch.Tensor:
        """A storage: `values` (or poison bytes) at the tensor's elements, canaries everywhere else."""
        storage = canary[:self.size].clone()
        if self.stop == self.start:
            return storage
        dtype = torch.uint8 if self.spec.dtype == "bool" else DTYPES[self.spec.dtype]  # a copy of booleans would tidy poison up
        body = storage[self.start:self.stop].clone().view(dtype)
        target = body.as_strided(self.shape, self.strides)
        if values is None:
            values = torch.full((self.spec.itemsize,), poison, dtype=torch.uint8).view(dtype).expand(self.shape)
        for dim, stride in enumerate(self.strides):
            if stride == 0:  # one address, one value
                target, values = target.narrow(dim, 0, 1), values.narrow(dim, 0, 1)
        target.copy_(values)
        storage[self.start:self.stop] = body.view(torch.uint8)
        return storage

    def owned(self) -> torch.Tensor:
        """Which bytes of the storage are the tensor's."""
        mask = torch.zeros(self.size, dtype=torch.bool)
        if self.stop > self.start:
            elements = torch.zeros((self.stop - self.start) // self.spec.itemsize, dtype=torch.bool)
            once = [1 if stride == 0 else size for size, stride in zip(self.shape, self.strides, strict=True)]
            elements.as_strided(once, self.strides)[...] = True
            mask[self.start:self.stop] = elements.repeat_interleave(self.spec.itemsize)
        return mask

    def message(self, storage: int) -> dict:
        return {"storage": storage, "dtype": self.spec.dtype, "shape": list(self.shape), "strides": list(self.strides),
                "start": self.start, "stop": self.stop}


@dataclass
class Program:
    """Steps, and the bytes they load. Storages are numbered by whoever uses them."""

    steps: list[dict] = field(default_factory=list)
    data: list[torch.Tensor] = field(default_factory=list)
    dumped: list[int] = field(default_factory=list)  # expected sizes
    at: int = 0

    def load(self, storage: int, content: torch.Tensor, stage: bool = False) -> None:
        self.steps.append({"do": "stage" if stage else "load", "storage": storage, "at": self.at, "bytes": content.numel()})
        self.data.append(content)
        self.at += content.numel()

    def call(self, inputs: list[tuple[int, Slot]], outputs: list[tuple[int, Slot]]) -> None:
        self.steps.append({"do": "call", "inputs": [s.message(i) for i, s in inputs], "outputs": [s.message(i) for i, s in outputs]})

    def dump(self, storage: int, size: int) -> None:
        self.steps.append({"do": "dump", "storage": storage})
        self.dumped.append(size)

    def run(self, child: Child, key: str, timeout: float) -> list[torch.Tensor]:
        """The dumped bytes. Raises ChildError, also for an answer of the wrong length, or Refused for what the child reports."""
        data, reply = child.scratch / "data", child.scratch / "reply"
        with open(data, "wb") as file:
            for part in self.data:
                file.write(part.numpy().data)
        answer = child.request({"op": "run", "key": key, "data": str(data), "reply": str(reply), "steps": self.steps}, timeout)
        if not answer["ok"]:
            raise Refused(answer)
        raw = _read(reply, sum(self.dumped))
        return list(raw.split(self.dumped)) if self.dumped else []


class Refused(Exception):
    """The child says that the candidate failed; its words are only words."""

    def __init__(self, answer: dict):
        reasons = {reason.value: reason for reason in Reason}
        self.reason = reasons.get(str(answer.get("reason")), Reason.RUNTIME_ERROR)
        self.detail = str(answer.get("detail", ""))[:4000]
        super().__init__(self.detail)


def _read(path, size: int) -> torch.Tensor:
    """Exactly `size` bytes, from a plain file."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size != size:
        raise ChildError(Reason.CRASH, f"the child's reply is not a file of {size} bytes")
    data = torch.empty(size, dtype=torch.uint8)
    with open(path, "rb") as file:
        if size and file.readinto(data.numpy().data) != size:
            raise ChildError(Reason.CRASH, "the child's reply changed while it was read")
    return data


def canaries(slots: list[Slot]) -> torch.Tensor:
    """Secret bytes, enough for the largest storage."""
    generator = torch.Generator().manual_seed(secrets.randbits(62))
    return torch.randint(0, 256, (max((s.size for s in slots), default=0),), dtype=torch.uint8, generator=generator)


def slots(definition: Definition, case: Case) -> tuple[list[Slot], list[Slot]]:
    every = [Slot.of(spec, definition.shape(spec, case.sizes), placement)
             for spec, placement in zip(definition.inputs + definition.outputs, case.placements, strict=True)]
    return every[:len(definition.inputs)], every[len(definition.inputs):]


def run_case(definition: Definition, case: Case, child: Child, key: str, timeout: float) -> tuple[list[torch.Tensor], Finding | None]:
    """Two poisoned calls of one case: the outputs (contiguous), and what the bytes betray."""
    ins, outs = slots(definition, case)
    canary = canaries(ins + outs)
    program = Program()
    sent = [slot.filled(values, canary) for slot, values in zip(ins, case.inputs, strict=True)]
    poisoned = [[slot.filled(None, canary, poison) for slot in outs] for poison in POISONS]
    numbered_ins, numbered_outs = list(enumerate(ins)), list(enumerate(outs, len(ins)))
    for index, storage in enumerate(sent):
        program.load(index, storage)
    for poison in poisoned:
        for (index, _), storage in zip(numbered_outs, poison, strict=True):
            program.load(index, storage)
        program.call(numbered_ins, numbered_outs)
        for index, slot in numbered_ins + numbered_outs:
            program.dump(index, slot.size)
    dumps = program.run(child, key, timeout)
    first, second = dumps[:len(dumps) // 2], dumps[len(dumps) // 2:]
    finding = None
    for got in (first, second):
        finding = finding or _inputs_changed(ins, sent, got)
    for position, slot in enumerate(outs):
        pair = first[len(ins) + position], second[len(ins) + position]
        finding = finding or _output_finding(slot, pair, (poisoned[0][position], poisoned[1][position]))
    return [slot.view(storage).contiguous() for slot, storage in zip(outs, first[len(ins):], strict=True)], finding


def _inputs_changed(ins: list[Slot], sent: list[torch.Tensor], got: list[torch.Tensor]) -> Finding | None:
    for slot, before, after in zip(ins, sent, got, strict=False):
        changed = before != after
        if bool(changed.any()):
            place = int(changed.to(torch.uint8).argmax())
            if slot.start <= place < slot.stop:
                count = int(changed.sum())
                return Finding(Reason.INPUT_MODIFIED, f"{slot.spec.name}: {count} bytes changed, the first at byte {place - slot.start}")
            where = f"byte {place - slot.start} of {slot.stop - slot.start}"
            return Finding(Reason.OUT_OF_BOUNDS, f"wrote next to input {slot.spec.name}, at {where}")
    return None


def _output_finding(slot: Slot, got: tuple[torch.Tensor, torch.Tensor], poisoned: tuple[torch.Tensor, torch.Tensor]) -> Finding | None:
    name = slot.spec.name
    owned = slot.owned()
    for after, before in zip(got, poisoned, strict=True):
        stray = (after != before) & ~owned
        if bool(stray.any()):
            place = int(stray.to(torch.uint8).argmax())
            return Finding(Reason.OUT_OF_BOUNDS, f"wrote next to output {name}, at byte {place - slot.start} of {slot.stop - slot.start}")
    unwritten = torch.ones(slot.shape, dtype=torch.bool)
    for after, before in zip(got, poisoned, strict=True):
        unwritten &= _bits(slot, after) == _bits(slot, before)
    if bool(unwritten.any()):
        return Finding(Reason.UNWRITTEN_OUTPUT, f"{name}: {int(unwritten.sum())} of {unwritten.numel()} elements were not written")
    if slot.spec.dtype == "bool" and bool((slot.view(got[0], raw=True) > 1).any()):
        return Finding(Reason.WRONG_VALUES, f"{name}: a boolean that is neither 0 nor 1")
    differ = _bits(slot, got[0]) != _bits(slot, got[1])
    if bool(differ.any()):
        count = f"{int(differ.sum())} of {differ.numel()} elements"
        return Finding(Reason.NONDETERMINISTIC, f"{name}: {count} differ between two calls on the same inputs")
    return None


def _bits(slot: Slot, storage: torch.Tensor) -> torch.Tensor:
    values = slot.view(storage, raw=True)
    return values.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[slot.spec.itemsize])


def replay(definition: Definition, a: Case, b: Case, wanted: tuple[list[torch.Tensor], list[torch.Tensor]], child: Child, key: str,
           timeout: float) -> Finding | None:
    """Calls in a row without waiting, old addresses with new contents, new addresses with old contents, a busy side stream.

    `a` and `b` have the same sizes and places; `wanted` are their outputs when each ran alone: all must equal those bit for bit.
    """
    ins, outs = slots(definition, a)
    canary = canaries(ins + outs)
    width = len(ins) + len(outs)
    program = Program()
    expected: list[tuple[str, list[torch.Tensor]]] = []

    def load(case: Case, base: int, poison: int, stage: bool = False) -> None:
        for index, (slot, values) in enumerate(zip(ins, case.inputs, strict=True)):
            program.load(base + index, slot.filled(values, canary), stage)
        if not stage:
            for index, slot in enumerate(outs):
                program.load(base + len(ins) + index, slot.filled(None, canary, poison))

    def call(base: int) -> None:
        program.call([(base + i, s) for i, s in enumerate(ins)], [(base + len(ins) + i, s) for i, s in enumerate(outs)])

    def dump(base: int, what: str, results: list[torch.Tensor]) -> None:
        for index, slot in enumerate(outs):
            program.dump(base + len(ins) + index, slot.size)
        expected.append((what, results))

    load(a, 0, POISONS[0])
    load(b, width, POISONS[0])
    call(0)
    call(width)
    dump(0, "the first of two calls in a row", wanted[0])
    dump(width, "the second of two calls in a row", wanted[1])
    load(b, 0, POISONS[1])
    call(0)
    dump(0, "new contents at old addresses", wanted[1])
    load(a, 2 * width, POISONS[1])
    call(2 * width)
    dump(2 * width, "old contents at new addresses", wanted[0])
    load(a, 0, POISONS[0])
    load(a, 0, POISONS[0], stage=True)
    call(0)
    dump(0, "inputs that arrive on a side stream", wanted[0])
    dumps = program.run(child, key, timeout)
    for number, (what, results) in enumerate(expected):
        part = dumps[number * len(outs):(number + 1) * len(outs)]
        for slot, storage, result in zip(outs, part, results, strict=True):
            if not same_bits(slot.view(storage, raw=True), result):
                return Finding(Reason.STATE_LEAK, f"{slot.spec.name} differs from the same call alone: {what}")
    return None


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Equal, NaN by NaN and zero by zero."""
    return torch.equal(_as_bytes(one), _as_bytes(other))


def _as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)
