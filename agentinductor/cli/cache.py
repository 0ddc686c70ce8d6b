"""cache info, verify, prune."""

import argparse

from ..kernel_cache import maintenance
from ..kernel_cache.store import KernelCache
from ..kernel_cache.tiers import open_tiers
from . import display
from .main import NO, OK


def info(args: argparse.Namespace) -> int:
    tiers = open_tiers(display.settings_of(args))
    rows = [_facts("user", tiers.user)]
    rows += [_facts("shared" if cache.check_owner else "shipped", cache) for cache in tiers.read_only]
    if args.json:
        display.print_json(rows)
        return OK
    columns = ("tier", "root", "size", "definitions", "solutions", "plans", "requests", "quarantined", "believed")
    display.table(columns, [[str(row[column]) if column != "size" else display.human_size(row["size"]) for column in columns]
                            for row in rows])
    return OK


def _facts(tier: str, cache: KernelCache) -> dict:
    definitions = cache.definitions()
    return {"tier": tier, "root": str(cache.root), "size": maintenance.size(cache), "definitions": len(definitions),
            "solutions": sum(len(cache.solutions(d.digest)) for d in definitions), "plans": len(cache.plans()),
            "requests": len(cache.requests()), "quarantined": len(cache.quarantines()), "believed": cache.usable() or "yes"}


def verify(args: argparse.Namespace) -> int:
    tiers = open_tiers(display.settings_of(args))
    reports = {str(cache.root): maintenance.verify(cache) for cache in tiers.caches}
    sound = all(report.sound for report in reports.values())
    if args.json:
        display.print_json({"sound": sound, "roots": {root: vars(report) for root, report in reports.items()}})
        return OK if sound else NO
    for root, report in reports.items():
        print(f"{root}: {report.entries} entries, {display.human_size(report.size)}, {'sound' if report.sound else 'NOT SOUND'}")
        for what, found in (("refused", [report.refused] if report.refused else []), ("damaged", report.damaged),
                            ("unreadable", report.unreadable), ("set aside earlier", report.set_aside),
                            ("other layout, left alone", report.other_layouts)):
            for item in found:
                print(f"  {what}: {item}")
    if not sound:
        print("Damaged entries are not used; the next read moves them to quarantine/damaged, `cache prune` removes them.")
    return OK if sound else NO


def prune(args: argparse.Namespace) -> int:
    limit = display.parse_size(args.max_size)
    cache = open_tiers(display.settings_of(args)).user
    dropped = maintenance.prune(cache, limit)
    left = maintenance.size(cache)
    if args.json:
        display.print_json({"dropped_bytes": dropped, "left_bytes": left})
    else:
        print(f"dropped {display.human_size(dropped)}, {display.human_size(left)} left in {cache.root}")
    return OK
