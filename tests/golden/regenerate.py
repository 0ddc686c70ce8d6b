"""The intermediate data of docs/tour.md: RMSNorm, taken through every stage.

`python -m tests.golden.regenerate` (or `make golden`) rewrites the files here and the quotations in docs/tour.md;
tests/unit/test_golden.py fails where they are not what the code makes.
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from agentinductor.backend.graph_pass import PassContext, run_pass
from agentinductor.backend.lower import lower
from agentinductor.backend.partition import partition
from agentinductor.codegen import cpp_template, reference, schedule, triton_template
from agentinductor.kernel_cache.resolver import Hit
from agentinductor.schema import Definition, Environment, Solution, Trace, Workload
from tests.support.capture import capture

HERE = Path(__file__).parent
TOUR = HERE.parents[1] / "docs" / "tour.md"
LANGUAGES = {".py": "python", ".json": "json", ".cpp": "cpp", ".txt": "text"}
QUOTATION = re.compile(r"<!-- golden: (\S+) -->\n```\w*\n.*?```\n", re.DOTALL)
ENVIRONMENT = Environment("cpu", "an example", 0, "2.13.0")


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """As transformers writes it."""
    wide = x.to(torch.float32)
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
    return weight * wide.to(x.dtype)


def stages() -> dict[str, str]:
    """File name -> text, in the order of the stages."""
    torch.manual_seed(0)
    x, weight = torch.randn(2, 64, 256, dtype=torch.bfloat16), torch.randn(256, dtype=torch.bfloat16)
    (captured,) = capture(rms_norm, x, weight, dynamic=False)
    graph = captured.graph
    found = {"1_graph.txt": str(graph).strip() + "\n"}
    (region,) = partition(graph)
    found["2_region.txt"] = "".join(f"{node.name}\n" for node in region.nodes)
    lowered = lower(region)
    definition, workload = lowered.definition, lowered.workload
    found["3_definition.json"] = _json(definition.to_json())
    found["4_reference.py"] = reference.source(definition)
    found["5_workload.json"] = _json(workload.to_json())
    solution = _first(definition, workload, "cpp")
    found["6_kernel.cpp"] = solution.source(solution.entry_file)
    found["6_kernel.py"] = _first(definition, workload, "triton").source("kernel.py")
    found["7_solution.json"] = _json({**solution.to_json(), "sources": [{"path": s.path} for s in solution.sources]})
    run_pass(graph, _context(solution, workload))
    found["8_rewritten.txt"] = str(graph).strip() + "\n"
    return found


def _first(definition: Definition, workload: Workload, language: str) -> Solution:
    """The template's kernel with the schedule that the search would try first."""
    space = schedule.space(definition, workload.all_sizes(definition), language)
    return {"cpp": cpp_template, "triton": triton_template}[language].emit(definition, space[0])


def _context(solution: Solution, workload: Workload) -> PassContext:
    trace = Trace(solution.definition, solution.digest, workload, ENVIRONMENT, "1")
    return PassContext(lambda *_: Hit(solution, trace), lambda key: None, lambda device: ENVIRONMENT, "default", strict=True)


def _json(value: dict) -> str:
    """JSON with one line for each record of a list, so that a difference is one line."""
    lines = []
    for key, item in value.items():
        records = isinstance(item, list) and item and all(isinstance(record, dict) for record in item)
        text = "[\n  " + ",\n  ".join(map(json.dumps, item)) + "\n ]" if records else json.dumps(item)
        lines.append(f" {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def quoted(text: str, found: dict[str, str]) -> str:
    """The tour with every quotation brought up to date."""
    def block(match: re.Match) -> str:
        name = match[1]
        return f"<!-- golden: {name} -->\n```{LANGUAGES[Path(name).suffix]}\n{found[name].rstrip()}\n```\n"

    return QUOTATION.sub(block, text)


def main() -> Iterator[Path]:
    found = stages()
    targets = {HERE / name: text for name, text in found.items()}
    if TOUR.exists():
        targets[TOUR] = quoted(TOUR.read_text(), found)
    for path, text in targets.items():
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            yield path


if __name__ == "__main__":
    for changed in main():
        print(f"rewrote {changed.name}", file=sys.stderr)
