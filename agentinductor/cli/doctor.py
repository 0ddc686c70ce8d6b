"""doctor: what this machine has and lacks, and what to install."""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import import_module, metadata

import torch

from .. import device
from ..errors import ToolchainError
from ..kernel_cache import maintenance
from ..kernel_cache.tiers import open_tiers
from . import display
from .main import NO, OK


@dataclass(frozen=True)
class Check:
    """One line. `state`: "ok", "absent" (something optional) or "broken" (the backend cannot do its work)."""

    name: str
    state: str
    detail: str


def run(args: argparse.Namespace) -> int:
    checks = list(_checks(args))
    broken = any(check.state == "broken" for check in checks)
    if args.json:
        display.print_json([asdict(check) for check in checks])
    else:
        colours = {"ok": "green", "absent": "yellow", "broken": "red"}
        display.table(("", "", ""), [[c.name, f"[{colours[c.state]}]{c.state}[/]", c.detail] for c in checks])
    return NO if broken else OK


def _checks(args: argparse.Namespace) -> Iterator[Check]:
    yield Check("python", "ok", sys.version.split()[0])
    yield Check("torch", "ok", torch.__version__)
    yield _backend()
    yield _gpu(args.bandwidth)
    yield _package("triton", "Triton kernels", "pip install triton")
    yield _package("cuda.core", "CUDA C++ kernels", "pip install 'cuda-python>=13'")
    compiler = device.compiler()
    yield Check("C++ compiler", "ok" if compiler else "absent",
                f"{device.compiler_version()} at {compiler}" if compiler else "C++ kernels need g++ or clang++ on PATH")
    if args.bandwidth:
        yield Check("cpu copy", "ok", f"{device.copy_bandwidth('cpu') / 1e9:,.1f} GB/s")
    yield from _caches(args)


def _backend() -> Check:
    found = [point for point in metadata.entry_points(group="torch_dynamo_backends") if point.name == "agentinductor"]
    if found:
        return Check("backend", "ok", 'torch.compile(model, backend="agentinductor")')
    return Check("backend", "broken", "not registered as a torch_dynamo_backends entry point: install the package with pip")


def _gpu(bandwidth: bool) -> Check:
    if not torch.cuda.is_available():
        return Check("NVIDIA GPU", "absent", "torch sees none: only C++ kernels run here")
    facts = device.environment("cuda")
    speed = f", copies {device.copy_bandwidth('cuda') / 1e12:.2f} TB/s" if bandwidth else ""
    return Check("NVIDIA GPU", "ok", f"{facts.device_name}, capability {facts.capability}, driver {facts.driver}{speed}")


def _package(module: str, purpose: str, install: str) -> Check:
    try:
        import_module(module)
        version = metadata.version({"cuda.core": "cuda-core"}.get(module, module))
    except (ImportError, metadata.PackageNotFoundError, ToolchainError) as error:
        return Check(module, "absent", f"{purpose} need it ({error}): {install}")
    return Check(module, "ok", version)


def _caches(args: argparse.Namespace) -> Iterator[Check]:
    tiers = open_tiers(display.settings_of(args))
    for cache in tiers.caches:
        name = "cache" if cache is tiers.user else "shared cache" if cache.check_owner else "shipped kernels"
        refusal = cache.usable()
        if refusal:
            yield Check(name, "broken" if cache is tiers.user else "absent", f"{cache.root} is not used: {refusal}")
            continue
        report = maintenance.verify(cache)
        state = "ok" if report.sound else "broken"
        detail = "" if report.sound else f", {len(report.damaged) + len(report.unreadable)} damaged: `agentinductor cache verify`"
        yield Check(name, state, f"{cache.root}: {report.entries} entries, {display.human_size(report.size)}{detail}")
