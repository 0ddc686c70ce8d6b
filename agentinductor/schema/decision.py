"""Decisions and their reasons: every yes or no in this package carries one Reason."""

from dataclasses import dataclass
from enum import Enum


class Reason(str, Enum):
    """Why a region does not run on a kernel, or why a candidate was rejected."""

    # a region that stays Inductor's
    NO_SOLUTION = "no_solution"
    GUARD_FAILED = "guard_failed"
    NOT_QUALIFIED = "not_qualified"
    SLOWER = "slower"
    DISABLED = "disabled"
    QUARANTINED = "quarantined"
    UNSUPPORTED_OP = "unsupported_op"
    UNSUPPORTED_LAYOUT = "unsupported_layout"
    UNSUPPORTED_SHAPE = "unsupported_shape"
    UNSUPPORTED_DTYPE = "unsupported_dtype"
    TOO_SMALL = "too_small"
    PLAN_REJECTED = "plan_rejected"
    INTERNAL_ERROR = "internal_error"
    # a candidate that is rejected
    STATIC_CHECK = "static_check"
    FORBIDDEN_LAUNCHER = "forbidden_launcher"
    COMPILE_ERROR = "compile_error"
    TOOLCHAIN_MISSING = "toolchain_missing"
    RUNTIME_ERROR = "runtime_error"
    TIMEOUT = "timeout"
    CRASH = "crash"
    WRONG_VALUES = "wrong_values"
    WRONG_METADATA = "wrong_metadata"
    SPECIAL_VALUES = "special_values"
    UNWRITTEN_OUTPUT = "unwritten_output"
    OUT_OF_BOUNDS = "out_of_bounds"
    INPUT_MODIFIED = "input_modified"
    NONDETERMINISTIC = "nondeterministic"
    STATE_LEAK = "state_leak"
    FASTER_THAN_HARDWARE = "faster_than_hardware"
    MORE_MEMORY = "more_memory"
    UNCHECKABLE = "uncheckable"
    NO_EVIDENCE = "no_evidence"


@dataclass(frozen=True)
class Accepted:
    """A candidate that may run. `ratio` is baseline time over candidate time."""

    ratio: float


@dataclass(frozen=True)
class Rejected:
    """A candidate that may not run, and why, in words for its author."""

    reason: Reason
    detail: str = ""
