"""Loads Triton solutions: the only place that imports their source."""

import importlib.util
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..errors import BuildError, ToolchainError
from ..schema import Definition, Solution
from . import artifact
from .runnable import Runnable


@dataclass(frozen=True)
class TritonModule:
    """A loaded source file: its launcher, and its kernels by name (triton.JITFunction)."""

    launcher: Callable[..., None]
    kernels: dict[str, Any]
    namespace: dict[str, Any]


def triton_module():
    """The triton package. Raises ToolchainError when it is missing."""
    try:
        import triton
    except ImportError as error:
        raise ToolchainError(f"triton cannot be imported ({error}): pip install triton") from None
    return triton


def build(definition: Definition, solution: Solution, directory: Path) -> Runnable:
    """Load the file. Kernels are compiled by their first launch."""
    launcher = load(solution, directory).launcher

    def run(inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> None:
        device = outputs[0].device
        if device.index == torch.cuda.current_device():
            launcher(*inputs, *outputs)
        else:
            with torch.cuda.device(device):
                launcher(*inputs, *outputs)

    return run


def load(solution: Solution, directory: Path) -> TritonModule:
    """Import the solution's file from `directory`; one import for each process and digest. Raises BuildError.

    Importing runs the file's module level: only sources that passed validation/static_checks.py may come here.
    """
    triton = triton_module()
    name = f"agentinductor_solution_{solution.digest}"
    module = sys.modules.get(name)
    if module is None:
        path = Path(directory) / solution.digest[:16] / solution.entry_file
        content = solution.source(solution.entry_file).encode()
        if artifact.read(path) != content:
            artifact.publish(path, content)
        module = _import(name, path, content)
    launcher = getattr(module, solution.entry_function, None)
    if not callable(launcher) or isinstance(launcher, triton.JITFunction):
        raise BuildError(f"{solution.entry_point} is not a launcher: write `def {solution.entry_function}(*inputs, *outputs)`")
    kernels = {key: value for key, value in vars(module).items() if isinstance(value, triton.JITFunction)}
    wrapped = sorted(
        key
        for key, value in vars(module).items()
        if isinstance(value, triton.runtime.KernelInterface) and not isinstance(value, triton.JITFunction)
    )
    if wrapped:
        raise BuildError(
            f"{solution.entry_point}: {', '.join(wrapped)} is not a plain @triton.jit kernel; remove autotune and heuristics"
        )
    if not kernels:
        raise BuildError(f"{solution.entry_point}: the file has no @triton.jit kernel")
    return TritonModule(launcher, kernels, vars(module))


def _import(name: str, path: Path, content: bytes):
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None  # the path ends in .py
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # triton looks kernels' globals up by module
    try:
        exec(compile(content, str(path), "exec"), module.__dict__)  # the bytes that were checked, not what the path holds by now
    except Exception as error:  # whatever the file raises is its own mistake
        del sys.modules[name]
        raise BuildError(f"{path.name} cannot be imported: {type(error).__name__}: {error}") from error
    return module
