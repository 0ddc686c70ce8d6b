"""bench: the four-way table, for torch.compile's modes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from .. import device
from ..backend import eager
from ..bench import endtoend
from ..bench.endtoend import COMPILED, COMPILED_KERNELS, EAGER, EAGER_KERNELS, Comparison
from ..schema import Accepted
from . import compile as compiling

MODES = ("default", "reduce-overhead", "max-autotune")
_MANY_RECOMPILES = 256  # several backends share one model: Dynamo's limit would quietly leave the last ones eager


@dataclass(frozen=True)
class BenchReport:
    """One Comparison for each mode; `accepted` says whether the kernels passed the end-to-end gate in the best mode."""

    comparisons: tuple[Comparison, ...]

    @property
    def best_compiled(self) -> Comparison:
        """The mode in which plain torch.compile is fastest: the reference to beat."""
        return min(self.comparisons, key=lambda c: c[COMPILED].latency_us.value)

    @property
    def best_kernels(self) -> Comparison:
        return min(self.comparisons, key=lambda c: c[COMPILED_KERNELS].latency_us.value)

    @property
    def speedup(self) -> float:
        """Best mode of torch.compile over best mode with kernels."""
        return self.best_compiled[COMPILED].latency_us.value / self.best_kernels[COMPILED_KERNELS].latency_us.value

    @property
    def accepted(self) -> bool:
        return isinstance(endtoend.gate(self.best_compiled), Accepted)

    def to_json(self) -> dict:
        return {"modes": [c.to_json() for c in self.comparisons], "speedup_over_best_compiled": self.speedup, "accepted": self.accepted}

    def __str__(self) -> str:
        best, kernels = self.best_compiled, self.best_kernels
        last = (f"best of torch.compile: {best.mode}, {best[COMPILED].latency_us.value:,.1f} us; with kernels: {kernels.mode}, "
                f"{kernels[COMPILED_KERNELS].latency_us.value:,.1f} us: {self.speedup:.3f}x")
        return "\n\n".join([*(str(c) for c in self.comparisons), last])


def benchmark(model: Callable, *args: Any, mode: str | None = None, modes: Sequence[str] | None = None,
          options: Mapping[str, Any] | None = None, reset: Callable[[], None] | None = None, rounds: int = 30,
          budget_s: float = 30.0, progress: Callable[[str], None] | None = None, **kwargs: Any) -> BenchReport:
    """Time `model` four ways on these inputs: eager, eager + kernels, compiled, compiled + kernels.

    modes     of torch.compile to measure; default: all of MODES, or just `mode` where it is given
    reset     undoes what a call does to the inputs
    budget_s  seconds of timing for each mode, compilation aside
    """
    compiling.read_options(mode, options)  # a wrong option is reported before anything is compiled
    modes = list(modes or ([mode] if mode else MODES))
    truth = endtoend.truth_of(model, args, kwargs) if isinstance(model, torch.nn.Module) else None
    made = []
    for name in modes:
        torch._dynamo.reset()
        with torch._dynamo.config.patch(recompile_limit=_MANY_RECOMPILES), torch.no_grad():
            made.append(compare_mode(model, args, kwargs, name, options, truth, reset, rounds, budget_s, progress))
    torch._dynamo.reset()
    return BenchReport(tuple(made))


def compare_mode(model, args, kwargs, mode: str, options, truth, reset, rounds: int, budget_s: float, progress,
                 names: Sequence[str] = endtoend.FOUR_WAYS) -> Comparison:
    """The variants `names` under one mode."""
    chosen, _, patches = compiling.read_options(mode, options)

    def with_kernels_eagerly(gm, inputs):
        return eager.compile_eagerly(gm, inputs, compiling.select(chosen, mode).context)

    variants: dict[str, Callable] = {
        EAGER: model,
        EAGER_KERNELS: torch.compile(model, backend=with_kernels_eagerly),
        COMPILED: torch.compile(model, options=patches),
        COMPILED_KERNELS: torch.compile(model, backend=compiling.compile_graph, options={**(options or {}), "agentinductor.mode": mode}),
    }
    kind = "cuda" if any(isinstance(a, torch.Tensor) and a.is_cuda for a in [*args, *kwargs.values()]) else "cpu"
    environment = asdict(device.environment(kind))
    return endtoend.compare({name: variants[name] for name in names}, args, kwargs, truth=truth, reset=reset, mode=mode, rounds=rounds,
                            budget_s=budget_s, environment=environment, progress=progress)


