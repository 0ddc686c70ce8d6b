"""The four-way table and its gate, on variants that are plain functions."""

import json
import math
import time

import pytest
import torch

from agentinductor.bench import endtoend
from agentinductor.bench.endtoend import Comparison, Interval, Measurement
from agentinductor.schema import Accepted, Reason, Rejected


def model(x):
    return torch.nn.functional.silu(x) * 2


def slow(x):
    time.sleep(0.002)
    return model(x)


def measurement(name, latency, peak=1 << 30, error=1e-3):
    samples = tuple(latency * (1 + 0.001 * i) for i in range(-5, 6))
    return Measurement(name, Interval(latency, latency, latency), peak, error, 0.0, 0.0, samples)


def table(new, old=None):
    return Comparison("default", "cpu", (old or measurement("compiled", 100.0), new))


@pytest.fixture(scope="module")
def comparison():
    x = torch.randn(64)
    return endtoend.compare({"compiled": slow, "compiled + kernels": model}, (x,), truth=model(x.double()), rounds=6, budget_s=2)


def test_the_faster_variant_is_accepted(comparison):
    verdict = endtoend.gate(comparison)
    assert isinstance(verdict, Accepted) and verdict.ratio > 2


def test_the_slower_variant_is_rejected(comparison):
    verdict = endtoend.gate(comparison, candidate="compiled", references=["compiled + kernels"])
    assert isinstance(verdict, Rejected) and verdict.reason is Reason.SLOWER


def test_errors_are_against_truth(comparison):
    assert 0 < comparison["compiled"].error < 1e-6


def test_json_round_trip(comparison):
    assert Comparison.from_json(json.loads(json.dumps(comparison.to_json()))) == comparison


def test_table_names_each_variant(comparison):
    text = str(comparison)
    assert "compiled + kernels" in text and "95% CI" in text


def test_unknown_variant_names_the_known(comparison):
    with pytest.raises(KeyError, match="compiled"):
        comparison["eagre"]


def test_more_memory_is_rejected():
    verdict = endtoend.gate(table(measurement("compiled + kernels", 50.0, peak=2 << 30)))
    assert verdict == Rejected(Reason.MORE_MEMORY, verdict.detail)


@pytest.mark.parametrize("error", [2e-3, math.nan, math.inf])
def test_larger_error_is_rejected(error):
    verdict = endtoend.gate(table(measurement("compiled + kernels", 50.0, error=error)))
    assert isinstance(verdict, Rejected) and verdict.reason is Reason.WRONG_VALUES


def test_equal_speed_is_rejected():
    verdict = endtoend.gate(table(measurement("compiled + kernels", 100.0)))
    assert isinstance(verdict, Rejected) and verdict.reason is Reason.SLOWER


def test_the_best_reference_is_the_one_to_beat():
    three = Comparison("default", "cpu", (measurement("compiled", 100.0), measurement("autotuned", 40.0),
                                          measurement("compiled + kernels", 50.0)))
    assert isinstance(endtoend.gate(three), Accepted)
    assert isinstance(endtoend.gate(three, references=["compiled", "autotuned"]), Rejected)


def test_reset_runs_before_every_call():
    state = {"used": 0}

    def step(x):
        assert state["used"] == 0
        state["used"] = 1
        return x

    endtoend.compare({"compiled": step}, (torch.ones(2),), reset=lambda: state.update(used=0), rounds=5, budget_s=0)


def test_outputs_are_copies_and_skip_caches():
    x = torch.ones(2)
    found = endtoend.outputs_of({"logits": x, "cache": object(), "states": (x, [x])})
    assert len(found) == 3 and found[0].data_ptr() != x.data_ptr()


@pytest.mark.parametrize(("out", "want", "expected"), [
    ([1.0, math.nan], [1.0, math.nan], 0.0),
    ([1.0, math.inf], [1.0, math.inf], 0.0),
    ([1.0, math.inf], [1.0, -math.inf], math.inf),
    ([1.0, math.nan], [1.0, math.inf], math.inf),
    ([1.0, 0.0], [1.0, math.nan], math.inf),
    ([0.0, 0.0], [0.0, 0.0], 0.0),
    ([3.0, 4.0], [3.0, 0.0], 4 / 3),
])
def test_relative_error_of_special_values(out, want, expected):
    assert endtoend.relative_error([torch.tensor(out)], [torch.tensor(want)]) == pytest.approx(expected)


def test_relative_error_sees_shape_count_and_integers():
    one = torch.ones(2)
    assert endtoend.relative_error([one], [one, one]) == math.inf
    assert endtoend.relative_error([torch.ones(3)], [one]) == math.inf
    assert endtoend.relative_error([torch.tensor([1, 2])], [torch.tensor([1, 3])]) == math.inf


def test_truth_widens_a_copy():
    linear = torch.nn.Linear(4, 4).to(torch.bfloat16)
    x = torch.randn(2, 4, dtype=torch.bfloat16)
    (truth,) = endtoend.truth_of(linear, (x,))
    assert truth.dtype == torch.float32 and linear.weight.dtype == torch.bfloat16
    assert endtoend.relative_error([linear(x)], [truth]) < 1e-2
