"""The custom op that runs CUDA C++ and CPU C++ solutions inside compiled graphs.

One functional op serves every solution: agentinductor::run(inputs, solution, shapes, strides, ranks, dtypes). It finds the
solution by digest, so that a graph that Inductor loads from its own cache in a new process works too.
"""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from ..codegen.builder import build
from ..errors import CacheError
from ..schema import Definition, Solution
from ..schema.axes import DTYPES

NAMES = tuple(DTYPES)
_library = torch.library.Library("agentinductor", "FRAGMENT")
_library.define("run(Tensor[] inputs, str solution, SymInt[] shapes, SymInt[] strides, int[] ranks, int[] dtypes) -> Tensor[]")

Source = Callable[[str], tuple[Definition, Solution] | None]
_runnables: dict[str, Callable] = {}
_sources: list[Source] = []
_directory: list[Path] = []


def serve_from(source: Source, directory: Path) -> None:
    """Let the op find solutions through `source` (digest -> definition and solution) and build them under `directory`."""
    _sources.insert(0, source)
    del _sources[4:]
    _directory[:] = [directory]


def prepare(definition: Definition, solution: Solution) -> None:
    """Build now, at compile time, so that the first call does not wait. Raises BuildError."""
    if solution.digest not in _runnables:
        _runnables[solution.digest] = _in_layout(definition, build(definition, solution, build_directory()))


def _in_layout(definition: Definition, runnable: Callable) -> Callable:
    """`runnable`, given each input in the layout that the definition promises, whatever strides arrive at run time."""
    layouts = tuple(spec.layout for spec in definition.inputs)

    def run(inputs, outputs) -> None:
        for index, layout in enumerate(layouts):
            tensor = inputs[index]
            if layout == "contiguous" and not tensor.is_contiguous() or layout == "inner_contiguous" and tensor.stride(-1) != 1:
                inputs = [*inputs[:index], tensor.contiguous(), *inputs[index + 1:]]
        runnable(inputs, outputs)

    return run


def build_directory() -> Path:
    """Where sources and products lie: the cache's builds directory, or a private temporary one when it is unwritable."""
    for directory in _directory:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            return directory
        except OSError:
            break
    _directory[:] = [Path(tempfile.mkdtemp(prefix="agentinductor-"))]
    return _directory[0]


def _find(digest: str) -> Callable:
    for source in _sources:
        found = source(digest)
        if found is not None:
            prepare(*found)
            return _runnables[digest]
    raise CacheError(f"the compiled graph needs kernel {digest[:12]}, which is in no kernel cache; "
                     "call torch.compiler.reset() and compile again")


def _allocate(inputs, shapes, strides, ranks, dtypes) -> list[torch.Tensor]:
    outputs, at = [], 0
    for rank, dtype in zip(ranks, dtypes, strict=True):
        size, stride = tuple(shapes[at:at + rank]), tuple(strides[at:at + rank])
        outputs.append(torch.empty_strided(size, stride, dtype=getattr(torch, NAMES[dtype]), device=inputs[0].device))
        at += rank
    return outputs


def _run(inputs: Sequence[torch.Tensor], solution: str, shapes, strides, ranks, dtypes) -> list[torch.Tensor]:
    outputs = _allocate(inputs, shapes, strides, ranks, dtypes)
    runnable = _runnables.get(solution) or _find(solution)
    runnable(inputs, outputs)
    return outputs


@torch.library.register_fake("agentinductor::run", lib=_library)
def _fake(inputs, solution, shapes, strides, ranks, dtypes):
    return _allocate(inputs, shapes, strides, ranks, dtypes)


_library.impl("run", _run, "CPU")
_library.impl("run", _run, "CUDA")
run_op = torch.ops.agentinductor.run.default
