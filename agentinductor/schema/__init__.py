"""The records that stages exchange: frozen, checked when made, plain JSON on disk.

Reading order: axes, body, definition, workload, guard, solution, provenance, environment, trace, decision, plan, digest.
Imports nothing but the standard library and errors.py: reading a record needs no torch.
"""

from .axes import Axis, TensorSpec
from .body import Node
from .decision import Accepted, Reason, Rejected
from .definition import Definition
from .environment import Environment
from .guard import Guard
from .plan import Plan, Request
from .provenance import Provenance
from .solution import Launch, Solution, Source
from .trace import Correctness, Performance, Trace
from .workload import Workload

__all__ = [
    "Accepted", "Axis", "Correctness", "Definition", "Environment", "Guard", "Launch", "Node", "Performance", "Plan",
    "Provenance", "Reason", "Rejected", "Request", "Solution", "Source", "TensorSpec", "Trace", "Workload",
]
