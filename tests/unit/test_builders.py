"""Builders: grids, artifacts, the C++ call, NVRTC and Triton compilation without a GPU, and errors that say what to do."""

import shutil
import threading

import pytest
import torch

from agentinductor.codegen import artifact, cpp_builder, cross_compile, cuda_builder, elf
from agentinductor.codegen.builder import build
from agentinductor.codegen.grid import compile_expression
from agentinductor.errors import BuildError, ToolchainError
from agentinductor.schema import Axis, Definition, Launch, Node, Solution, Source, TensorSpec

DEFINITION = Definition(
    (Axis("rows"), Axis("cols", 8)),
    (TensorSpec("x0", ("rows", "cols"), "float32", "strided"), TensorSpec("x1", ("cols",), "float32")),
    (Node("t0", "add", ("x0", "x1"), "float32", ("rows", "cols")),),
    (TensorSpec("y0", ("rows", "cols"), "float32"),),
    ("t0",),
)
CPP = """
#include <cstdint>
extern "C" void kernel(void* const* tensors, const int64_t* sizes, const int64_t* strides) {
    const float* x0 = (const float*)tensors[0];
    const float* x1 = (const float*)tensors[1];
    float* y0 = (float*)tensors[2];
    #pragma omp parallel for
    for (int64_t r = 0; r < sizes[0]; ++r)
        for (int64_t c = 0; c < sizes[1]; ++c)
            y0[r * strides[3] + c * strides[4]] = x0[r * strides[0] + c * strides[1]] + x1[c * strides[2]];
}
"""
CUDA = """
#include <cuda_bf16.h>
extern "C" __global__ void kernel(const float* x0, const float* x1, float* y0, long long rows, long long s0, long long s1) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < rows * 8) y0[i] = x0[i / 8 * s0 + i % 8 * s1] + x1[i % 8];
}
"""
TRITON = """
import triton
import triton.language as tl


@triton.jit
def kernel(x0, x1, y0, rows, s0, s1, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < rows * 8
    x = tl.load(x0 + i // 8 * s0 + i % 8 * s1, mask=inside)
    tl.store(y0 + i, x + tl.load(x1 + i % 8), mask=inside)


def run(x0, x1, y0):
    rows = x0.shape[0]
    kernel[(triton.cdiv(rows * 8, 256),)](x0, x1, y0, rows, x0.stride(0), x0.stride(1), BLOCK=256, num_warps=4)
"""
LAUNCH = Launch("kernel", ("cdiv(rows * 8, 128)", "1", "1"), 128, ("x0", "x1", "y0", "rows", "stride(x0,0)", "stride(x0, 1)"))


def cpp(text=CPP, options=()):
    return Solution(DEFINITION.digest, "cpp", "kernel.cpp::kernel", (Source("kernel.cpp", text),), compile_options=options)


def cuda(text=CUDA, launch=LAUNCH, options=()):
    return Solution(DEFINITION.digest, "cuda", "kernel.cu::kernel", (Source("kernel.cu", text),), (), (launch,), options)


def triton_solution(text=TRITON):
    return Solution(DEFINITION.digest, "triton", "kernel.py::run", (Source("kernel.py", text),))


def run_once(runnable, rows, transposed=False):
    x = torch.randn(8, rows).t() if transposed else torch.randn(rows, 8)
    bias, out = torch.randn(8), torch.empty(rows, 8)
    runnable([x, bias], [out])
    assert torch.equal(out, x + bias)


# ---- grids ----


@pytest.mark.parametrize(
    "text, value", [("1", 1), ("rows", 10), ("cdiv(rows, 4)", 3), ("rows * 2 + 1 - 3 // 2", 20), ("min(rows, max(3, 4))", 4)]
)
def test_grid_value(text, value):
    assert compile_expression(text, frozenset({"rows"}))({"rows": 10}) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "rows ** 9",
        "rows / 2",
        "__import__('os')",
        "rows.bit_length()",
        "True",
        "1.5",
        "[1]",
        "min(1)",
        "cdiv(*rows)",
        "max(a=1, b=2)",
        "(lambda: 1)()",
        "rows if rows else 1",
        "1 << 40",
        "(" * 150 + "1" + ")" * 150,
        "9" * 300,
    ],
)
def test_grid_outside_the_language(text):
    with pytest.raises(BuildError):
        compile_expression(text, frozenset({"rows"}))


def test_grid_divides_by_zero():
    with pytest.raises(BuildError, match="divides by zero"):
        compile_expression("8 // rows", frozenset({"rows"}))({"rows": 0})


# ---- artifacts ----


def test_damaged_artifact_reads_as_absent(tmp_path):
    path = tmp_path / "a.so"
    assert artifact.read(path) is None
    artifact.publish(path, b"bytes")
    assert artifact.read(path) == b"bytes"
    path.write_bytes(b"byte")
    assert artifact.read(path) is None


# ---- C++ ----


def test_cpp_runs_for_any_size_and_stride(tmp_path):
    runnable = build(DEFINITION, cpp(), tmp_path)
    for rows in (1, 3, 100):
        run_once(runnable, rows)
        run_once(runnable, rows, transposed=True)


def test_cpp_is_compiled_once_and_again_when_damaged(tmp_path, monkeypatch):
    path = cpp_builder.shared_object(cpp(), tmp_path)
    before = path.stat().st_mtime_ns
    assert cpp_builder.shared_object(cpp(), tmp_path) == path and path.stat().st_mtime_ns == before
    path.unlink()
    path.write_bytes(b"torn")
    assert cpp_builder.shared_object(cpp(), tmp_path) == path and path.stat().st_size > 1000
    assert cpp_builder.shared_object(cpp(options=("-O2",)), tmp_path) != path


