"""Is a solution correct? The candidate runs in a child process that knows no answer; the parent judges raw bytes.

Reading order: static_checks (sources, before anything runs), sandbox and isolation (the child: its limits, its protocol),
worker (what the child does), inputs (secret cases), integrity (poison, canaries, replays, as programs of steps),
tolerance and compare (float64 truth, error bounds, special values), validator (all of it, in order).

Imports schema, codegen, device and accept; bench and the cache are not its business.
"""
