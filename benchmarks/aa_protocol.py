"""Does the timer fool itself? Times one kernel against itself, many times over.

    python benchmarks/aa_protocol.py [--runs 200] [--seconds 0.3] [--rows 4096] [--cols 4096] [--json FILE]

The median ratio must lie within 0.99 and 1.01, and fewer than 1% of the runs may look like a win under accept.POLICY.
Exits with status 1 otherwise.
"""

import argparse
import json
import sys

import numpy as np
import torch

from agentinductor import accept, device
from agentinductor.bench import baseline, speedup, timing
from agentinductor.codegen import reference
from agentinductor.schema import Axis, Definition, Node, TensorSpec, Workload


def subject(cols: int) -> Definition:
    """silu(x) over rows of `cols` elements."""
    axes = (Axis("rows"), Axis("cols", cols))
    shape = ("rows", "cols")
    body = (Node("t0", "cast", ("x0",), "float32", shape), Node("t1", "sigmoid", ("t0",), "float32", shape),
            Node("t2", "mul", ("t0", "t1"), "float32", shape), Node("t3", "cast", ("t2",), "bfloat16", shape))
    return Definition(axes, (TensorSpec("x0", shape, "bfloat16"),), body, (TensorSpec("y0", shape, "bfloat16"),), ("t3",))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--cols", type=int, default=4096)
    parser.add_argument("--json", metavar="FILE")
    given = parser.parse_args()
    where = torch.device("cuda" if device.has_cuda() else "cpu")
    definition, workload = subject(given.cols), Workload.of({"rows": given.rows})
    sets = timing.buffer_sets(definition, workload, where, 0)
    call = baseline.compiled(definition, sets[0], "default")
    print(reference.source(definition))
    samplers = [timing.sampler(call, sets, where) for _ in range(2)]
    found = [speedup.interleaved(*samplers, given.seconds, seed) for seed in range(given.runs)]
    ratios = np.array([f.ratio for f in found])
    wins = sum(f.ratio >= accept.POLICY.min_ratio and f.low > accept.POLICY.min_ratio_low for f in found)
    latency = np.median([f.a_s for f in found]) * 1e6
    print(f"{given.runs} A/A runs on {device.environment(where.type).device_name}: {latency:.2f} us a call")
    low, middle, high = np.quantile(ratios, [0.01, 0.5, 0.99])
    print(f"ratio: median {middle:.4f}, 1% {low:.4f}, 99% {high:.4f}; false wins {wins}")
    if given.json:
        with open(given.json, "w") as file:
            json.dump({"environment": device.environment(where.type).to_json(), "runs": given.runs, "latency_us": latency, "median": middle,
                       "quantile_01": low, "quantile_99": high, "false_wins": wins, "ratios": ratios.tolist()}, file, indent=1)
    return 0 if 0.99 <= np.median(ratios) <= 1.01 and wins < max(0.01 * given.runs, 1) else 1


if __name__ == "__main__":
    sys.exit(main())
