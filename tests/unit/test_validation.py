"""Cases, bounds, comparison, slots, and the child process: dead, late and wrong are three outcomes."""

import math
import time

import pytest
import torch

from agentinductor.codegen.reference import evaluate
from agentinductor.errors import EvaluationError
from agentinductor.schema import Guard, Reason, Solution, Source, Workload
from agentinductor.validation import compare, inputs, integrity, tolerance
from agentinductor.validation.isolation import Child, ChildError, Limits
from tests.support import definitions


def solution_for(definition, *guards):
    return Solution(definition.digest, "cpp", "k.cpp::f", (Source("k.cpp", ""),), guards)


def listed(definition, workload, *guards, seed=0):
    return list(inputs.cases(definition, solution_for(definition, *guards), workload, seed, 1 << 14, 1 << 16))


def test_cases_cover_sizes_classes_and_places():
    definition = definitions.rms_norm(cols=64)
    cases = listed(definition, Workload.of({"rows": 40}))
    rows = {case.sizes["rows"] for case in cases}
    assert {0, 1, 40} <= rows and any(r % 2 and r > 2 for r in rows)
    assert set(inputs.CLASSES) <= {case.name for case in cases}
    assert any(p.shift for case in cases for p in case.placements), "some inputs are misaligned"
    special = next(case for case in cases if case.name == "special").inputs[0]
    assert bool(special.isnan().any()) and bool(special.isinf().any())


def test_cases_follow_the_seed_and_the_guards():
    definition = definitions.rms_norm(cols=64)
    workload = Workload.of({"rows": 48})
    one, same, other = (listed(definition, workload, seed=s)[0].inputs[0] for s in (1, 1, 2))
    assert torch.equal(one, same) and not torch.equal(one, other)
    guarded = listed(definition, workload, Guard("divisible", "rows", 16), Guard("range", "rows", 16, 4096))
    assert all(case.sizes["rows"] % 16 == 0 and case.sizes["rows"] >= 16 for case in guarded)
    assert len({case.sizes["rows"] for case in guarded}) > 2


def test_a_large_workload_is_cut_down():
    definition = definitions.rms_norm(cols=4096)
    sizes = inputs.full_sizes(definition, solution_for(definition), Workload.of({"rows": 100000}), 1 << 18)
    assert sizes["rows"] * 4096 <= 1 << 18


@pytest.mark.parametrize("name", ["strided_add", "rope", "column_sum"])
def test_strided_inputs_survive_their_storage(name):
    definition = definitions.ALL[name]()
    for case in listed(definition, Workload.of(definitions.SIZES[name]))[:24]:
        ins, _ = integrity.slots(definition, case)
        canary = integrity.canaries(ins)
        for slot, values in zip(ins, case.inputs, strict=True):
            storage = slot.filled(values, canary)
            assert slot.view(storage).equal(values) or bool(values.isnan().any())
            assert torch.equal(storage[~slot.owned()], canary[:slot.size][~slot.owned()])


@pytest.mark.parametrize("name", ["gelu_tanh", "layer_norm", "causal_softmax", "row_var", "integers", "activations"])
def test_the_yardstick_is_within_its_own_bounds(name):
    definition = definitions.ALL[name]()
    for number, case in enumerate(listed(definition, Workload.of(definitions.SIZES[name]))[:16]):
        truths = tolerance.truths(definition, case.inputs, number)
        _, finding = compare.compare(definition, truths, [t.yardstick for t in truths])
        assert finding is None, (case.name, finding)


def test_bounds_refuse_a_precision_below_the_outputs():
    definition = definitions.gelu_tanh(dtype="float32")
    x = torch.randn(4000)
    truths = tolerance.truths(definition, [x], 0)
    assert compare.compare(definition, truths, evaluate(definition, [x]))[1] is None
    rough = [t.to(torch.float16).float() for t in evaluate(definition, [x])]
    assert compare.compare(definition, truths, rough)[1].reason is Reason.WRONG_VALUES


def test_special_values_must_match():
    definition = definitions.softmax(cols=8, dtype="float32")
    x = torch.randn(4, 8)
    x[1, 2], x[2] = math.nan, -math.inf
    truths = tolerance.truths(definition, [x], 0)
    good = evaluate(definition, [x])
    assert compare.compare(definition, truths, good)[1] is None
    for place in ((1, 0), (2, 3)):
        bad = good[0].clone()
        bad[place] = 0.0
        assert compare.compare(definition, truths, [bad])[1].reason is Reason.SPECIAL_VALUES


def test_integers_are_exact():
    definition = definitions.integers()
    ins = definitions.make_inputs(definition, {"n": 50})
    truths = tolerance.truths(definition, ins, 0)
    outs = [t.yardstick.clone() for t in truths]
    assert compare.compare(definition, truths, outs)[1] is None
    outs[0][3] += 1
    assert "y0[3]" in compare.compare(definition, truths, outs)[1].detail


def test_a_child_answers_and_leaves_nothing():
    with Child("cpu", threads=1) as child:
        hello = child.start()
        assert hello["confined"] in ("landlock", "rlimits") and hello["torch"] == torch.__version__
        assert child.request({"op": "snapshot"}, 30)["state"]["threads"] == 1
        assert child.request({"op": "no such thing"}, 30)["ok"] is False
        assert child.tasks()[0] >= 1
        pid, scratch = child.process.pid, child.scratch
    assert not scratch.exists() and child.process.returncode is not None and pid > 0


def test_dead_and_late_are_told_apart():
    with Child("cpu", threads=1) as child:
        child.start()
        child.process.kill()
        with pytest.raises(ChildError) as error:
            child.request({"op": "snapshot"}, 30)
        assert error.value.reason is Reason.CRASH and "SIGKILL" in error.value.detail
    late = Child("cpu", threads=1)
    begun = time.monotonic()
    with pytest.raises(ChildError) as error:
        late.request({"op": "hello"}, 0.05)
    assert error.value.reason is Reason.TIMEOUT and time.monotonic() - begun < 10 and not late.alive


def test_a_child_that_cannot_start_is_our_error():
    child = Child("cpu", Limits(start_s=60), module="agentinductor.no_such_module")
    with child, pytest.raises(EvaluationError, match="did not start"):
        child.start()
