"""requests list, show: what compiles asked for, in a form that an author can work from."""

import argparse
import json
from pathlib import Path

from ..codegen import reference
from ..errors import AgentInductorError
from ..kernel_cache.tiers import open_tiers
from ..schema import Request
from ..schema.digest import short
from . import display
from .main import OK

README = """\
Implement reference.py (one call of `run`) as a kernel for the sizes in workloads.json.

definition.json   the contract: axes, inputs, outputs, body
reference.py      the same contract as PyTorch; the kernel's truth is this program in float64
workloads.json    sizes of the var axes that compiles met; the kernel must be right for all sizes that its guards admit
solution.json     fill in: language, entry point, the names of your source files, guards

Destination passing: the inputs, then the outputs, which are allocated already. docs/architecture.md describes the calling
convention of each language. Then: agentinductor submit .
"""


def list_(args: argparse.Namespace) -> int:
    tiers = open_tiers(display.settings_of(args))
    requests = tiers.requests()
    if args.json:
        display.print_json([request.to_json() for request in requests])
        return OK
    if not requests:
        print("no requests; torch.compile(model, backend=\"agentinductor\") leaves one for each region that no kernel serves")
        return OK
    rows = []
    for request in sorted(requests, key=lambda r: -r.occurrences):
        definition = tiers.definition(request.definition)
        rows.append([short(request.definition), definition.kind if definition else "?", request.workload.bucket(),
                     request.device_type, str(request.occurrences), request.origin])
    display.table(("definition", "kind", "sizes", "device", "occurrences", "model"), rows)
    return OK


def show(args: argparse.Namespace) -> int:
    tiers = open_tiers(display.settings_of(args))
    found = [request for request in tiers.requests() if request.definition.startswith(args.digest)]
    digests = {request.definition for request in found}
    if len(digests) != 1:
        problem = "is no request's" if not digests else f"stands for {len(digests)} definitions"
        raise AgentInductorError(f"{args.digest!r} {problem}; `agentinductor requests list` shows them")
    definition = tiers.definition(digests.pop())
    if definition is None:
        raise AgentInductorError(f"the definition of request {args.digest} is missing from the cache; compile the model again")
    if args.prepare:
        _prepare(Path(args.prepare), definition, found)
        print(f"wrote {args.prepare}; fill it in, then: agentinductor submit {args.prepare}")
        return OK
    if args.json:
        display.print_json({"definition": definition.to_json(), "digest": definition.digest,
                            "requests": [request.to_json() for request in found], "reference": reference.source(definition)})
        return OK
    display.heading(f"{definition.name}  {definition.digest}")
    display.code(reference.source(definition))
    for request in found:
        print(f"# {request.device_type}: {dict(request.workload.sizes)} {dict(request.workload.strides) or ''}".rstrip())
    return OK


def _prepare(directory: Path, definition, requests: list[Request]) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise AgentInductorError(f"cannot make {directory}: {error.strerror}") from None
    cuda = any(request.device_type == "cuda" for request in requests)
    name = "kernel.py" if cuda else "kernel.cpp"
    solution = {
        "definition": definition.digest, "language": "triton" if cuda else "cpp",
        "entry_point": f"{name}::run", "sources": [{"path": name}], "guards": [], "launches": [], "compile_options": [],
        "provenance": {"agent": "human", "author": ""},
    }
    files = {
        "README": README, "reference.py": reference.source(definition),
        "definition.json": json.dumps(definition.to_json(), indent=1) + "\n",
        "workloads.json": json.dumps([r.to_json() for r in requests], indent=1) + "\n",
        "solution.json": json.dumps(solution, indent=1) + "\n",
    }
    for file, text in files.items():
        if not (directory / file).exists():  # never over an author's work
            display.write_text(directory / file, text)