def test_cpp_called_from_threads(tmp_path):
    runnable = build(DEFINITION, cpp(), tmp_path)
    failures = []

    def work(rows):
        try:
            for k in range(50):
                run_once(runnable, rows + k % 3)
        except AssertionError as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(rows,)) for rows in (5, 50, 500)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_cpp_compiler_message_reaches_the_author(tmp_path):
    with pytest.raises(BuildError, match="undeclared_name"):
        build(DEFINITION, cpp(CPP.replace("sizes[0]", "undeclared_name")), tmp_path)


def test_cpp_missing_entry(tmp_path):
    with pytest.raises(BuildError, match='extern "C"'):
        build(DEFINITION, cpp(CPP.replace('extern "C" ', "")), tmp_path)


@pytest.mark.parametrize("call, name", [("puts(0)", "puts"), ("abort()", "abort")])
def test_cpp_undefined_symbol_is_refused(tmp_path, call, name):
    text = CPP.replace("#include <cstdint>", f'#include <cstdint>\nextern "C" int {name}(const void*);')
    with pytest.raises(BuildError, match=name):
        build(DEFINITION, cpp(text.replace("    #pragma", f"    {name}(x0);\n    #pragma")), tmp_path)


def test_cpp_constructor_is_refused(tmp_path):
    text = CPP.replace(
        "#include <cstdint>", "#include <cstdint>\nint state;\n__attribute__((constructor)) void early() { state = 1; }"
    )
    with pytest.raises(BuildError, match="when it is loaded"):
        build(DEFINITION, cpp(text), tmp_path)


def test_cpp_option_is_refused(tmp_path):
    with pytest.raises(BuildError, match="not allowed"):
        build(DEFINITION, cpp(options=("-ffast-math",)), tmp_path)


def test_no_compiler_names_the_next_step(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    cpp_builder.compiler.cache_clear()
    with pytest.raises(ToolchainError, match="install g"):
        build(DEFINITION, cpp(), tmp_path)
    cpp_builder.compiler.cache_clear()


def test_wrong_definition_is_refused(tmp_path):
    with pytest.raises(BuildError, match="is for definition"):
        build(DEFINITION, Solution("0" * 64, "cpp", "kernel.cpp::kernel", (Source("kernel.cpp", CPP),)), tmp_path)


def test_elf_refuses_other_files():
    with pytest.raises(BuildError):
        elf.sections(b"MZ")
    with pytest.raises(BuildError):
        elf.sections(b"\x7fELF\x02\x01" + b"\xff" * 60)


# ---- CUDA and Triton, without a GPU ----


@pytest.fixture
def nvrtc():
    try:
        cuda_builder.compile_cubin(cuda(), 90)
    except ToolchainError as error:
        pytest.skip(str(error)[:80])


def test_cuda_cross_compiles(nvrtc):
    for capability in cross_compile.CAPABILITIES:
        (report,) = cross_compile.cross_compile(DEFINITION, cuda(), capability)
        assert report.kernel == "kernel" and 0 < report.registers <= 64 and report.local_bytes == 0


def test_cuda_compiler_message_reaches_the_author(nvrtc):
    with pytest.raises(BuildError, match="undeclared_name"):
        cuda_builder.compile_cubin(cuda(CUDA.replace("rows * 8", "undeclared_name")), 90)


def test_cuda_spills_are_reported(nvrtc):
    text = CUDA.replace(
        "long long s1) {",
        "long long s1) {\n volatile float a[64]; for (int k = 0; k < 64; ++k) a[(k * rows) & 63] = k; y0[0] = a[rows & 63];",
    )
    (report,) = cross_compile.cross_compile(DEFINITION, cuda(text), 90)
    assert report.local_bytes >= 256


@pytest.mark.parametrize("args", [("x9",), ("stride(x0,2)",), ("stride(x0,-1)",), ("depth",)])
def test_cuda_launch_argument_is_refused(tmp_path, args):
    with pytest.raises(BuildError, match="no tensor, axis or stride"):
        build(DEFINITION, cuda(launch=Launch("kernel", ("1", "1", "1"), 32, args)), tmp_path)


def test_triton_cross_compiles(tmp_path):
    for capability in cross_compile.CAPABILITIES:
        (report,) = cross_compile.cross_compile(DEFINITION, triton_solution(), capability, tmp_path)
        assert report.kernel == "kernel" and report.registers > 0 and report.binary[:4] == b"\x7fELF"


def test_triton_error_reaches_the_author(tmp_path):
    with pytest.raises(BuildError, match="no_such_function"):
        cross_compile.cross_compile(DEFINITION, triton_solution(TRITON.replace("tl.store", "tl.no_such_function")), 90, tmp_path)


def test_triton_file_that_raises(tmp_path):
    with pytest.raises(BuildError, match="cannot be imported"):
        build(DEFINITION, triton_solution("import triton\nx = 1 // 0\n"), tmp_path)


@pytest.mark.parametrize("text", ["def run(x0, x1, y0):\n    pass\n", TRITON.replace("def run", "def other")])
def test_triton_file_without_kernel_or_launcher(tmp_path, text):
    with pytest.raises(BuildError):
        build(DEFINITION, triton_solution(text), tmp_path)


def test_triton_autotune_is_refused(tmp_path):
    text = TRITON.replace("@triton.jit", "@triton.autotune(configs=[triton.Config({})], key=[])\n@triton.jit")
    with pytest.raises(BuildError, match="plain @triton.jit"):
        build(DEFINITION, triton_solution(text), tmp_path)
