"""kernels verify and submit: a solution is judged here, in isolation, and its trace is stored."""

import argparse
import json
from pathlib import Path

from .. import accept
from ..errors import AgentInductorError
from ..evaluate import evaluate
from ..kernel_cache import records
from ..kernel_cache.tiers import Tiers, open_tiers
from ..schema import Accepted, Definition, Rejected, Solution, Trace, Workload
from ..schema.digest import short
from . import display
from .kernels import find, requested
from .main import NO, OK
from .show import TRACE_COLUMNS, trace_row


def verify(args: argparse.Namespace) -> int:
    tiers = open_tiers(display.settings_of(args))
    chosen = [(definition, solution) for prefix in args.digest for definition, solutions in [find(tiers, prefix)]
              for solution in solutions]
    results = []
    for definition, solution in chosen:
        seen = {trace.workload.digest: trace.workload for trace in tiers.traces(solution.digest)}
        seen |= {workload.digest: workload for workload in requested(tiers, definition)}
        if not seen:
            raise AgentInductorError(f"no sizes are known for {definition.name}: compile a model that has it, or prewarm one")
        results += _judge(args, tiers, definition, solution, list(seen.values()), bench=not args.no_bench)
    return _report(args, results)


def submit(args: argparse.Namespace) -> int:
    tiers = open_tiers(display.settings_of(args))
    solution = _read_solution(Path(args.directory))
    definition = tiers.definition(solution.definition)
    if definition is None:
        raise AgentInductorError(f"{args.directory}: definition {short(solution.definition)} is not in the cache; "
                                 "`agentinductor requests list` shows what is asked for")
    workloads = requested(tiers, definition)
    if not workloads:
        known = {t.workload.digest: t.workload for s in tiers.solutions(definition.digest) for t in tiers.traces(s.digest)}
        workloads = list(known.values())
    if not workloads:
        raise AgentInductorError(f"no sizes are known for {definition.name}: compile a model that has it first")
    tiers.user.put_definition(definition)
    tiers.user.put_solution(solution)
    return _report(args, _judge(args, tiers, definition, solution, workloads, bench=True))


def _read_solution(directory: Path) -> Solution:
    """Raises AgentInductorError (or SchemaError, which names the field)."""
    try:
        manifest = (directory / records.SOLUTION).read_bytes()
        names = [item["path"] for item in json.loads(manifest)["sources"]]
        files = {Path(name).name: (directory / Path(name).name).read_bytes() for name in names}
    except OSError as error:
        raise AgentInductorError(f"cannot read {error.filename}: {error.strerror}; a submission is a directory with "
                                 f"{records.SOLUTION} and the sources it names (`requests show --prepare` writes one)") from None
    except (ValueError, KeyError, TypeError) as error:
        raise AgentInductorError(f"{directory / records.SOLUTION} is not what a submission needs: {error!r}") from None
    return records.solution_from({records.SOLUTION: manifest, **files})


def _judge(args: argparse.Namespace, tiers: Tiers, definition: Definition, solution: Solution, workloads: list[Workload],
           bench: bool) -> list[tuple[Solution, Trace]]:
    """Evaluate in isolation and store each trace."""
    made = []
    with display.progress(f"judging {short(solution.digest)}") as say:
        for index, workload in enumerate(workloads):
            say(f"judging {short(solution.digest)} on {workload.bucket()} ({index + 1} of {len(workloads)})")
            trace = evaluate(definition, solution, workload, bench=bench)
            tiers.user.put_trace(trace)
            made.append((solution, trace))
    return made


def _report(args: argparse.Namespace, results: list[tuple[Solution, Trace]]) -> int:
    rejected = [trace for _, trace in results if trace.reason is not None]
    if args.json:
        display.print_json([{**trace.to_json(), "decision": _decision(accept.decide([trace]))} for _, trace in results])
        return NO if rejected else OK
    rows = [[short(solution.digest), *trace_row(trace), _decision(accept.decide([trace]))] for solution, trace in results]
    display.table(("kernel", *TRACE_COLUMNS, "decision"), rows)
    return NO if rejected else OK


def _decision(decision: Accepted | Rejected) -> str:
    if isinstance(decision, Accepted):
        return f"accepted, {decision.ratio:.3f}x"
    return f"rejected: {decision.reason.value} {decision.detail}".rstrip()
