"""Warm compile time: torch.compile's own backend against agentinductor, each in fresh processes with warm caches, interleaved.

    python benchmarks/compile_time.py [--runs 7] [--target hf:bert-tiny] [--task encode] [--json FILE]

Also the cost of `import torch` with the package installed, and of `import agentinductor` beyond it.
"""

import argparse
import json
import statistics
import subprocess
import sys

CALL = """
import json, sys, time
import torch
from agentinductor import targets
made = targets.load({target!r}, task={task!r}, batch=2, length=64)
compiled = torch.compile(made.model, backend={backend!r})
with torch.no_grad():
    begun = time.perf_counter()
    compiled(*made.args, **made.kwargs)
print(json.dumps(time.perf_counter() - begun))
"""
IMPORT = """
import json, time
begun = time.perf_counter()
import torch
middle = time.perf_counter()
import agentinductor
print(json.dumps([middle - begun, time.perf_counter() - middle]))
"""


def run(code: str):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--target", default="hf:bert-tiny")
    parser.add_argument("--task", default="encode")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    codes = {name: CALL.format(target=args.target, task=args.task, backend=name) for name in ("inductor", "agentinductor")}
    for code in codes.values():  # cold: fills Inductor's caches
        run(code)
    times: dict[str, list[float]] = {name: [] for name in codes}
    imports = []
    for _ in range(args.runs):
        for name, code in codes.items():
            times[name].append(run(code))
        imports.append(run(IMPORT))
    medians = {name: statistics.median(values) for name, values in times.items()}
    report = {"seconds": times, "median": medians, "ratio": medians["agentinductor"] / medians["inductor"],
              "import_torch_s": statistics.median(t for t, _ in imports),
              "import_agentinductor_s": statistics.median(a for _, a in imports)}
    print(json.dumps({k: v for k, v in report.items() if k != "seconds"}, indent=1))
    if args.json:
        with open(args.json, "w") as file:
            json.dump(report, file, indent=1)


if __name__ == "__main__":
    main()
