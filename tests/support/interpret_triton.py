"""Runs Triton kernels in Triton's interpreter and compares them with the oracle: `python interpret_triton.py CASES`.

CASES is JSON, a list of {"example", "arguments", "schedule"}, which the template emits, and of {"shipped", "sizes"}, a
solution of the library. Prints one JSON line a case: "" or what went wrong. It is a process of its own because
TRITON_INTERPRET must be set before triton is first imported; interpreter.py starts it.
"""

import importlib.util
import json
import os
import sys
import tempfile
import warnings
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"
sys.path.insert(0, str(Path(__file__).parent))

import definitions as examples  # noqa: E402
import torch  # noqa: E402

from agentinductor.codegen.reference import evaluate  # noqa: E402
from agentinductor.codegen.schedule import Schedule  # noqa: E402
from agentinductor.codegen.triton_template import emit  # noqa: E402
from agentinductor.kernel_cache.tiers import library  # noqa: E402


def load(solution, directory: str):
    path = Path(directory) / f"kernel_{solution.digest}.py"
    path.write_text(solution.source("kernel.py"))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def problem(definition, solution, sizes: dict, directory: str) -> str:
    module = load(solution, directory)
    for special in (False, True):
        inputs = examples.make_inputs(definition, sizes, special=special)
        outputs = examples.make_outputs(definition, sizes)
        module.run(*inputs, *outputs)
        for spec, got, want in zip(definition.outputs, outputs, evaluate(definition, inputs), strict=True):
            tolerance = 2e-2 if got.dtype == torch.bfloat16 else 1e-5
            try:
                torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance, equal_nan=True)
            except AssertionError as error:
                return f"{spec.name}, special={special}: {error}"
    return ""


def resolve(case: dict):
    if "shipped" in case:
        solution = library().solution(case["shipped"])
        return library().definition(solution.definition), solution, case["sizes"]
    definition = examples.ALL[case["example"]](**case["arguments"])
    return definition, emit(definition, Schedule.from_json(case["schedule"])), examples.SIZES[case["example"]]


def main() -> None:
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as directory:
        for case in json.loads(sys.argv[1]):
            print(json.dumps(problem(*resolve(case), directory)), flush=True)


if __name__ == "__main__":
    main()
