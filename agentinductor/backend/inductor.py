"""The seam to Inductor: the only module that touches torch._inductor. Torch-version differences live here."""

import difflib
import functools
import hashlib
import operator
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch._higher_order_ops.triton_kernel_wrap import triton_kernel_wrapper_functional, triton_kernel_wrapper_mutation
from torch._inductor import config as inductor_config
from torch._inductor import list_mode_options
from torch._inductor.compile_fx import compile_fx
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.pattern_matcher import stable_topological_sort

from ..errors import SettingsError

PASS_OPTION = "post_grad_custom_pre_pass"


def config_patches(mode: str | None, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Inductor's config for torch.compile's `mode` and `options`. Raises SettingsError for unknown names or types."""
    if mode not in (None, "default") and mode not in list_mode_options():
        raise SettingsError(f"unknown mode {mode!r}; torch.compile's modes are default, {', '.join(list_mode_options())}")
    known = inductor_config.get_config_copy()
    for key in options or {}:
        if key.replace("-", "_") not in known:
            near = difflib.get_close_matches(key, list(known), 3) or ["see torch._inductor.list_options()"]
            raise SettingsError(f"unknown option {key!r}; Inductor's nearest: {', '.join(near)}")
    wrapper_class = torch._TorchCompileInductorWrapper
    try:
        patches = dict(wrapper_class(mode, None, None).config)
        patches.update(wrapper_class(None, dict(options or {}), None).config)
    except RuntimeError as error:
        raise SettingsError(str(error)) from error
    return patches


def compile_graph(gm: torch.fx.GraphModule, inputs: Sequence[Any], patches: Mapping[str, Any], graph_pass: CustomGraphPass | None):
    """Compile with Inductor under `patches`, our pass in front of the user's own pre-pass."""
    patches = dict(patches)
    if graph_pass is not None:
        user = patches.get(PASS_OPTION, getattr(inductor_config, PASS_OPTION))
        chain = [graph_pass, *(user if isinstance(user, list | tuple) else [user] if user is not None else [])]
        patches[PASS_OPTION] = chain[0] if len(chain) == 1 else _Chain(chain)
    return compile_fx(gm, inputs, config_patches=patches)


def decompositions() -> dict:
    """The decompositions under which Inductor's graphs are traced."""
    return select_decomp_table()


def make_pass(run: Callable[[torch.fx.Graph], None], uuid: str | None) -> CustomGraphPass:
    """A pass whose uuid covers everything that changes its output; None keeps its graphs out of Inductor's cache."""
    return _Pass(run, uuid)


class _Pass(CustomGraphPass):
    def __init__(self, run: Callable[[torch.fx.Graph], None], uuid: str | None):
        self._run = run
        self._uuid = uuid

    def __call__(self, graph: torch.fx.Graph) -> None:
        self._run(graph)

    def uuid(self) -> str | None:
        return self._uuid

    def __getstate__(self):  # Inductor pickles its config for its own key: the uuid says all
        return {"_uuid": self._uuid}

    def __deepcopy__(self, memo):
        return self


class _Chain(CustomGraphPass):
    """Ours first, then the user's, as if both had been given."""

    def __init__(self, passes: list):
        self._passes = passes

    def __call__(self, graph: torch.fx.Graph) -> None:
        for graph_pass in self._passes:
            graph_pass(graph)

    def uuid(self):
        uuids = [p.uuid() if isinstance(p, CustomGraphPass) else None for p in self._passes]
        return None if any(u is None for u in uuids) else tuple(str(u) for u in uuids)

    def __deepcopy__(self, memo):
        return self


@functools.cache
def source_digest() -> str:
    """Digest of this package's own compile-time sources: part of the pass's uuid."""
    root = Path(__file__).parent.parent
    content = hashlib.sha256()
    for folder in ("backend", "schema", "codegen"):
        for path in sorted((root / folder).glob("*.py")):
            content.update(path.name.encode() + b"\0" + path.read_bytes())
    return content.hexdigest()


def sort_nodes(graph: torch.fx.Graph) -> None:
    stable_topological_sort(graph)


def is_kernel_launch(node: torch.fx.Node) -> bool:
    return node.op == "call_function" and node.target is triton_kernel_wrapper_mutation


def functional_kernel(graph: torch.fx.Graph, launch_kwargs: dict[str, Any], mutated: list[str]) -> dict[str, torch.fx.Node]:
    """A functional Triton launch: argument name -> node of its value after the launch, for the mutated arguments.

    `launch_kwargs` are those of a traced (mutating) launch. Inductor turns the node into the launch itself and drops
    the clones, since nothing reads the buffers before.
    """
    node = graph.call_function(triton_kernel_wrapper_functional, kwargs={**launch_kwargs, "tensors_to_clone": mutated})
    tensors = {name: arg.meta["val"] for name, arg in launch_kwargs["kwargs"].items() if name in mutated}
    node.meta["val"] = tensors
    values = {key: _values(value) for key, value in launch_kwargs.items()}
    node.meta["eager_input_vals"] = ((), {**values, "tensors_to_clone": mutated})  # pins the strides of the arguments
    results = {}
    for name in mutated:
        results[name] = graph.call_function(operator.getitem, (node, name))
        results[name].meta["val"] = tensors[name]
    return results


def _values(item):
    return torch.fx.node.map_arg(item, lambda node: node.meta["val"])


def reset() -> None:
    """What torch.compiler.reset() asks of a backend: drop captured CUDA graphs."""
    if torch.cuda.is_available():
        from torch._inductor.cudagraph_trees import reset_cudagraph_trees

        reset_cudagraph_trees()
