"""Runs emitted Triton kernels in Triton's interpreter and compares them with the oracle: `python interpret_triton.py CASES`.

CASES is JSON: [[definition, {arguments}, schedule], ...]. Prints one JSON line a case: "" or what went wrong. It is a
process of its own because TRITON_INTERPRET must be set before triton is first imported.
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


def load(solution, directory: str):
    path = Path(directory) / f"kernel_{solution.digest}.py"
    path.write_text(solution.source("kernel.py"))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def problem(name: str, arguments: dict, schedule: Schedule, directory: str) -> str:
    definition = examples.ALL[name](**arguments)
    module = load(emit(definition, schedule), directory)
    for special in (False, True):
        inputs = examples.make_inputs(definition, examples.SIZES[name], special=special)
        outputs = examples.make_outputs(definition, examples.SIZES[name])
        module.run(*inputs, *outputs)
        for spec, got, want in zip(definition.outputs, outputs, evaluate(definition, inputs), strict=True):
            tolerance = 2e-2 if got.dtype == torch.bfloat16 else 1e-5
            try:
                torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance, equal_nan=True)
            except AssertionError as error:
                return f"{spec.name}, special={special}: {error}"
    return ""


def main() -> None:
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as directory:
        for name, arguments, schedule in json.loads(sys.argv[1]):
            print(json.dumps(problem(name, arguments, Schedule.from_json(schedule), directory)), flush=True)


if __name__ == "__main__":
    main()
