"""Builds CUDA C++ solutions with NVRTC and launches them: the only place that touches cuda.core and cuda.bindings.

Kernels are `extern "C" __global__`; the solution's `launches` say how each starts.
"""

import hashlib
import sysconfig
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

from ..errors import BuildError, ToolchainError
from ..schema import Definition, Launch, Solution
from . import artifact
from .grid import compile_expression
from .options import refused
from .runnable import Runnable, sizes_reader

DEFAULT_SHARED = 48 * 1024  # bytes: more needs the kernel's consent
_LIMITS = (2**31 - 1, 65535, 65535)  # blocks in x, y, z
_INSTALL = 'pip install "cuda-python>=13" nvidia-cuda-nvrtc'


@cache
def core():
    """cuda.core, under either of its names. Raises ToolchainError when it is missing."""
    try:
        import cuda.core as module

        if not hasattr(module, "Program"):
            import cuda.core.experimental as module  # type: ignore[no-redef]
    except ImportError as error:
        raise ToolchainError(f"cuda.core cannot be imported ({error}): {_INSTALL}") from None
    return module


def build(definition: Definition, solution: Solution, directory: Path) -> Runnable:
    """Check the launches now; compile for a device when it is first met, and keep the cubin in `directory`."""
    launches = [_prepare(definition, launch) for launch in solution.launches]
    read_sizes = sizes_reader(definition)
    loaded: dict[int, list[Any]] = {}  # device index -> kernels

    def run(inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> None:
        tensors = (*inputs, *outputs)
        device = outputs[0].device
        index = device.index
        if index != torch.cuda.current_device():
            with torch.cuda.device(device):
                run(inputs, outputs)
            return
        kernels = loaded.get(index)
        if kernels is None:
            kernels = loaded[index] = _load(solution, index, directory)
        sizes = read_sizes(tensors)
        stream = _Stream(torch.cuda.current_stream(index).cuda_stream)
        for kernel, launch in zip(kernels, launches, strict=True):
            launch(kernel, stream, tensors, sizes)

    return run


def compile_cubin(solution: Solution, capability: int) -> bytes:
    """The solution's source for `capability` (major * 10 + minor), with no GPU. Raises BuildError, ToolchainError."""
    bad = refused("cuda", solution.compile_options)
    if bad is not None:
        raise BuildError(f"compile option {bad!r} is not allowed; allowed are those of codegen/options.py")
    module = core()
    options = module.ProgramOptions(
        name=solution.entry_file,
        arch=f"sm_{capability}",
        std="c++17",
        include_path=_include_paths(),
        **_options(solution.compile_options),
    )
    try:
        program = module.Program(solution.source(solution.entry_file), "c++", options)
        try:
            return bytes(program.compile("cubin").code)
        finally:
            program.close()
    except (RuntimeError, OSError) as error:  # NVRTC is not there
        raise _compile_error(solution, error) from None
    except Exception as error:  # cuda.core's error classes are private
        if type(error).__module__.partition(".")[0] != "cuda":
            raise
        raise _compile_error(solution, error) from None


def _compile_error(solution: Solution, error: Exception) -> BuildError:
    if "NotFound" in type(error).__name__:
        return ToolchainError(f"NVRTC is missing ({str(error).strip()[:200]}): {_INSTALL}")
    return BuildError(f"{solution.entry_point} does not compile:\n{str(error)[-4000:]}")


def _options(given: tuple[str, ...]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for option in given:
        name, _, value = option.lstrip("-").partition("=")
        if name == "maxrregcount":
            out["max_register_count"] = int(value)
        elif name == "fmad":
            out["fma"] = value == "true"
        else:
            out[name.replace("-", "_")] = True
    return out


@cache
def _include_paths() -> list[str]:
    """Where cuda_fp16.h is: NVRTC has only its own headers built in."""
    site, found = Path(sysconfig.get_paths()["purelib"]), []
    try:
        from cuda.pathfinder import find_nvidia_header_directory

        found.append(find_nvidia_header_directory("cudart"))
    except (ImportError, RuntimeError):
        pass
    places = [
        *found,
        site / "nvidia/cu13/include",
        site / "nvidia/cuda_runtime/include",
        "/usr/local/cuda/include",
        site / "triton/backends/nvidia/include",
    ]
    return next(([str(place)] for place in places if place and Path(place, "cuda_fp16.h").exists()), [])


class _Stream:
    """torch's stream, as cuda.core asks for one."""

    def __init__(self, handle: int):
        self.handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.handle)


def _load(solution: Solution, index: int, directory: Path) -> list[Any]:
    """The kernels of the solution's launches, in order, loaded for a device."""
    major, minor = torch.cuda.get_device_capability(index)
    key = f"{solution.digest}\nsm_{major}{minor}\n{getattr(core(), '__version__', '')}\n{_include_paths()}"
    path = Path(directory) / f"{solution.digest[:16]}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.cubin"
    cubin = artifact.read(path)
    if cubin is None:
        cubin = compile_cubin(solution, major * 10 + minor)
        artifact.publish(path, cubin)
    core().Device(index).set_current()
    code = core().ObjectCode.from_cubin(cubin)
    kernels = []
    for launch in solution.launches:
        try:
            kernel = code.get_kernel(launch.kernel)
        except Exception as error:  # cuda.core's error classes are private
            raise BuildError(f'kernel {launch.kernel} is not in {solution.entry_file} ({error}); declare it extern "C"') from None
        if launch.shared > DEFAULT_SHARED:
            _allow_shared(kernel, launch, index)
        kernels.append(kernel)
    return kernels


def _allow_shared(kernel: Any, launch: Launch, index: int) -> None:
    """Opt in to more than 48 KB of dynamic shared memory."""
    from cuda.bindings import driver

    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    handle = driver.CUkernel(int(getattr(kernel, "handle", None) or kernel._handle))
    (status,) = driver.cuKernelSetAttribute(attribute, launch.shared, handle, driver.CUdevice(index))
    if int(status):
        raise BuildError(
            f"kernel {launch.kernel}: this device does not give {launch.shared} bytes of shared memory ({status.name})"
        )


def _prepare(definition: Definition, launch: Launch) -> Callable[[Any, _Stream, Sequence[torch.Tensor], dict[str, int]], None]:
    """One launch with everything that does not depend on the tensors worked out."""
    names = frozenset(axis.name for axis in definition.axes)
    grid = [compile_expression(text, names) for text in launch.grid]
    if not 1 <= launch.block <= 1024:
        raise BuildError(f"launch of {launch.kernel}: block is {launch.block} threads, not 1 to 1024")
    readers = [_reader(definition, argument, launch.kernel) for argument in launch.args]
    module = None

    def start(kernel: Any, stream: _Stream, tensors: Sequence[torch.Tensor], sizes: dict[str, int]) -> None:
        nonlocal module
        module = module or core()
        blocks = tuple(expression(sizes) for expression in grid)
        if not all(1 <= n <= limit for n, limit in zip(blocks, _LIMITS, strict=True)):
            raise BuildError(f"launch of {launch.kernel}: grid {blocks} is outside 1 to {_LIMITS} for sizes {sizes}")
        config = module.LaunchConfig(grid=blocks, block=(launch.block, 1, 1), shmem_size=launch.shared)
        module.launch(stream, config, kernel, *[read(tensors, sizes) for read in readers])

    return start


def _reader(definition: Definition, argument: str, kernel: str) -> Callable[[Sequence[torch.Tensor], dict[str, int]], int]:
    """How one kernel argument is found: a pointer, an axis size or a stride; all are 8 bytes."""
    specs = [spec.name for spec in definition.inputs + definition.outputs]
    if argument in specs:
        at = specs.index(argument)
        return lambda tensors, sizes: tensors[at].data_ptr()
    if argument in {axis.name for axis in definition.axes}:
        return lambda tensors, sizes: sizes[argument]
    head, _, rest = argument.partition("(")
    tensor, _, dim = rest.removesuffix(")").partition(",")
    if head == "stride" and rest.endswith(")") and tensor in specs and dim.strip().isdigit():
        at, axis = specs.index(tensor), int(dim)
        if axis < len((definition.inputs + definition.outputs)[at].shape):
            return lambda tensors, sizes: tensors[at].stride(axis)
    raise BuildError(f"launch of {kernel}: argument {argument!r} is no tensor, axis or stride(tensor,dim) of the definition")
