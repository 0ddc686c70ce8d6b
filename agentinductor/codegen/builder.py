"""Builds a solution into something that runs: one entry for the three languages."""

from pathlib import Path

from ..errors import BuildError
from ..schema import Definition, Solution
from . import cpp_builder, cuda_builder, triton_builder
from .runnable import Runnable

_BUILDERS = {"cpp": cpp_builder.build, "cuda": cuda_builder.build, "triton": triton_builder.build}


def build(definition: Definition, solution: Solution, directory: str | Path) -> Runnable:
    """Build `solution`, with products kept in `directory`. Raises BuildError, or ToolchainError naming what to install."""
    if solution.definition != definition.digest:
        raise BuildError(
            f"solution {solution.digest[:12]} is for definition {solution.definition[:12]}, not {definition.digest[:12]}"
        )
    return _BUILDERS[solution.language](definition, solution, Path(directory))
