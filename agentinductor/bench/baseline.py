"""The time to beat: the definition's reference, compiled by Inductor under the user's settings."""

import re
from collections.abc import Callable, Mapping, Sequence

import torch

from ..codegen import reference
from ..errors import EvaluationError
from ..schema import Definition
from .timing import Buffers

MODES = ("default", "max-autotune-no-cudagraphs")  # CUDA graphs are the timer's business


def compiled(definition: Definition, inputs: Buffers, mode: str, options: Mapping[str, object] | None = None
             ) -> Callable[[Buffers], object]:
    """Inductor's code for `definition` at the sizes of `inputs`, without Dynamo's guards around it. Raises EvaluationError."""
    run = reference.compile_source(reference.source(definition))
    held: list = []

    def keep(graph, examples):
        inner = _inductor(mode, options)(graph, examples)
        held.append((inner, [node.name for node in graph.graph.nodes if node.op == "placeholder"]))
        return inner

    torch._dynamo.reset()
    try:
        with torch.no_grad():
            whole = torch.compile(run, backend=keep, fullgraph=True, dynamic=False)
            wanted = whole(*inputs)
            order = _order(held[0][1], definition) if len(held) == 1 else None
            inner = held[0][0] if order is not None else None
    except Exception as error:  # whatever Inductor raises: there is nothing to compare with
        raise EvaluationError(f"the baseline does not compile under mode {mode!r}: {type(error).__name__}: {error}") from error
    if inner is not None and order is not None and _agrees(inner, order, inputs, wanted):
        chosen = order

        def call(buffers: Buffers):
            with torch.no_grad():
                return inner(*[buffers[i] for i in chosen])

        return call
    return torch.no_grad()(lambda buffers: whole(*buffers))


def _inductor(mode: str, options: Mapping[str, object] | None) -> Callable:
    """torch.compile's own backend object for a mode and options."""
    return torch._TorchCompileInductorWrapper(mode, dict(options) if options else None, False)


def _order(placeholders: Sequence[str], definition: Definition) -> list[int] | None:
    """Which input each placeholder of Dynamo's graph is; None where a name does not tell."""
    names = [spec.name for spec in definition.inputs]
    found = [re.fullmatch(r"[lL]_(x\d+)_", placeholder) for placeholder in placeholders]
    if not all(found):
        return None
    return [names.index(match.group(1)) for match in found if match]


def _agrees(inner: Callable, order: Sequence[int], inputs: Buffers, wanted: Sequence[torch.Tensor]) -> bool:
    """Does the bare callable give what the compiled function gives?"""
    with torch.no_grad():
        got = inner(*[inputs[i] for i in order])
    same = isinstance(got, (tuple, list)) and len(got) == len(wanted)
    return same and all(isinstance(g, torch.Tensor) and torch.equal(torch.nan_to_num(g), torch.nan_to_num(w))
                        for g, w in zip(got, wanted, strict=True))
