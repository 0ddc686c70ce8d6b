"""Whole models: prewarmed, gated, and timed four ways beside torch.compile in the same run.

    python benchmarks/models.py --only bert-large vit-l --budget 120 --out benchmarks/results/models.json

Each row is one model at one size: the regions it has, the kernels it runs on, and for each torch.compile mode the interleaved
timings with confidence intervals, peak memory, and the error against a float32 or float64 truth. The last ratio is the best
mode of torch.compile over the best mode with kernels.
"""

import argparse
import json
import time
import traceback
from pathlib import Path

import torch

import agentinductor
from agentinductor import device, targets

SUITE = {  # name -> (target, task, batch, length)
    "llama-1b decode b1": ("hf:llama-1b", "decode", 1, 2048),
    "llama-1b decode b16": ("hf:llama-1b", "decode", 16, 2048),
    "qwen3-0.6b decode b1": ("hf:qwen3-0.6b", "decode", 1, 2048),
    "qwen3-0.6b prefill 4x1024": ("hf:qwen3-0.6b", "prefill", 4, 1024),
    "gemma2-2b-8l prefill 2x1024": ("hf:gemma2-2b-8l", "prefill", 2, 1024),
    "bert-large 16x384": ("hf:bert-large", "encode", 16, 384),
    "gpt2-medium 8x1024": ("hf:gpt2-medium", "prefill", 8, 1024),
    "whisper-small encoder b8": ("hf:whisper-small-encoder", "encode", 8, 1500),
    "vit-l/16 b64": ("timm:vit_large_patch16_224", None, 64, 0),
    "convnext-b b64": ("timm:convnext_base", None, 64, 0),
    "swin-b b32": ("timm:swin_base_patch4_window7_224", None, 32, 0),
}


def measure(name: str, args) -> dict:
    target, task, batch, length = SUITE[name]
    dtype = "bfloat16" if torch.cuda.is_available() else "float32"
    made = targets.load(target, task=task, batch=batch, length=length or 128, dtype=dtype)
    begun = time.monotonic()
    with torch.no_grad():
        warmed = agentinductor.prewarm(made.model, *made.args, budget=args.budget, reset=made.reset,
                                       progress=lambda text: print("   ", text, flush=True), **made.kwargs)
        print(warmed, flush=True)
        explained = agentinductor.explain(made.model, *made.args, reset=made.reset, **made.kwargs)
        timed = agentinductor.benchmark(made.model, *made.args, modes=args.modes, reset=made.reset, budget_s=args.seconds, **made.kwargs)
    print(timed, flush=True)
    return {"model": name, "dtype": dtype, "speedup": timed.speedup, "prewarm": warmed.to_json(), "regions": explained.to_json(),
            "bench": timed.to_json(), "seconds": time.monotonic() - begun}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=list(SUITE), metavar="NAME", help="beginnings of names")
    parser.add_argument("--modes", nargs="*", default=["default", "reduce-overhead", "max-autotune"])
    parser.add_argument("--budget", type=float, default=300.0, help="seconds of prewarming for each model")
    parser.add_argument("--seconds", type=float, default=10.0, help="of timing for each mode")
    parser.add_argument("--limit", type=float, default=float("inf"), metavar="SECONDS", help="begin no further model after so long")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    rows, begun = [], time.monotonic()
    for name in SUITE:
        if not any(name.startswith(start) for start in args.only) or time.monotonic() - begun > args.limit:
            continue
        print(name, flush=True)
        try:
            rows.append(measure(name, args))
        except Exception as error:  # one model's failure is a row of the report, not the end of it
            traceback.print_exc()
            rows.append({"model": name, "failed": f"{type(error).__name__}: {error}"[:2000]})
        torch._dynamo.reset()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        if args.out:
            args.out.parent.mkdir(parents=True, exist_ok=True)
            where = device.environment("cuda" if torch.cuda.is_available() else "cpu").to_json()
            args.out.write_text(json.dumps({"environment": where, "rows": rows}, indent=1) + "\n")
    for row in rows:
        print(f"{row['model']:30s} {row.get('speedup', 0):.3f}x {row.get('failed', '')[:120]}")


if __name__ == "__main__":
    main()
