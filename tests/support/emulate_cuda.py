"""Runs an emitted CUDA C++ kernel on the CPU: a thread of the machine for each thread of a block, blocks one by one.

Slow and small, but it executes the very source, barriers and shuffles included. For kernels of codegen/cuda_template.py.
"""

import ctypes
import subprocess
from pathlib import Path

from agentinductor.codegen.grid import compile_expression
from agentinductor.schema import Definition, Solution

SHIM = r"""
#include <barrier>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(n)
#define __shared__ static
struct Dim { int x; };
static thread_local Dim threadIdx, blockIdx;
static std::unique_ptr<std::barrier<>> whole;
static std::vector<std::unique_ptr<std::barrier<>>> warps;
static uint64_t lanes[1024];
static void __syncthreads() { whole->arrive_and_wait(); }
template <typename T> static T __shfl_xor_sync(unsigned, T value, int mask) {
    auto& warp = *warps[threadIdx.x / 32];
    std::memcpy(&lanes[threadIdx.x], &value, sizeof(T));
    warp.arrive_and_wait();
    T out;
    std::memcpy(&out, &lanes[threadIdx.x ^ mask], sizeof(T));
    warp.arrive_and_wait();
    return out;
}
struct __nv_bfloat16 { uint16_t bits; };
static float __bfloat162float(__nv_bfloat16 h) { uint32_t u = (uint32_t)h.bits << 16; float f; std::memcpy(&f, &u, 4); return f; }
static __nv_bfloat16 __float2bfloat16_rn(float f) {
    uint32_t u; std::memcpy(&u, &f, 4);
    if (f != f) return {0x7fff};
    return {(uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
}
static float __int_as_float(int i) { float f; std::memcpy(&f, &i, 4); return f; }
static float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
"""


def run(definition: Definition, solution: Solution, inputs: list, outputs: list, directory: Path) -> None:
    """Launch `solution` on CPU tensors."""
    launch = solution.launches[0]
    tensors = dict(zip([s.name for s in definition.inputs + definition.outputs], [*inputs, *outputs], strict=True))
    sizes = {}
    for spec in definition.inputs + definition.outputs:
        sizes.update(zip(spec.shape, tensors[spec.name].shape, strict=True))
    names = frozenset(axis.name for axis in definition.axes)
    blocks = [compile_expression(text, names)(sizes) for text in launch.grid]
    values = []
    for argument in launch.args:
        if argument in tensors:
            values.append(tensors[argument].data_ptr())
        elif argument in sizes:
            values.append(sizes[argument])
        else:
            name, dim = argument.removeprefix("stride(").rstrip(")").split(",")
            values.append(tensors[name].stride(int(dim)))
    _library(solution, launch, directory).start((ctypes.c_longlong * len(values))(*values), blocks[0], launch.block)


def _library(solution: Solution, launch, directory: Path):
    source, library = directory / f"{solution.digest[:16]}.cpp", directory / f"{solution.digest[:16]}.so"
    if library.exists():  # the same kernel on other inputs
        return ctypes.CDLL(str(library))
    text = solution.source("kernel.cu").replace("#include <cuda_bf16.h>", "").replace("#include <cuda_fp16.h>", "")
    head = text[text.index('extern "C"') :].split("kernel(", 1)[1].split(") {", 1)[0]
    types = [parameter.rsplit(" ", 1)[0].replace("__restrict__", "") for parameter in head.split(", ")]
    call = ", ".join(f"({kind})a[{i}]" for i, kind in enumerate(types))
    starter = f"""
extern "C" void start(const long long* a, int blocks, int threads) {{
    whole = std::make_unique<std::barrier<>>(threads);
    warps.clear();
    for (int w = 0; w < threads / 32; ++w) warps.push_back(std::make_unique<std::barrier<>>(32));
    for (int b = 0; b < blocks; ++b) {{
        std::vector<std::thread> all;
        for (int t = 0; t < threads; ++t) all.emplace_back([=] {{ threadIdx.x = t; blockIdx.x = b; kernel({call}); }});
        for (auto& thread : all) thread.join();
    }}
}}
"""
    source.write_text(SHIM + text + starter)
    options = ["-std=c++20", "-O1", "-w", "-pthread", "-shared", "-fPIC", "-fno-strict-aliasing"]
    command = ["g++", *options, str(source), "-o", str(library)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(done.stderr[:3000])
    return ctypes.CDLL(str(library))
