"""Compile with the first schedule's kernel in every region that a template can express: no evidence asked."""

from pathlib import Path
from uuid import uuid4

import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd

from agentinductor.backend import operators
from agentinductor.backend.entry import Selection, compile_with_kernels
from agentinductor.backend.graph_pass import PassContext, run_pass
from agentinductor.backend.inductor import decompositions
from agentinductor.codegen import cpp_template, cuda_template, schedule, triton_template
from agentinductor.codegen.reference import evaluate
from agentinductor.errors import UnsupportedRegionError
from agentinductor.kernel_cache.resolver import Hit, Miss
from agentinductor.schema import Environment, Reason

TEMPLATES = {"cpp": cpp_template, "cuda": cuda_template, "triton": triton_template}


class Forced:
    """A torch.compile backend. `solutions` holds what it embedded, by digest."""

    def __init__(self, language: str, directory: Path, patches: dict | None = None, pick: int = 0):
        self.language, self.patches, self.pick = language, patches or {}, pick
        self.solutions: dict = {}
        self.nonce = uuid4().hex
        operators.serve_from(self.solutions.get, directory)

    def resolve(self, definition, workload, device_type):
        choices = schedule.space(definition, workload.all_sizes(definition), self.language)
        try:
            solution = TEMPLATES[self.language].emit(definition, choices[self.pick % len(choices)])
        except (UnsupportedRegionError, IndexError, ZeroDivisionError) as error:
            return Miss(Reason.NO_SOLUTION, str(error))
        self.solutions[solution.digest] = (definition, solution)
        return Hit(solution, None)

    def context(self) -> PassContext:
        kind = "cpu" if self.language == "cpp" else "cuda"
        environment = Environment(kind, "test", 0, torch.__version__)
        return PassContext(self.resolve, lambda key: None, lambda device: environment, "default", strict=True, min_bytes=0)

    def __call__(self, gm, inputs):
        return compile_with_kernels(gm, inputs, Selection(self.context(), self.nonce), self.patches)


class Interpreted(Forced):
    """The same graphs without any compiler: regions run on the oracle, all other nodes on eager PyTorch."""

    def __call__(self, gm, inputs):
        return aot_autograd(fw_compiler=self.rewrite, decompositions=decompositions())(gm, inputs)

    def rewrite(self, gm, inputs):
        run_pass(gm.graph, self.context())
        gm.recompile()
        return make_boxed_func(gm.forward)

    def prepare(self, definition, solution) -> None:
        """To stand for operators.prepare, which builds."""
        def run(inputs, outputs):
            for output, value in zip(outputs, evaluate(definition, inputs), strict=True):
                output.copy_(value)

        operators._runnables[solution.digest] = run
