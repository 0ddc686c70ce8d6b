"""Region microbenchmarks: kernels against Inductor's default and max-autotune, and against the device's copy ceiling.

    python benchmarks/regions.py --search 40 --out benchmarks/results/regions.json

For each op and shape: the definition that the backend makes of it, the kernel that the cache or the shipped library holds for
it on this device (with --search: made and proven first, within so many seconds each), and interleaved timings with a cold
L2, in CUDA graphs over rotated buffers. Where no kernel is accepted the region is Inductor's, so its ratio is 1.
"""

import argparse
import json
import math
import tempfile
import time
from pathlib import Path

import torch
from torch.nn import functional as F

from agentinductor import device, settings, synthesize
from agentinductor.bench import baseline, speedup, timing
from agentinductor.codegen.builder import build
from agentinductor.kernel_cache.resolver import Hit, Resolver
from agentinductor.kernel_cache.tiers import open_tiers
from agentinductor.workflows.harvest import harvest


def rms_norm(x, w):
    h = x.float()
    return w * (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def add_rms_norm(x, y, w):
    h = x + y
    return rms_norm(h, w), h


OPS = {  # name -> (function, its arguments: "x" a full tensor, "w" one of the last axis)
    "gelu_bias_residual": (lambda x, b, y: F.gelu(x + b) + y, "xwx"),
    "rms_norm": (rms_norm, "xw"),
    "add_rms_norm": (add_rms_norm, "xxw"),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (x.shape[-1],), w, b), "xww"),
    "softmax": (lambda x: F.softmax(x, -1), "x"),
    "swiglu": (lambda a, b: F.silu(a) * b, "xx"),
}
SHAPES = ((16384, 4096), (2048, 4096), (16384, 8192), (4099, 5120), (1, 4096))


def measure(item, tiers, chosen, modes, seconds: float) -> dict:
    """One row: times in microseconds, ratios against each mode, fraction of the copy ceiling."""
    definition, workload = item.definition, item.workload
    where = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    found = Resolver(tiers, device.environment(where.type), chosen).resolve(definition, workload)
    sets = timing.buffer_sets(definition, workload, where, 0)
    moved = definition.bytes_moved(workload.all_sizes(definition))
    row = {"definition": definition.digest, "name": definition.name, "bytes": moved, "modes": {}}
    samplers = {mode: timing.sampler(baseline.compiled(definition, sets[0], mode), sets, where) for mode in modes}
    if isinstance(found, Hit):
        row.update(kernel=found.solution.digest, language=found.solution.language, schedule=found.solution.provenance.schedule)
        make = timing.output_maker(definition, workload, where)
        runnable = build(definition, found.solution, tempfile.gettempdir())
        kernel = timing.sampler(lambda inputs: runnable(inputs, make()), sets, where)
    else:
        row.update(kernel="", why=f"{found.reason.value}: {found.detail}")
        kernel = None
    for mode, sampler in samplers.items():
        pair = speedup.interleaved(kernel or sampler, sampler, seconds)
        same = kernel is None
        row["modes"][mode] = {"inductor_us": pair.b_s * 1e6, "kernel_us": pair.a_s * 1e6, "ratio": 1.0 if same else pair.ratio,
                              "low": 1.0 if same else pair.low, "high": 1.0 if same else pair.high}
    best = min(mode["kernel_us"] for mode in row["modes"].values())
    row["fraction_of_copy"] = moved / (best * 1e-6) / device.copy_bandwidth(where)
    return row


def geometric_mean(values) -> float:
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--search", type=float, default=0.0, metavar="SECONDS", help="make missing kernels, so long for each")
    parser.add_argument("--limit", type=float, default=math.inf, metavar="SECONDS", help="begin no further row after so long")
    parser.add_argument("--seconds", type=float, default=0.5, help="of interleaved timing for each mode")
    parser.add_argument("--ops", nargs="*", default=list(OPS))
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    where = "cuda" if torch.cuda.is_available() else "cpu"
    modes = baseline.MODES if where == "cuda" else ("default",)
    chosen = settings.load()
    tiers = open_tiers(chosen)
    begun, rows = time.monotonic(), []
    for shape in SHAPES:
        for op in args.ops:
            if time.monotonic() - begun > args.limit:
                break
            function, kinds = OPS[op]
            tensors = [torch.randn(shape if kind == "x" else shape[1:], device=where).to(getattr(torch, args.dtype)) for kind in kinds]
            item = next(r for report in harvest(function, tensors, {}, None, None) for r in report.regions if r.definition)
            del tensors
            if args.search:
                synthesize.generate(item.definition, item.workload, tiers, chosen, time.monotonic() + args.search)
            row = {"op": op, "shape": shape, **measure(item, tiers, chosen, modes, args.seconds)}
            rows.append(row)
            ratios = "  ".join(f"{mode} {m['inductor_us']:8.1f} us {m['ratio']:.3f}x" for mode, m in row["modes"].items())
            decision = row.get("schedule") or row.get("why")
            print(f"{op:20s} {str(shape):14s} {ratios}  copy {row['fraction_of_copy']:.2f}  {decision}", flush=True)
    report = {"device": device.environment(where).to_json(), "copy_bandwidth": device.copy_bandwidth(where), "rows": rows,
              "geometric_mean": {mode: geometric_mean(r["modes"][mode]["ratio"] for r in rows) for mode in modes}}
    print("geometric mean", report["geometric_mean"])
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
