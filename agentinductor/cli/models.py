"""explain, prewarm, bench: a TARGET, through api.py, to a report."""

import argparse
import sys
from typing import Any

import torch

from .. import api, targets
from ..errors import AgentInductorError, TargetError
from . import display
from .main import NO, OK


def explain(args: argparse.Namespace) -> int:
    target = _load(args)
    with display.progress(f"compiling {target.name}"), torch.no_grad():
        report = api.explain(target.model, *target.args, mode=_mode(args), options=display.options_of(args), reset=target.reset,
                             **target.kwargs)
    return _print(args, report)


def prewarm(args: argparse.Namespace) -> int:
    if args.budget < 0:
        raise AgentInductorError(f"--budget {args.budget:g}: give a number of seconds, 0 or more")
    target = _load(args)
    with display.progress(f"prewarming {target.name}") as say, torch.no_grad():
        report = api.prewarm(target.model, *target.args, budget=args.budget, progress=say, mode=_mode(args),
                             options=display.options_of(args), reset=target.reset, **target.kwargs)
    return _print(args, report)


def bench(args: argparse.Namespace) -> int:
    target = _load(args)
    with display.progress(f"timing {target.name}") as say, torch.no_grad():
        report = api.benchmark(target.model, *target.args, mode=args.mode, options=display.options_of(args), progress=say,
                           reset=target.reset, **target.kwargs)
    _print(args, report)
    return OK if report.accepted or not args.check else NO


def _load(args: argparse.Namespace) -> targets.Target:
    """The TARGET; modules of the current directory count, as they do for `python -m`."""
    if "" not in sys.path:
        sys.path.insert(0, "")
    display.options_of(args)  # a wrong option is reported before a model is loaded
    display.settings_of(args)
    try:
        return targets.load(args.target, task=args.task, batch=args.batch, length=args.length, device=args.device,
                            dtype=args.dtype, seed=args.seed)
    except torch.OutOfMemoryError as error:
        raise TargetError(f"target {args.target!r} does not fit on the device: {error}; "
                          "try a smaller --batch or --length") from None


def _mode(args: argparse.Namespace) -> str | None:
    return None if args.mode == "default" else args.mode


def _print(args: argparse.Namespace, report: Any) -> int:
    if args.out:
        display.write_json(args.out, report.to_json())
    if args.json:
        display.print_json(report.to_json())
    else:
        display.console().print(str(report), markup=False, soft_wrap=True)
    return OK
