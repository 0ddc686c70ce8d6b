"""Starts interpret_triton.py, which must be a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).with_name("interpret_triton.py")


def problems(cases: list[dict]) -> list[str]:
    """"" or what went wrong, for each case. Shorter where the process stopped early, with its last words at the end."""
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, SCRIPT, json.dumps(cases)], capture_output=True, text=True, env=environment)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return lines if len(lines) == len(cases) else [*lines, done.stderr[-2000:]]
