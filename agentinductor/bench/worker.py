"""The timing requests of a child process: `time` (candidate against baseline) and `quick` (candidates only).

A session is the child's (validation/worker.py): `device`, `definition`, and `built`, from a key to (solution, runnable).
"""

from functools import partial

import torch

from .. import device as machine
from ..schema import Workload
from . import roofline, speedup, timing
from .baseline import compiled

QUICK_SAMPLES = 5


def time_pair(session, message: dict) -> dict:
    """{key, workload, modes, options, seconds, seed} -> the fields of a Performance, and the cache size."""
    definition, device = session.definition, session.device
    workload = Workload.from_json(message["workload"])
    sets = timing.buffer_sets(definition, workload, device, message["seed"])
    candidate = _candidate(session, message["key"], workload)
    a = timing.sampler(candidate, sets, device)
    mode, baseline, b = _best_baseline(definition, sets, device, message["modes"], message["options"])
    found = speedup.interleaved(a, b, message["seconds"], message["seed"])
    outputs = sum(t.numel() * t.element_size() for t in timing.output_maker(definition, workload, device)())
    floor = roofline.floor_us(definition, workload, machine.copy_bandwidth(device))
    peaks = [timing.peak_bytes(partial(call, sets[0]), device) for call in (candidate, baseline)]
    return {
        "latency_us": found.a_s * 1e6, "baseline_us": found.b_s * 1e6,
        "ratio": found.ratio, "ratio_low": found.low, "ratio_high": found.high,
        "peak_bytes": peaks[0] or outputs, "baseline_peak_bytes": peaks[1] or outputs, "floor_us": floor, "baseline_mode": mode,
        "cache_bytes": machine.l2_bytes(device),
    }


def _best_baseline(definition, sets, device: torch.device, modes: list[str], options: dict | None):
    """(mode, call, sampler) of the fastest mode."""
    found: list[tuple] = []
    for mode in modes:
        call = compiled(definition, sets[0], mode, options)
        sampler = timing.sampler(call, sets, device)
        samples = sorted(sampler.sample() for _ in range(QUICK_SAMPLES))
        found.append((samples[len(samples) // 2], len(found), mode, call, sampler))
    return min(found)[2:]


def _candidate(session, key: str, workload: Workload):
    _, runnable = session.built[key]
    make = timing.output_maker(session.definition, workload, session.device)

    def call(inputs):
        outputs = make()
        runnable(inputs, outputs)
        return outputs

    return call


def time_quick(session, message: dict) -> dict:
    """{key, workload, samples, seed} -> {latency_us}: a few samples of one candidate."""
    definition, device = session.definition, session.device
    workload = Workload.from_json(message["workload"])
    kept = getattr(session, "sets", None)
    if kept is None or kept[0] != (definition.digest, workload.digest):
        session.sets = None
        kept = session.sets = (definition.digest, workload.digest), timing.buffer_sets(definition, workload, device, message["seed"])
    sampler = timing.sampler(_candidate(session, message["key"], workload), kept[1], device)
    samples = sorted(sampler.sample() for _ in range(message["samples"]))
    return {"latency_us": samples[len(samples) // 2] * 1e6}


def time_baseline(session, message: dict) -> dict:
    """{workload, modes, options, seed} -> {latency_us, mode}."""
    definition, device = session.definition, session.device
    sets = timing.buffer_sets(definition, Workload.from_json(message["workload"]), device, message["seed"])
    mode, _, sampler = _best_baseline(definition, sets, device, message["modes"], message["options"])
    samples = sorted(sampler.sample() for _ in range(2 * QUICK_SAMPLES))
    return {"latency_us": samples[len(samples) // 2] * 1e6, "mode": mode}


HANDLERS = {"time": time_pair, "quick": time_quick, "baseline": time_baseline}
