"""explain: every region of a model, which kernel it runs on or why not, and what that is worth."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from .. import device
from ..observability import aligned
from ..schema.digest import short
from .harvest import Found, distinct, harvest


@dataclass(frozen=True)
class RegionLine:
    """One row. Times in microseconds, 0 where unknown: `expected_us` is bytes over the device's copy bandwidth, `measured_us`
    the kernel's and `inductor_us` Inductor's time when the kernel was qualified on this device."""

    kind: str
    name: str
    digest: str
    occurrences: int
    sizes: str
    device: str
    decision: str
    kernel: str
    expected_us: float
    measured_us: float
    inductor_us: float


@dataclass(frozen=True)
class ExplainReport:
    """All regions of a model, the most frequent first."""

    regions: tuple[RegionLine, ...]
    graphs: int

    @property
    def kernels(self) -> int:
        """Occurrences that run on a kernel."""
        return sum(line.occurrences for line in self.regions if line.kernel)

    def to_json(self) -> dict:
        return {"graphs": self.graphs, "regions": [asdict(line) for line in self.regions]}

    def __str__(self) -> str:
        head = ("region", "x", "sizes", "runs on", "floor us", "kernel us", "inductor us")
        rows = [(line.name or line.kind, str(line.occurrences), line.sizes, line.decision, _us(line.expected_us),
                 _us(line.measured_us), _us(line.inductor_us)) for line in self.regions]
        total = sum(line.occurrences for line in self.regions)
        return "\n".join([*aligned([head, *rows]), f"{self.kernels} of {total} regions in {self.graphs} graphs run on kernels; "
                                  "the rest, and everything between, is Inductor's"])


def explain(model: Callable, *args: Any, mode: str | None = None, options: Mapping[str, Any] | None = None,
            reset: Callable[[], None] | None = None, **kwargs: Any) -> ExplainReport:
    """Every region of `model` on these inputs. `mode` and `options` as for torch.compile; `reset` runs before the model does.

    Runs the model once, eagerly. Stores nothing.
    """
    reports = harvest(model, args, kwargs, mode, options, reset)
    return ExplainReport(tuple(_line(found) for found in distinct(reports)), len(reports))


def _line(found: Found) -> RegionLine:
    record = found.record
    sizes, floor = "", 0.0
    if record.definition is not None and record.workload is not None:
        every = record.workload.all_sizes(record.definition)
        sizes = " ".join(f"{name}={size}" for name, size in every.items())
        floor = record.definition.bytes_moved(every) / device.copy_bandwidth(record.device_type) * 1e6
    return RegionLine(record.kind, record.name, short(record.digest), found.occurrences, sizes, record.device_type, record.decision,
                      record.kernel, floor, record.kernel_us, record.baseline_us)


def _us(value: float) -> str:
    return f"{value:,.1f}" if value else "-"
