"""The launcher's graph: symbolic sizes survive, and anything but allocation, views and launches is refused."""

import logging

import pytest
import torch
from torch._higher_order_ops.triton_kernel_wrap import triton_kernel_wrapper_functional, triton_kernel_wrapper_mutation

from agentinductor.codegen import launcher_trace, triton_builder
from agentinductor.errors import BuildError, StaticCheckError
from agentinductor.schema import Solution, Source
from tests.support import definitions

KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def twice(v):
    return v + v


@triton.jit
def kernel(x, w, y, cols, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    v = tl.load(x + row * stride + c, mask=c < cols, other=0.0)
    tl.store(y + row * cols + c, twice(v), mask=c < cols)


def programs(rows):
    return triton.cdiv(rows, 4)


def run(x, w, y):
    rows, cols = x.shape
{body}
"""
LAUNCH = "    kernel[(programs(rows),)](x, w, y, cols, x.stride(0), BLOCK=64, num_warps=8)\n"


@pytest.fixture(autouse=True)
def quiet():
    logging.getLogger("torch._higher_order_ops.triton_kernel_wrap").setLevel(logging.ERROR)  # no GPU: no mutation analysis


def traced(tmp_path, body, rows=37, functional=False):
    definition = definitions.rms_norm(cols=64)
    solution = Solution(definition.digest, "triton", "kernel.py::run", (Source("kernel.py", KERNEL.format(body=body)),))
    module = triton_builder.load(solution, tmp_path)
    tensors = definitions.make_inputs(definition, {"rows": rows}) + definitions.make_outputs(definition, {"rows": rows})
    fakes = launcher_trace.fake_tensors(definition, tensors)
    return launcher_trace.trace(module, fakes[:2], fakes[2:], functional=functional), module


def test_scratch_views_and_launches_are_all_there_is(tmp_path):
    scratch = "    s = torch.empty((rows + 1, cols), dtype=torch.float32, device=x.device)[1:].view(-1)\n"
    graph, module = traced(tmp_path, scratch + LAUNCH + LAUNCH.replace("y,", "s,"))
    launches = [n for n in graph.graph.nodes if n.target is triton_kernel_wrapper_mutation]
    placeholders = [n for n in graph.graph.nodes if n.op == "placeholder"]
    assert len(launches) == 2 and len(placeholders) == 3
    assert isinstance(launches[0].kwargs["grid"][0][0], torch.fx.Node), "the grid depends on the symbolic number of rows"
    assert graph.graph.output_node().args[0] == (placeholders[2],)
    assert module.namespace["kernel"] is module.kernels["kernel"], "the module stays as it was"


def test_functional_launches(tmp_path):
    graph, _ = traced(tmp_path, LAUNCH, functional=True)
    assert any(n.target is triton_kernel_wrapper_functional for n in graph.graph.nodes)
    assert not any(n.target is triton_kernel_wrapper_mutation for n in graph.graph.nodes)


@pytest.mark.parametrize("cheat", [
    "    y.copy_(x * 2)\n", "    y.copy_(x)\n", "    y.zero_()\n", "    torch.nn.functional.rms_norm(x, (cols,), w)\n",
    "    s = torch.zeros_like(y)\n",
    "    torch.mul(x, w, out=y)\n", "    s = x.contiguous() + 1\n", "    s = torch.tensor([1.0])\n", "    s = x.to(torch.float32)\n",
])
@pytest.mark.parametrize("functional", [False, True])
def test_a_computing_launcher_is_refused(tmp_path, cheat, functional):
    with pytest.raises(StaticCheckError, match="may only"):
        traced(tmp_path, LAUNCH + cheat, functional=functional)


def test_a_launcher_without_a_launch_is_refused(tmp_path):
    with pytest.raises(StaticCheckError, match="launches no kernel"):
        traced(tmp_path, "    return\n")


def test_a_launcher_that_raises_is_a_build_error(tmp_path):
    with pytest.raises(BuildError, match="KeyError"):
        traced(tmp_path, "    {}['missing']\n")


def test_reading_data_is_refused(tmp_path):
    with pytest.raises((BuildError, StaticCheckError)):
        traced(tmp_path, "    if x[0, 0].item() > 0:\n        return\n" + LAUNCH)
