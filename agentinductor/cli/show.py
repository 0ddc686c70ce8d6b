"""kernels show: everything about a kernel, for people; and its stand-alone script."""

import argparse

from ..codegen import reference
from ..errors import AgentInductorError
from ..kernel_cache.tiers import Tiers, open_tiers
from ..schema import Definition, Solution, Trace, Workload
from ..schema.digest import short
from . import display
from .kernels import find, tier_of
from .main import OK
from .script import script

LANGUAGE = {"triton": "python", "cuda": "cuda", "cpp": "cpp"}
TRACE_COLUMNS = ("sizes", "device", "torch", "error", "Inductor's error", "us", "Inductor us", "ratio", "verdict")


def show(args: argparse.Namespace) -> int:
    tiers = open_tiers(display.settings_of(args))
    definition, solutions = find(tiers, args.digest)
    if args.script:
        return _write_script(args, tiers, definition, solutions)
    if args.json:
        display.print_json({
            "definition": definition.to_json(), "digest": definition.digest, "reference": reference.source(definition),
            "solutions": [{"digest": s.digest, "solution": s.to_json(), "traces": [t.to_json() for t in tiers.traces(s.digest)]}
                          for s in solutions]})
        return OK
    display.heading(f"{definition.name}  definition {definition.digest}")
    display.code(reference.source(definition))
    for solution in solutions:
        _show_solution(tiers, solution)
    if not solutions:
        print("\nno kernel for it")
    return OK


def _show_solution(tiers: Tiers, solution: Solution) -> None:
    display.heading(f"kernel {solution.digest}  ({solution.language}, {tier_of(tiers, solution)})")
    denied = tiers.quarantined(solution.digest)
    if denied:
        print(f"QUARANTINED: {denied}")
    for source in solution.sources:
        print(f"--- {source.path}")
        display.code(source.content, LANGUAGE[solution.language])
    for launch in solution.launches:
        print(f"launch {launch.kernel}: grid ({', '.join(launch.grid)}), block {launch.block}, shared {launch.shared} bytes, "
              f"args {', '.join(launch.args)}")
    guards = [f"{g.kind} {g.name} [{g.low}, {g.high}]" if g.kind in ("range", "capability") else f"{g.kind} {g.name} {g.low}"
              for g in solution.guards]
    print(f"guards: {'; '.join(guards) or 'none'}")
    facts = {key: value for key, value in solution.provenance.to_json().items() if value}
    print("provenance: " + ", ".join(f"{key} {value}" for key, value in facts.items()))
    rows = [trace_row(trace) for trace in tiers.traces(solution.digest)]
    if rows:
        display.table(TRACE_COLUMNS, rows)
    else:
        print(f"no trace: `agentinductor kernels verify {short(solution.digest)}` makes one")


def trace_row(trace: Trace) -> list[str]:
    correctness, performance = trace.correctness, trace.performance
    return [
        trace.workload.bucket(), trace.environment.device_name, trace.environment.torch,
        f"{correctness.max_rel_error:.2e}" if correctness else "-",
        f"{correctness.baseline_rel_error:.2e}" if correctness else "-",
        f"{performance.latency_us:.2f}" if performance else "-", f"{performance.baseline_us:.2f}" if performance else "-",
        f"{performance.ratio:.3f} [{performance.ratio_low:.3f}, {performance.ratio_high:.3f}]" if performance else "-",
        f"{trace.reason.value}: {trace.detail}" if trace.reason else "correct",
    ]


def _write_script(args: argparse.Namespace, tiers: Tiers, definition: Definition, solutions: list[Solution]) -> int:
    if len(solutions) != 1:
        names = ", ".join(short(s.digest) for s in solutions) or "none"
        raise AgentInductorError(f"--script takes one kernel; {definition.name} has: {names}")
    solution = solutions[0]
    known = [trace.workload for trace in tiers.traces(solution.digest)]
    known += [request.workload for request in tiers.requests() if request.definition == definition.digest]
    workload = known[-1] if known else Workload.of({axis.name: 1024 for axis in definition.var_axes})
    display.write_text(args.script, script(definition, solution, workload))
    print(f"wrote {args.script}; run: python {args.script}")
    return OK
