"""Report: what became of each region of each graph, and why. explain() prints it; tests assert on it."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from ..schema import Definition, Reason, Workload


@dataclass
class RegionRecord:
    """One region of one graph.

    kernel      digest of the solution it runs on, "" when it is Inductor's
    reason      why it is Inductor's (None when it runs on a kernel), `detail` in words
    kernel_us, baseline_us  the kernel's and Inductor's time when the kernel was qualified, microseconds
    """

    kind: str
    name: str
    digest: str
    nodes: tuple[str, ...]
    device_type: str
    definition: Definition | None = None
    workload: Workload | None = None
    kernel: str = ""
    language: str = ""
    reason: Reason | None = None
    detail: str = ""
    kernel_us: float = 0.0
    baseline_us: float = 0.0

    @property
    def decision(self) -> str:
        if self.reason is None:
            return f"{self.language} kernel {self.kernel[:12]}"
        return f"{self.reason.value}: {self.detail}" if self.detail else self.reason.value


@dataclass
class GraphReport:
    """All regions of one post-grad graph. `key` names its plan."""

    key: str = ""
    regions: list[RegionRecord] = field(default_factory=list)

    @property
    def kernels(self) -> int:
        return sum(record.reason is None for record in self.regions)


_collectors: list[list[GraphReport]] = []


@contextlib.contextmanager
def collecting() -> Iterator[list[GraphReport]]:
    """Gather the reports of every graph compiled inside the block."""
    reports: list[GraphReport] = []
    _collectors.append(reports)
    try:
        yield reports
    finally:
        _collectors.remove(reports)


def publish(report: GraphReport) -> None:
    for reports in _collectors:
        reports.append(report)
