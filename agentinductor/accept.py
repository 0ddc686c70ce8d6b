"""Whether a solution may run: a pure function of its traces and a policy."""

from collections.abc import Sequence
from dataclasses import dataclass

from .schema import Accepted, Reason, Rejected, Trace

POLICY_VERSION = "1"  # raise it when validation gets stricter: older evidence then counts as none


@dataclass(frozen=True)
class Policy:
    """What "faster, and no heavier" means."""

    version: str = POLICY_VERSION  # traces judged by another version are not evidence
    min_ratio: float = 1.02  # baseline time over candidate time, the median...
    min_ratio_low: float = 1.0  # ...and the lower bound of its confidence interval, which must exceed this
    memory_slack: float = 1.05  # the candidate's outputs + scratch over the baseline's...
    memory_slack_bytes: int = 1 << 20  # ...and this many bytes, the granularity of an allocator


POLICY = Policy()


def decide(traces: Sequence[Trace], policy: Policy = POLICY) -> Accepted | Rejected:
    """Accepted with the worst ratio over the workloads, or Rejected with the first reason found.

    The traces are of one solution in one environment. One failure outweighs every success; of several correct timings
    of a workload the newest counts.
    """
    current = [trace for trace in traces if trace.policy == policy.version]
    if not current:
        stale = f"; {len(traces)} traces of another policy" if traces else ""
        return Rejected(Reason.NO_EVIDENCE, f"no evaluation under policy {policy.version}{stale}")
    for trace in current:
        if trace.reason is not None:
            return Rejected(trace.reason, trace.detail)
        if trace.correctness is None:
            return Rejected(Reason.NO_EVIDENCE, "a trace without a correctness result")
    newest: dict[str, Trace] = {}
    for trace in sorted(current, key=lambda t: t.created):
        if trace.performance is not None or trace.workload.digest not in newest:
            newest[trace.workload.digest] = trace
    verdicts = [_judge(trace, policy) for trace in newest.values()]
    rejected = next((v for v in verdicts if isinstance(v, Rejected)), None)
    return rejected or min((v for v in verdicts if isinstance(v, Accepted)), key=lambda v: v.ratio)


def _judge(trace: Trace, policy: Policy) -> Accepted | Rejected:
    p = trace.performance
    if p is None:
        return Rejected(Reason.NOT_QUALIFIED, "correct, but not timed here")
    allowed = p.baseline_peak_bytes * policy.memory_slack + policy.memory_slack_bytes
    if p.peak_bytes > allowed:
        return Rejected(Reason.MORE_MEMORY, f"needs {p.peak_bytes:,} bytes; Inductor's kernel needs {p.baseline_peak_bytes:,}")
    if not (p.ratio >= policy.min_ratio and p.ratio_low > policy.min_ratio_low):  # a NaN is slower too
        return Rejected(Reason.SLOWER, f"{p.ratio:.3f}x of Inductor's speed [{p.ratio_low:.3f}, {p.ratio_high:.3f}]; "
                                       f"needs {policy.min_ratio} and a lower bound above {policy.min_ratio_low}")
    return Accepted(p.ratio)
