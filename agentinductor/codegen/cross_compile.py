"""Compiles a solution's kernels for GPUs that are not here: does it compile, with how many registers, does it spill?

Triton's compiler needs a kernel's argument types and constants. They come from the launcher, run on meta tensors
with each kernel replaced by a stand-in that records how it is launched.
"""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..errors import BuildError
from ..schema import Definition, Solution
from . import cuda_builder, elf, triton_builder
from .reference import DTYPES

CAPABILITIES = (80, 90, 100, 120)
DEFAULT_SIZE = 1024  # elements of a var axis, before guards
_POINTERS = {
    torch.float64: "*fp64",
    torch.float32: "*fp32",
    torch.float16: "*fp16",
    torch.bfloat16: "*bf16",
    torch.int64: "*i64",
    torch.int32: "*i32",
    torch.int16: "*i16",
    torch.int8: "*i8",
    torch.uint8: "*u8",
    torch.bool: "*i1",
}
_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")


@dataclass(frozen=True)
class KernelReport:
    """One compiled kernel."""

    kernel: str
    capability: int
    registers: int  # a thread
    local_bytes: int  # a thread: its stack, spills included; 0 means nothing spilled
    shared_bytes: int  # a block
    binary: bytes


def cross_compile(
    definition: Definition,
    solution: Solution,
    capability: int,
    directory: str | Path | None = None,
    sizes: Mapping[str, int] | None = None,
) -> list[KernelReport]:
    """A report for each kernel the solution launches. Needs no GPU. Raises BuildError, or ToolchainError.

    `sizes` gives var axes; those left out get one that the solution's guards admit.
    """
    if solution.language == "cpp":
        raise BuildError("a C++ solution is built for this machine's processor only")
    if solution.language == "cuda":
        return _cuda(solution, capability)
    if directory is None:
        with tempfile.TemporaryDirectory(prefix="agentinductor-") as scratch:
            return _triton(definition, solution, capability, Path(scratch), sizes)
    return _triton(definition, solution, capability, Path(directory), sizes)


def example_sizes(definition: Definition, solution: Solution) -> dict[str, int]:
    """A size for each var axis that the solution's guards admit."""
    out = {}
    for axis in definition.var_axes:
        low, high, step = 1, 2**62, 1
        for guard in solution.guards:
            if guard.name == axis.name and guard.kind == "range":
                low, high = max(low, guard.low), min(high, guard.high)
            elif guard.name == axis.name and guard.kind == "divisible":
                step = max(step, guard.low)
        size = min(max(DEFAULT_SIZE, low), high)
        out[axis.name] = max(size // step * step, step)
    return out


def _cuda(solution: Solution, capability: int) -> list[KernelReport]:
    cubin = cuda_builder.compile_cubin(solution, capability)
    resources = elf.kernel_resources(cubin)
    reports = []
    for launch in solution.launches:
        if launch.kernel not in resources:
            raise BuildError(f'kernel {launch.kernel} is not in {solution.entry_file}; declare it extern "C"')
        registers, local = resources[launch.kernel]
        reports.append(KernelReport(launch.kernel, capability, registers, local, launch.shared, cubin))
    return reports


def _triton(
    definition: Definition, solution: Solution, capability: int, directory: Path, sizes: Mapping[str, int] | None
) -> list[KernelReport]:
    module = triton_builder.load(solution, directory)
    every = definition.sizes({**example_sizes(definition, solution), **(sizes or {})})
    tensors = [
        torch.empty(definition.shape(spec, every), dtype=DTYPES[spec.dtype], device="meta")
        for spec in definition.inputs + definition.outputs
    ]
    reports = []
    for name, args, keywords in _launches(module, tensors):
        reports.append(_compile(module.kernels[name], name, args, keywords, capability))
    return reports


def _launches(module: triton_builder.TritonModule, tensors: list[torch.Tensor]) -> list[tuple[str, tuple, dict]]:
    """(kernel, arguments, keywords) of each launch that the launcher makes."""
    seen: list[tuple[str, tuple, dict]] = []
    space = module.namespace
    try:
        for name in module.kernels:
            space[name] = _Recorder(name, seen)
        module.launcher(*tensors)
    except Exception as error:  # whatever the launcher raises is its own mistake
        raise BuildError(f"the launcher fails on meta tensors: {type(error).__name__}: {error}") from error
    finally:
        space.update(module.kernels)
    if not seen:
        raise BuildError("the launcher launches no kernel")
    return seen


class _Recorder:
    """Stands in for a kernel: notes launches, runs nothing."""

    def __init__(self, name: str, seen: list[tuple[str, tuple, dict]]):
        self.name, self.seen = name, seen

    def __getitem__(self, grid: Any):
        return lambda *args, **keywords: self.seen.append((self.name, args, keywords))


def _compile(kernel: Any, name: str, args: tuple, keywords: dict, capability: int) -> KernelReport:
    triton = triton_builder.triton_module()
    from triton.backends.compiler import GPUTarget

    options = {key: keywords[key] for key in _OPTIONS if key in keywords}
    values = dict(zip(kernel.arg_names, args, strict=False)) | {k: v for k, v in keywords.items() if k not in options}
    signature, constants, attributes = {}, {}, {}
    for position, parameter in enumerate(kernel.params):
        value = values.get(parameter.name, parameter.default)
        kind = _kind(value)
        if parameter.is_constexpr or value is None or kind == "constexpr":
            signature[parameter.name], constants[parameter.name] = "constexpr", value
            continue
        signature[parameter.name] = kind
        if kind.startswith("*") or value % 16 == 0:
            attributes[(position,)] = [["tt.divisibility", 16]]
    try:
        source = triton.compiler.ASTSource(kernel, signature, constants, attributes)
        built = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    except Exception as error:  # triton's compiler raises errors of many kinds
        raise BuildError(
            f"kernel {name} does not compile for sm_{capability}: {type(error).__name__}: {str(error)[-4000:]}"
        ) from error
    cubin = built.asm["cubin"]
    registers, local = elf.kernel_resources(cubin).get(name, (0, 0))
    return KernelReport(name, capability, registers, local, int(built.metadata.shared), cubin)


def _kind(value: Any) -> str:
    """Triton's name for an argument's type; "constexpr" for what becomes a constant."""
    if isinstance(value, torch.Tensor):
        return _POINTERS[value.dtype]
    if isinstance(value, bool):
        return "i1"
    if isinstance(value, int):
        return "constexpr" if value == 1 else "i32" if -(2**31) <= value < 2**31 else "i64"
    raise BuildError(
        f"a kernel argument of type {type(value).__name__}: pass tensors and integers, and constants as tl.constexpr"
    )
