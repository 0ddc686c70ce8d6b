"""kernels verify and submit: a solution is judged here, in isolation, and stored with its traces."""

import argparse
from pathlib import Path

from ..kernel_cache.submission import read_submission
from ..kernel_cache.tiers import open_tiers
from ..schema import Accepted, Rejected, Solution, Trace
from ..schema.digest import short
from ..synthesize import Event
from ..synthesize import submit as judge
from . import display
from .kernels import find
from .main import NO, OK
from .show import TRACE_COLUMNS, trace_row


def verify(args: argparse.Namespace) -> int:
    tiers = open_tiers(display.settings_of(args))
    return _judge(args, [solution for prefix in args.digest for solution in find(tiers, prefix)[1]])


def submit(args: argparse.Namespace) -> int:
    return _judge(args, [read_submission(Path(args.directory))])


def _judge(args: argparse.Namespace, solutions: list[Solution]) -> int:
    """Exit code NO where a decision on any workload is a rejection."""
    settings = display.settings_of(args)
    tiers = open_tiers(settings)
    results: list[tuple[Solution, Trace, Accepted | Rejected]] = []
    for solution in solutions:
        with display.progress(f"judging {short(solution.digest)}") as say:
            def tell(event: Event, say=say) -> None:
                say(f"{event.definition.name} {event.workload.bucket()}: {event.kind} {event.detail}".rstrip())

            results += [(solution, *result) for result in judge(solution, tiers, settings, progress=tell)]
    if args.json:
        display.print_json([{**trace.to_json(), "decision": _words(decision)} for _, trace, decision in results])
    else:
        rows = [[short(solution.digest), *trace_row(trace), _words(decision)] for solution, trace, decision in results]
        display.table(("kernel", *TRACE_COLUMNS, "decision"), rows)
    return NO if any(isinstance(decision, Rejected) for _, _, decision in results) else OK


def _words(decision: Accepted | Rejected) -> str:
    if isinstance(decision, Accepted):
        return f"accepted, {decision.ratio:.3f}x"
    return f"rejected: {decision.reason.value} {decision.detail}".rstrip()
