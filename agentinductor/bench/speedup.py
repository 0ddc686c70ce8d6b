"""Is A faster than B? Paired samples in random order, the median of their ratios, and its bootstrap confidence interval."""

import time
from dataclasses import dataclass

import numpy as np

from .timing import Sampler

ROUNDS = (15, 120)  # fewest, most
RESAMPLES = 2000
CONFIDENCE = 0.99


@dataclass(frozen=True)
class Speedup:
    """`ratio` is B's time over A's: above 1, A is faster."""

    a_s: float
    b_s: float
    ratio: float
    low: float
    high: float
    rounds: int


def interleaved(a: Sampler, b: Sampler, seconds: float, seed: int = 0) -> Speedup:
    """Time both for about `seconds` together. A pair's two samples follow each other, in random order."""
    generator = np.random.default_rng(seed)
    pairs: list[tuple[float, float]] = []
    until = time.perf_counter() + seconds
    while len(pairs) < ROUNDS[0] or (len(pairs) < ROUNDS[1] and time.perf_counter() < until):
        if generator.random() < 0.5:
            first = a.sample()
            pairs.append((first, b.sample()))
        else:
            first = b.sample()
            pairs.append((a.sample(), first))
    return summarise(pairs, seed)


def summarise(pairs: list[tuple[float, float]], seed: int = 0) -> Speedup:
    """The statistics of (A, B) samples in seconds."""
    times = np.asarray(pairs, dtype=np.float64)
    ratios = times[:, 1] / times[:, 0]
    generator = np.random.default_rng(seed)
    picks = generator.integers(0, len(ratios), (RESAMPLES, len(ratios)))
    medians = np.median(ratios[picks], axis=1)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(medians, [tail, 1 - tail])
    a, b = np.median(times, axis=0)
    return Speedup(float(a), float(b), float(np.median(ratios)), float(low), float(high), len(pairs))
