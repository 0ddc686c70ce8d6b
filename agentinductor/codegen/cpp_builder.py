"""Builds C++ solutions with the machine's compiler, checks what the object asks for, and calls it through ctypes."""

import ctypes
import hashlib
import platform
import re
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch

from ..errors import BuildError, ToolchainError
from ..schema import Definition, Solution
from . import artifact, elf
from .options import refused
from .runnable import Runnable, var_places

COMPILERS = ("g++", "clang++")
FLAGS = (
    "-O3",
    "-march=native",
    "-std=c++17",
    "-shared",
    "-fPIC",
    "-fopenmp",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fwrapv",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-plt",
    "-w",
    "-Wl,-z,relro,-z,now",
    "-Wl,--no-undefined",
)
TIMEOUT = 180.0  # seconds
_LIBM = (
    "exp exp2 expm1 log log2 log10 log1p sqrt cbrt pow sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh erf erfc"
    " floor ceil round trunc rint nearbyint lrint llrint fmod remainder fma fmax fmin fabs copysign hypot ldexp frexp scalbn"
    " sincos tgamma lgamma"
)
_ALLOWED_SYMBOLS = re.compile(
    r"mem(cpy|move|set|cmp)|__mem(cpy|move|set)_chk|__cxa_finalize|__gmon_start__|_ITM_(de)?registerTMCloneTable|__stack_chk_fail"
    r"|GOMP_\w+|__kmpc_\w+|omp_get_(thread_num|max_threads|num_threads|num_procs|level)|omp_in_parallel"
    r"|_ZGV[a-eN-Z]\w+|__\w+_finite|__(extend|trunc)\w+[fd][f]\d|(" + "|".join(_LIBM.split()) + r")[fl]?"
)
_ALLOWED_LIBRARIES = re.compile(
    r"lib(c|m|gcc_s|stdc\+\+|mvec|gomp[-\w]*|omp\d*|iomp5|pthread|rt|dl)\.so(\.\d+)*|ld-linux[-\w]*\.so\.\d+"
)


def build(definition: Definition, solution: Solution, directory: Path) -> Runnable:
    """Compile (or find compiled) and load. Raises BuildError with the compiler's words, or ToolchainError."""
    path = shared_object(solution, directory)
    try:
        function = ctypes.CDLL(str(path))[solution.entry_function]
    except (OSError, AttributeError) as error:
        raise BuildError(f'{solution.entry_point}: {error}; declare the function extern "C"') from None
    function.argtypes, function.restype = [ctypes.c_char_p] * 3, None
    return _caller(definition, function)


def shared_object(solution: Solution, directory: Path) -> Path:
    """The path of the solution's shared object, compiled if it is not there yet."""
    bad = refused("cpp", solution.compile_options)
    if bad is not None:
        raise BuildError(f"compile option {bad!r} is not allowed; allowed are those of codegen/options.py")
    command = [compiler(), *FLAGS, *solution.compile_options, *_openmp_runtime()]
    key = "\n".join([solution.digest, compiler_version(command[0]), _processor(), *command])
    path = Path(directory) / f"{solution.digest[:16]}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.so"
    if artifact.read(path) is None:
        image = _compile(solution, command)
        check_object(image)
        artifact.publish(path, image)
    return path


@cache
def compiler() -> str:
    """The C++ compiler's path. Raises ToolchainError when there is none."""
    for name in COMPILERS:
        found = shutil.which(name)
        if found:
            return found
    raise ToolchainError("no C++ compiler: install g++ or clang++ (apt install g++) and put it on PATH")


@cache
def compiler_version(path: str) -> str:
    """The first line of `<compiler> --version`."""
    done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=TIMEOUT, check=False)
    return done.stdout.partition("\n")[0]


