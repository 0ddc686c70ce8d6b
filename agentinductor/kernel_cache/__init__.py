"""The kernel cache: definitions, solutions, traces, plans and requests as verified files.

Reading order: layout (names), ownership (whom we believe), strict_json (bytes to values), entry (one directory: publish,
read, verify), records (files to records), store (KernelCache), tiers (user, shared, shipped), resolver (definition ->
Hit or Miss), submission (a solution handed in), publish (winners to a library), maintenance (prune, verify, sweep).
docs/cache-format.md describes the files.

Imports schema, accept, errors, settings and observability only; nothing here imports torch.
"""
