"""Kernels that cheat, break or guess: each must be found, and the honest ones let through.

The static checks are switched off here: what they would refuse must be caught a second time by the numbers.
"""

import pytest

from agentinductor.codegen import cpp_builder
from agentinductor.errors import ToolchainError
from agentinductor.schema import Axis, Definition, Reason, Solution, Source, Workload
from agentinductor.validation import static_checks, validator
from agentinductor.validation.isolation import Child, Limits
from tests.support import definitions
from tests.support.definitions import Body

LIMITS = Limits(request_s=10.0, case_elements=1 << 14)
COLS = 96
RMS = """
#include <cmath>
#include <cstdint>
#include <cstring>

static int calls = 0;
static const void* seen = nullptr;
static float kept[1 << 20];

static float bf16(float v) {{ uint32_t u; memcpy(&u, &v, 4); u = (u + 0x8000u) & 0xffff0000u; memcpy(&v, &u, 4); return v; }}

extern "C" void f(void* const* tensors, const int64_t* sizes, const int64_t*) {{
    float* x = (float*)tensors[0];
    const float* w = (const float*)tensors[1];
    float* y = (float*)tensors[2];
    int64_t rows = sizes[0], cols = sizes[1], stop = rows;
    double eps = 1e-5;
    (void)seen; (void)kept; (void)eps; (void)bf16; (void)w; ++calls;
    {before}
    for (int64_t r = 0; r < stop; ++r) {{
        double s = 0;
        for (int64_t c = 0; c < cols; ++c) s += (double)x[r * cols + c] * x[r * cols + c];
        float scale = (float)(1 / std::sqrt(s / cols + eps));
        for (int64_t c = 0; c < cols; ++c) {{
            float v = x[r * cols + c] * scale * w[c];
            {each}
            y[r * cols + c] = v;
        }}
    }}
    {after}
}}
"""
ALL = dict.fromkeys(("before", "each", "after"), "")
CHEATS = {
    "nothing at all": ({"before": "return;"}, {Reason.UNWRITTEN_OUTPUT}),
    "zeros": ({"each": "v = 0;"}, {Reason.WRONG_VALUES}),
    "a copy of the input": ({"each": "v = x[r * cols + c];"}, {Reason.WRONG_VALUES}),
    "the last row is left out": ({"before": "stop = rows > 1 ? rows - 1 : rows;"}, {Reason.UNWRITTEN_OUTPUT}),
    "rows come in fours": ({"before": "stop = (rows + 3) / 4 * 4;"}, {Reason.OUT_OF_BOUNDS}),
    "a byte before the output": ({"after": "((char*)y)[-1] ^= 1;"}, {Reason.OUT_OF_BOUNDS}),
    "the input changes": ({"after": "if (rows) x[0] = x[0] == 0 ? 1 : -x[0];"}, {Reason.INPUT_MODIFIED}),
    "bfloat16 inside": ({"each": "v = bf16(v);"}, {Reason.WRONG_VALUES}),
    "NaN becomes zero": ({"each": "if (v != v) v = 0;"}, {Reason.SPECIAL_VALUES}),
    "eps is left out": ({"before": "eps = 0;"}, {Reason.WRONG_VALUES, Reason.SPECIAL_VALUES}),
    "another eps": ({"before": "eps = 1e-6;"}, {Reason.WRONG_VALUES}),
    "one element of many": ({"each": "if (r == rows - 1 && c == cols - 1) v *= 1.01f;"}, {Reason.WRONG_VALUES}),
    "small inputs take a shortcut": ({"each": "if (fabsf(x[r * cols]) < 2e-3f) v = x[r * cols + c] * 300 * w[c];"}, {Reason.WRONG_VALUES}),
    "other sizes than the workload's": ({"each": "if (rows != 24) v = 0;"}, {Reason.WRONG_VALUES}),
    "accumulates into the output": (
        {"each": "v += 0 * y[r * cols + c];"}, {Reason.WRONG_VALUES, Reason.SPECIAL_VALUES, Reason.NONDETERMINISTIC}),
    "every other call differs": ({"each": "if (calls % 2) v *= 1.0000002f;"}, {Reason.NONDETERMINISTIC}),
    "honest for thirty calls": ({"each": "if (calls > 30) v *= 1.5f;"}, {Reason.WRONG_VALUES, Reason.NONDETERMINISTIC}),
    "remembers by address": (
        {"before": "if (seen == x && rows * cols < (1 << 20)) { memcpy(y, kept, rows * cols * 4); return; }",
         "after": "seen = x; if (rows * cols < (1 << 20)) memcpy(kept, y, rows * cols * 4);"},
        {Reason.STATE_LEAK, Reason.WRONG_VALUES, Reason.SPECIAL_VALUES}),
    "a null pointer": ({"before": "*(volatile int*)8 = 1;"}, {Reason.CRASH}),
    "an endless loop": ({"before": "for (volatile int i = 0;; ++i) {}"}, {Reason.TIMEOUT}),
}