def check_object(image: bytes) -> None:
    """Raises BuildError when the object takes from outside what a kernel has no use for, or runs code when loaded."""
    symbols = sorted(s for s in elf.undefined_symbols(image) if not _ALLOWED_SYMBOLS.fullmatch(s))
    if symbols:
        raise BuildError(f"the kernel calls {', '.join(symbols[:8])}: only libm, OpenMP and mem* functions are allowed")
    libraries = sorted(s for s in elf.needed_libraries(image) if not _ALLOWED_LIBRARIES.fullmatch(s))
    if libraries:
        raise BuildError(f"the kernel links {', '.join(libraries)}: only the C, math, C++ and OpenMP libraries are allowed")
    if elf.constructors(image) > 1:
        raise BuildError("the kernel runs code when it is loaded: remove global objects with constructors")


def _compile(solution: Solution, command: list[str]) -> bytes:
    with tempfile.TemporaryDirectory(prefix="agentinductor-") as scratch:
        for source in solution.sources:
            Path(scratch, source.path).write_text(source.content)
        output = Path(scratch, "out.so")
        split = next((i for i, flag in enumerate(command) if flag.startswith("/") and i), len(command))
        full = [*command[:split], solution.entry_file, *command[split:], "-lm", "-o", output.name]
        try:
            done = subprocess.run(full, cwd=scratch, capture_output=True, text=True, timeout=TIMEOUT, check=False)
        except subprocess.TimeoutExpired:
            raise BuildError(f"{solution.entry_point}: the compiler did not finish in {TIMEOUT:.0f} s") from None
        if done.returncode:
            raise BuildError(f"{solution.entry_point} does not compile:\n{done.stderr[-4000:]}")
        return output.read_bytes()


def _openmp_runtime() -> list[str]:
    """Link the OpenMP runtime that torch has loaded, where -fopenmp would load a second one with threads of its own."""
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return []
    loaded = sorted(set(re.findall(r"(/\S*/lib(?:gomp|iomp5|omp)[^/\s]*\.so[.\d]*)$", maps, re.MULTILINE)))
    if not loaded or any(Path(path).name == "libgomp.so.1" for path in loaded):
        return []  # the same soname: the loader shares it
    return loaded[:1]


@cache
def _processor() -> str:
    """What -march=native depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    keys = ("model name", "flags", "Features", "CPU part")
    return "\n".join(dict.fromkeys(line for line in lines if line.split("\t")[0].split(":")[0].strip() in keys))


def _caller(definition: Definition, function) -> Runnable:
    """The call, with as little Python as possible: packed bytes are immutable, so threads may share the cached ones."""
    specs = definition.inputs + definition.outputs
    pack_pointers = struct.Struct(f"{len(specs)}P").pack
    places = [(i, dim) for _, i, dim in var_places(definition)]
    loose = [i for i, spec in enumerate(specs) if spec.layout != "contiguous" and spec.shape]
    packed: dict[tuple, tuple[bytes, bytes]] = {}

    def pack(tensors: Sequence[torch.Tensor]) -> tuple[bytes, bytes]:
        sizes = definition.sizes({name: tensors[i].size(dim) for name, i, dim in var_places(definition)})
        strides: list[int] = []
        for spec, tensor in zip(specs, tensors, strict=True):
            strides += _dense(definition.shape(spec, sizes)) if spec.layout == "contiguous" else tensor.stride()
        return (struct.pack(f"{len(sizes)}q", *sizes.values()), struct.pack(f"{len(strides)}q", *strides))

    def run(inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> None:
        tensors = (*inputs, *outputs)
        key = (*[tensors[i].size(dim) for i, dim in places], *[tensors[i].stride() for i in loose])
        shape = packed.get(key)
        if shape is None:
            if len(packed) >= 4096:
                packed.clear()
            shape = packed[key] = pack(tensors)
        function(pack_pointers(*[tensor.data_ptr() for tensor in tensors]), *shape)

    return run


def _dense(shape: tuple[int, ...]) -> list[int]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return strides[::-1]
