"""Emitted Triton: right in the interpreter, compiles for real GPUs, and its launcher can be traced with symbolic shapes."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest
import torch
import triton
from torch.fx.experimental.proxy_tensor import make_fx
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

SUPPORT = Path(__file__).parents[1] / "support"
sys.path.insert(0, str(SUPPORT))
import definitions as examples  # noqa: E402
import interpreter  # noqa: E402

from agentinductor.codegen.schedule import Schedule, space  # noqa: E402
from agentinductor.codegen.triton_template import emit  # noqa: E402
from agentinductor.errors import UnsupportedRegionError  # noqa: E402

ROW_SCHEDULES = (
    Schedule("triton", "rows", 1, 512), Schedule("triton", "rows", 4, 512), Schedule("triton", "rows", 2, 512, 4, 2, 3),
    Schedule("triton", "loop", 1, 64), Schedule("triton", "loop", 1, 64, online=True),
    Schedule("triton", "loop", 4, 32, online=True), Schedule("triton", "loop", 1, 8, online=True),
)
TILE_SCHEDULES = (Schedule("triton", "tile", 1, 256), Schedule("triton", "tile", 4, 128),
                  Schedule("triton", "tile", 4, 64, 4, 2, 3))
SHORT = {"cols": 200}  # the interpreter is slow
SIZED = ("gelu_bias_residual", "rms_norm", "add_rms_norm", "layer_norm", "add_layer_norm", "softmax", "swiglu")
POINTER = {"float32": "*fp32", "bfloat16": "*bf16", "int64": "*i64", "int32": "*i32", "bool": "*i1"}


def interpreted_cases():
    for name, make in examples.ALL.items():
        if name == "rare_functions":  # libdevice: not in the interpreter
            continue
        arguments = SHORT if name in SIZED else {}
        reduces = any("axes" in dict(n.attrs) for n in make(**arguments).body)
        for schedule in ROW_SCHEDULES if reduces else TILE_SCHEDULES:
            if not (name == "full_sum" and schedule.programs):
                yield name, arguments, schedule


@pytest.fixture(scope="module")
def interpreted():
    """{case: problem}, from one process that runs them all."""
    cases = list(interpreted_cases())
    lines = interpreter.problems([{"example": name, "arguments": arguments, "schedule": schedule.to_json()}
                                  for name, arguments, schedule in cases])
    return dict(zip([(n, str(s)) for n, _, s in cases], lines, strict=False))


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in examples.ALL if n != "rare_functions"])
def test_interpreter_agrees_with_the_oracle(name, interpreted):
    mine = {case: problem for case, problem in interpreted.items() if case[0] == name}
    assert mine, "the interpreter's process stopped before these cases"
    assert not {case: problem for case, problem in mine.items() if problem}


def load(solution, directory):
    path = directory / f"kernel_{solution.digest[:16]}.py"
    path.write_text(solution.source("kernel.py"))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compiled(definition, solution, directory, capability=90):
    module = load(solution, directory)
    call = re.search(r"kernel\[grid\]\((.*)\)", solution.source("kernel.py")).group(1)
    keywords = {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", call)}
    types = {spec.name: POINTER[spec.dtype] for spec in definition.inputs + definition.outputs}
    names = module.kernel.arg_names
    signature = {name: types.get(name, "constexpr" if name in keywords else "i32") for name in names}
    aligned = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(names) if signature[name] != "constexpr"}
    source = ASTSource(module.kernel, signature, {n: keywords[n] for n in names if n in keywords}, aligned)
    options = {"num_warps": keywords["num_warps"], "num_stages": keywords["num_stages"]}
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)


@pytest.mark.slow
@pytest.mark.parametrize("name", examples.ALL)
def test_compiles_without_a_gpu(name, tmp_path):
    definition = examples.ALL[name]()
    sizes = definition.sizes({key: value * 64 for key, value in examples.SIZES[name].items()})
    candidates = space(definition, sizes, "triton")
    assert candidates
    for schedule in {s.form: s for s in reversed(candidates)}.values():
        assert compiled(definition, emit(definition, schedule), tmp_path).asm["cubin"]


@pytest.mark.parametrize("capability", [80, 100])
def test_compiles_for_other_capabilities(capability, tmp_path):
    for name in ("layer_norm", "gelu_bias_residual"):
        definition = examples.ALL[name]()
        schedule = space(definition, definition.sizes({"rows": 2048}), "triton")[0]
        assert compiled(definition, emit(definition, schedule), tmp_path, capability).asm["cubin"]


def test_wide_loads_and_no_needless_masks(tmp_path):
    definition = examples.rms_norm(4096)
    solution = emit(definition, Schedule("triton", "rows", 1, 4096, 8))
    assert "mask=" not in solution.source("kernel.py")
    ptx = compiled(definition, solution, tmp_path).asm["ptx"]
    loads = re.findall(r"ld\.global[^ ]*", ptx)
    assert loads and all(".v4" in load for load in loads)
    masked = compiled(examples.rms_norm(5120), emit(examples.rms_norm(5120), Schedule("triton", "rows", 1, 8192, 8)), tmp_path)
    assert all(".v4" in load for load in re.findall(r"ld\.global[^ ]*", masked.asm["ptx"]))


@pytest.mark.parametrize("name", ["rms_norm", "rope", "causal_softmax", "gelu_tanh", "column_sum", "strided_add"])
def test_launcher_traces_under_symbolic_shapes(name, tmp_path):
    definition = examples.ALL[name]()
    module = load(emit(definition, space(definition, definition.sizes(examples.SIZES[name]), "triton")[0]), tmp_path)
    module.kernel = torch.library.wrap_triton(module.kernel)
    sizes = examples.SIZES[name]
    inputs, outputs = examples.make_inputs(definition, sizes), examples.make_outputs(definition, sizes)

    def call(*tensors):
        module.run(*tensors)
        return tensors[-1]

    graph = make_fx(call, tracing_mode="symbolic")(*inputs, *outputs).graph
    targets = {str(node.target) for node in graph.nodes if node.op == "call_function"}
    assert any("triton_kernel" in target for target in targets)
    arithmetic = ("triton_kernel", "sym_size", "sym_stride", "add", "mul", "floordiv", "sub")
    assert all(any(word in target for word in arithmetic) for target in targets)


def test_refusals():
    with pytest.raises(UnsupportedRegionError):
        emit(examples.rms_norm(4096), Schedule("triton", "rows", 1, 2048))
    with pytest.raises(UnsupportedRegionError):
        emit(examples.rms_norm(4096), Schedule("triton", "tile", 1, 2048))
    guard = next(g for g in emit(examples.softmax(None), Schedule("triton", "rows", 1, 2048)).guards if g.name == "cols")
    assert guard.failure({"cols": 2048}, "cuda", 90) is None and guard.failure({"cols": 2049}, "cuda", 90)


@pytest.mark.parametrize("name", examples.ALL)
@pytest.mark.parametrize("scale", [1, 64, 4096])
def test_every_candidate_of_the_space_can_be_emitted(name, scale):
    definition = examples.ALL[name]()
    sizes = definition.sizes({key: value * scale for key, value in examples.SIZES[name].items()})
    candidates = space(definition, sizes, "triton")
    assert candidates == space(definition, sizes, "triton") and len(candidates) <= 60
    for schedule in candidates:
        assert Schedule.from_json(schedule.to_json()) == schedule
        assert emit(definition, schedule).definition == definition.digest
