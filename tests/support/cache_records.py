"""Records for cache tests: small, valid, and different by a number."""

from agentinductor.schema import (
    Axis,
    Correctness,
    Definition,
    Environment,
    Guard,
    Node,
    Performance,
    Provenance,
    Solution,
    Source,
    TensorSpec,
    Trace,
    Workload,
)

CPU = Environment("cpu", "Test Processor", 0, "2.13.0", compiler="gcc 12.2.0")
OTHER_CPU = Environment("cpu", "Test Processor", 0, "2.14.0", compiler="gcc 12.2.0")


def definition(cols: int | None = 64, dtype: str = "float32", kind: str = "relu") -> Definition:
    axes = (Axis("rows"), Axis("cols", cols))
    spec = TensorSpec("x0", ("rows", "cols"), dtype)
    body = (Node("t0", "relu", ("x0",), dtype, ("rows", "cols")),)
    return Definition(axes, (spec,), body, (TensorSpec("y0", ("rows", "cols"), dtype),), ("t0",), kind)


def solution(of: Definition, number: int = 0, guards: tuple[Guard, ...] = (), agent: str = "human") -> Solution:
    text = f"// kernel {number}\nextern \"C\" void run(void* const* t, const int64_t* n, const int64_t* s) {{}}\n"
    return Solution(of.digest, "cpp", "kernel.cpp::run", (Source("kernel.cpp", text),), guards,
                    provenance=Provenance(agent, schedule=f"number={number}"))


def workload(rows: int = 128) -> Workload:
    return Workload.of({"rows": rows})


def trace(of: Solution, ratio: float | None = 1.5, rows: int = 128, environment: Environment = CPU, policy: str = "", reason=None,
          detail: str = "", created: str = "2026-01-01T00:00:00Z") -> Trace:
    """A trace of a correct candidate that is `ratio` times as fast as Inductor, or of one that failed with `reason`."""
    good = reason is None
    correctness = Correctness(12, 1e-6, 1e-7, 1e-7) if good else None
    performance = None
    if good and ratio:
        performance = Performance(100.0 / ratio, 100.0, ratio, ratio * 0.99, ratio * 1.01, 1024, 1024, 1.0)
    return Trace(of.definition, of.digest, workload(rows), environment, policy, correctness, performance, reason, detail, created)
