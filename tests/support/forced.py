"""Compile with the first schedule's kernel in every region that a template can express: no evidence asked."""

from pathlib import Path
from uuid import uuid4

import torch

from agentinductor.backend import operators
from agentinductor.backend.entry import Selection, compile_with_kernels
from agentinductor.backend.graph_pass import PassContext
from agentinductor.codegen import cpp_template, cuda_template, schedule, triton_template
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

    def __call__(self, gm, inputs):
        kind = "cpu" if self.language == "cpp" else "cuda"
        context = PassContext(self.resolve, lambda key: None, lambda device: Environment(kind, "test", 0, torch.__version__),
                              "default", strict=True, min_bytes=0)
        return compile_with_kernels(gm, inputs, Selection(context, self.nonce), self.patches)
