"""Solution: sources, entry point, language, guards, and who made it."""

from dataclasses import dataclass, field
from functools import cached_property

from ..errors import SchemaError
from .digest import digest
from .guard import Guard
from .provenance import Provenance

LANGUAGES = ("triton", "cuda", "cpp")


@dataclass(frozen=True)
class Source:
    path: str  # a plain file name
    content: str

    def __post_init__(self):
        if "/" in self.path or "\\" in self.path or self.path.startswith("."):
            raise SchemaError(f"source path {self.path!r} is not a plain file name")


@dataclass(frozen=True)
class Launch:
    """One launch of a CUDA kernel.

    grid    three integer expressions over axis names, e.g. ("cdiv(rows, 4)", "1", "1"): + - * // and cdiv
    block   threads in x
    shared  dynamic shared memory, bytes
    args    names in order: inputs, outputs (pointers), axes (int64), or "stride(x0,1)" (int64, elements)
    """

    kernel: str
    grid: tuple[str, str, str]
    block: int
    args: tuple[str, ...]
    shared: int = 0

    def to_json(self) -> dict:
        return {"kernel": self.kernel, "grid": list(self.grid), "block": self.block, "args": list(self.args), "shared": self.shared}

    @classmethod
    def from_json(cls, raw: dict) -> "Launch":
        grid = tuple(raw["grid"])
        if len(grid) != 3:
            raise SchemaError(f"launch of {raw['kernel']}: grid has {len(grid)} entries, not 3")
        return cls(raw["kernel"], grid, raw["block"], tuple(raw["args"]), raw.get("shared", 0))


@dataclass(frozen=True)
class Solution:
    """A kernel for one definition. The calling convention is destination passing: inputs, then outputs.

    triton   entry_point "kernel.py::run": run(*inputs, *outputs) computes grids, makes views and launches; nothing else
    cuda     entry_point "kernel.cu::<kernel>"; `launches` says how each kernel starts
    cpp      entry_point "kernel.cpp::<function>": extern "C" void f(void* const* tensors, const int64_t* sizes,
             const int64_t* strides): tensors are inputs then outputs; sizes are all axes in domain order; strides
             are each tensor's strides (elements, one for each axis of its own shape), end to end in the same order
    """

    definition: str  # digest
    language: str
    entry_point: str  # "<file>::<function>"
    sources: tuple[Source, ...]
    guards: tuple[Guard, ...] = ()
    launches: tuple[Launch, ...] = ()
    compile_options: tuple[str, ...] = ()
    provenance: Provenance = field(default_factory=lambda: Provenance("human"), compare=False)

    def __post_init__(self):
        if self.language not in LANGUAGES:
            raise SchemaError(f"language {self.language!r} is not one of {', '.join(LANGUAGES)}")
        if self.entry_point.count("::") != 1 or self.entry_file not in {source.path for source in self.sources}:
            raise SchemaError(f"entry point {self.entry_point!r} is not '<file>::<function>' with a file among the sources")
        if (self.language == "cuda") != bool(self.launches):
            raise SchemaError("a cuda solution declares its launches, and only a cuda solution does")

    @property
    def entry_file(self) -> str:
        return self.entry_point.split("::")[0]

    @property
    def entry_function(self) -> str:
        return self.entry_point.split("::")[1]

    def source(self, path: str) -> str:
        return next(source.content for source in self.sources if source.path == path)

    @property
    def device_type(self) -> str:
        return "cpu" if self.language == "cpp" else "cuda"

    @cached_property
    def digest(self) -> str:
        """Covers all that changes what runs: not the provenance."""
        content = self.to_json()
        del content["provenance"]
        return digest("solution", content)

    def to_json(self) -> dict:
        return {
            "definition": self.definition,
            "language": self.language,
            "entry_point": self.entry_point,
            "sources": [{"path": s.path, "content": s.content} for s in self.sources],
            "guards": [guard.to_json() for guard in self.guards],
            "launches": [launch.to_json() for launch in self.launches],
            "compile_options": list(self.compile_options),
            "provenance": self.provenance.to_json(),
        }

    @classmethod
    def from_json(cls, raw: dict) -> "Solution":
        try:
            return cls(
                raw["definition"], raw["language"], raw["entry_point"],
                tuple(Source(s["path"], s["content"]) for s in raw["sources"]),
                tuple(Guard.from_json(g) for g in raw["guards"]),
                tuple(Launch.from_json(item) for item in raw.get("launches", [])),
                tuple(raw.get("compile_options", [])),
                Provenance.from_json(raw.get("provenance", {"agent": "unknown"})),
            )
        except (KeyError, TypeError) as error:
            raise SchemaError(f"malformed solution: {error!r}") from error
