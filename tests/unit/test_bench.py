"""Statistics, roofline and buffers of the bench; one real timing of a C++ kernel against Inductor."""

import numpy as np
import pytest
import torch

from agentinductor.bench import baseline, roofline, speedup, timing
from agentinductor.schema import Workload
from tests.support import definitions

CPU = torch.device("cpu")


class Fake:
    """A sampler with a known mean and noise, and a drift that both of a pair share."""

    def __init__(self, mean, noise, generator):
        self.mean, self.noise, self.generator = mean, noise, generator

    def sample(self):
        return self.mean * (1 + self.noise * abs(self.generator.standard_normal()))


def test_a_against_a_is_one_and_rarely_wins():
    wins, ratios = 0, []
    for seed in range(200):
        generator = np.random.default_rng(seed)
        found = speedup.interleaved(Fake(1e-5, 0.02, generator), Fake(1e-5, 0.02, generator), 0.002, seed)
        ratios.append(found.ratio)
        wins += found.ratio >= 1.02 and found.low > 1.0
    assert 0.99 < np.median(ratios) < 1.01 and wins <= 2


def test_a_real_difference_is_seen():
    generator = np.random.default_rng(0)
    found = speedup.interleaved(Fake(1e-5, 0.02, generator), Fake(1.1e-5, 0.02, generator), 0.01)
    assert 1.08 < found.ratio < 1.12 and found.low > 1.05 and found.low <= found.ratio <= found.high
    assert speedup.ROUNDS[0] <= found.rounds <= speedup.ROUNDS[1]


def test_the_floor_counts_what_must_move():
    definition = definitions.rms_norm(cols=4096)
    workload = Workload.of({"rows": 1000})
    assert roofline.bytes_needed(definition, workload) == 2 * (2 * 1000 * 4096 + 4096)
    add = definitions.strided_add()
    expanded = Workload.of({"rows": 10, "cols": 20}, {"x0": (0, 1)})
    assert roofline.bytes_needed(add, expanded) == 4 * (20 + 200 + 200)


def test_what_is_faster_than_memory_is_refused_only_beyond_the_cache():
    definition, workload = definitions.rms_norm(cols=4096), Workload.of({"rows": 100000})
    floor = roofline.floor_us(definition, workload, 1e12)
    assert roofline.faster_than_hardware(definition, workload, 0.6 * floor, floor, 50 << 20, "cuda")
    assert roofline.faster_than_hardware(definition, workload, 0.8 * floor, floor, 50 << 20, "cuda") is None
    small = Workload.of({"rows": 10})
    assert roofline.faster_than_hardware(definition, small, 1e-6, 1.0, 50 << 20, "cuda") is None


def test_buffers_have_the_workloads_strides():
    definition = definitions.strided_add()
    workload = Workload.of({"rows": 3, "cols": 5}, {"x0": (1, 3), "x1": (0, 1)})
    first = timing.buffer_sets(definition, workload, CPU, 0)[0]
    assert [t.stride() for t in first] == [(1, 3), (0, 1)] and all(bool(torch.isfinite(t).all()) for t in first)


@pytest.mark.slow
def test_the_baseline_is_inductors_code_without_guards():
    definition = definitions.rms_norm(cols=128, dtype="float32")
    workload = Workload.of({"rows": 16})
    sets = timing.buffer_sets(definition, workload, CPU, 0)
    call = baseline.compiled(definition, sets[0], "default", {"max_autotune": False})
    x, w = sets[0]
    wanted = torch.nn.functional.rms_norm(x, (128,), w, 1e-5)
    torch.testing.assert_close(call(sets[0])[0], wanted)
    assert timing.sampler(call, sets[:2], CPU, 0.001).sample() > 0