@pytest.fixture(scope="module", autouse=True)
def compiler():
    try:
        cpp_builder.compiler()
    except ToolchainError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def children():
    held: list[Child] = []
    yield held
    for child in held:
        child.close()


def solution(definition: Definition, text: str) -> Solution:
    return Solution(definition.digest, "cpp", "kernel.cpp::f", (Source("kernel.cpp", text),))


def judge(children, monkeypatch, definition, text, workload):
    monkeypatch.setattr(static_checks, "check", lambda solution: None)
    while children and not children[0].alive:
        children.pop(0).close()
    if not children:
        children.append(Child("cpu", LIMITS, threads=1))
    return validator.validate(definition, solution(definition, text), workload, seed=7, limits=LIMITS, child=children[0])


def test_the_honest_kernel_passes(children, monkeypatch):
    definition = definitions.rms_norm(cols=COLS, dtype="float32")
    correctness, reason, detail = judge(children, monkeypatch, definition, RMS.format(**ALL), Workload.of({"rows": 24}))
    assert reason is None, detail
    assert correctness.cases > 25 and correctness.max_rel_error < 1e-6


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_is_found(children, monkeypatch, name):
    parts, reasons = CHEATS[name]
    definition = definitions.rms_norm(cols=COLS, dtype="float32")
    _, reason, detail = judge(children, monkeypatch, definition, RMS.format(**{**ALL, **parts}), Workload.of({"rows": 24}))
    assert reason in reasons, detail


SOFTMAX = """
#include <cmath>
#include <cstdint>

extern "C" void f(void* const* tensors, const int64_t* sizes, const int64_t*) {{
    const float* x = (const float*)tensors[0];
    float* y = (float*)tensors[1];
    for (int64_t r = 0; r < sizes[0]; ++r) {{
        const float* row = x + r * sizes[1];
        float top = {top}, s = 0;
        for (int64_t c = 0; c < sizes[1]; ++c) {{ {update} }}
        for (int64_t c = 0; c < sizes[1]; ++c) s += std::exp(row[c] - top);
        for (int64_t c = 0; c < sizes[1]; ++c) y[r * sizes[1] + c] = std::exp(row[c] - top) / s;
    }}
}}
"""


@pytest.mark.parametrize("top, update, fine", [
    ("-INFINITY", "if (row[c] > top || row[c] != row[c]) top = row[c];", True),
    ("0", "", False),
    ("-1e30f", "if (row[c] > top) top = row[c];", True),  # 0 / 0 is NaN too
])
def test_softmax_without_its_maximum(children, monkeypatch, top, update, fine):
    definition = definitions.softmax(cols=COLS, dtype="float32")
    _, reason, detail = judge(children, monkeypatch, definition, SOFTMAX.format(top=top, update=update), Workload.of({"rows": 24}))
    assert (reason is None) == fine, detail


def test_what_nothing_can_tell_from_zeros_is_uncheckable(children, monkeypatch):
    b = Body("pointwise", Axis("n"))
    x = b.op("mul", b.op("abs", b.op("maximum", b.op("minimum", b.input("float32", "n"), 1.0), -1.0)), 1e-42)
    b.output(b.op("where", b.op("isnan", x, dtype="bool"), 0.0, x, dtype="float32"))
    text = """
#include <cstdint>
extern "C" void f(void* const* tensors, const int64_t* sizes, const int64_t*) {
    for (int64_t i = 0; i < sizes[0]; ++i) ((float*)tensors[1])[i] = 0;
}"""
    _, reason, detail = judge(children, monkeypatch, b.done(), text, Workload.of({"n": 1000}))
    assert reason is Reason.UNCHECKABLE and "zeros" in detail
