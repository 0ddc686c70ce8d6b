"""C++ kernels written by the template: compiled, run, and compared with float64."""

import pytest
import torch

from agentinductor.codegen import reference
from agentinductor.codegen.builder import build
from agentinductor.codegen.cpp_template import emit
from agentinductor.codegen.schedule import Schedule
from agentinductor.errors import UnsupportedRegionError
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
