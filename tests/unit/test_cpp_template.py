"""C++ kernels written by the template: compiled, run, and compared with float64."""

import pytest
import torch

from agentinductor.codegen import reference
from agentinductor.codegen.builder import build
from agentinductor.codegen.cpp_template import emit
from agentinductor.codegen.schedule import Schedule
from agentinductor.errors import UnsupportedRegionError
from agentinductor.schema import Axis, Definition, Node, TensorSpec
from tests.support import definitions

FORMS = {"rows": Schedule("cpp", "rows", vector=32), "loop": Schedule("cpp", "loop", vector=16)}
SIZES = [3, 37]


def outputs_for(definition, sizes):
    every = definition.sizes(sizes)
    out = []
    for spec in definition.outputs:
        empty = torch.empty(definition.shape(spec, every), dtype=reference.DTYPES[spec.dtype])
        out.append(definitions._lay_out(empty.fill_(1), spec.layout))
    return out


def check(definition, schedule, directory, size, special=False):
    sizes = {axis.name: size + k for k, axis in enumerate(definition.var_axes)}
    inputs = definitions.make_inputs(definition, sizes, special=special)
    outputs = outputs_for(definition, sizes)
    build(definition, emit(definition, schedule), directory)(inputs, outputs)
    eager = reference.evaluate(definition, inputs)
    truth = reference.evaluate(definition, inputs, torch.float64)
    for got, plain, want in zip(outputs, eager, truth, strict=True):
        if not got.dtype.is_floating_point:
            assert torch.equal(got, plain)
            continue
        assert torch.equal(got.isnan(), plain.isnan())
        assert torch.equal(got.isinf(), plain.isinf())
        finite = plain.isfinite() & want.isfinite()
        ulp = torch.finfo(got.dtype).eps
        error = ((got.double() - want)[finite].norm() / want[finite].norm().clamp_min(1e-30)).item()
        baseline = ((plain.double() - want)[finite].norm() / want[finite].norm().clamp_min(1e-30)).item()
        assert error <= max(2 * baseline, 2 * ulp)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", definitions.ALL)
def test_every_definition(name, form, tmp_path):
    definition = definitions.ALL[name]()
    schedule = FORMS[form]
    try:
        emit(definition, schedule)
    except UnsupportedRegionError as error:
        pytest.skip(str(error))
    for size in SIZES:
        check(definition, schedule, tmp_path, size)
    check(definition, schedule, tmp_path, 5, special=True)


def unary(op, dtype="float32", out="float32"):
    body = (Node("t0", op, ("x0",), out, ("n",)),)
    return Definition((Axis("n"),), (TensorSpec("x0", ("n",), dtype),), body, (TensorSpec("y0", ("n",), out),), ("t0",))


def every_kind_of_float():
    """Half a million float32 bit patterns: all exponents, denormals, infinities and NaN."""
    patterns = torch.arange(-(2**31), 2**31, 8191, dtype=torch.int64).to(torch.int32).view(torch.float32)
    return torch.cat([patterns, torch.tensor([0.0, -0.0, float("inf"), float("-inf"), float("nan")]), torch.linspace(-4, 4, 20001)])


@pytest.mark.parametrize("op", ["exp", "exp2", "expm1", "tanh", "erf", "log", "log2", "log1p"])
def test_inline_functions_are_accurate(op, tmp_path):
    """2.5 units in the last place everywhere (tanh's worst); special values as in PyTorch."""
    x = every_kind_of_float()
    got, definition = torch.empty_like(x), unary(op)
    build(definition, emit(definition, Schedule("cpp", "tile")), tmp_path)([x], [got])
    want = getattr(torch, op)(x.double())
    rounded = want.float()
    assert torch.equal(got.isnan(), rounded.isnan())
    assert torch.equal(got[rounded.isinf()], rounded[rounded.isinf()])
    inside = rounded.isfinite()
    exponent = torch.frexp(want[inside]).exponent.clamp_min(-125)
    ulps = (got.double()[inside] - want[inside]).abs() / torch.ldexp(torch.ones_like(want[inside]), exponent - 24)
    assert ulps.max() <= 2.5


@pytest.mark.parametrize("half", ["bfloat16", "float16"])
def test_half_conversions_are_exact(half, tmp_path):
    x = every_kind_of_float()
    narrow, definition = torch.empty(x.shape, dtype=getattr(torch, half)), unary("cast", out=half)
    build(definition, emit(definition, Schedule("cpp", "tile")), tmp_path)([x], [narrow])
    torch.testing.assert_close(narrow, x.to(narrow.dtype), rtol=0, atol=0, equal_nan=True)
    every = torch.arange(-(2**15), 2**15).to(torch.int16).view(narrow.dtype)
    wide, definition = torch.empty(every.shape), unary("cast", half, "float32")
    build(definition, emit(definition, Schedule("cpp", "tile")), tmp_path)([every], [wide])
    torch.testing.assert_close(wide, every.float(), rtol=0, atol=0, equal_nan=True)
