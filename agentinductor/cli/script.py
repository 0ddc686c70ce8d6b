"""`kernels show --script`: one kernel as a stand-alone script that reproduces its correctness and its timing.

The script holds the reference, the sources and the sizes, and needs torch and the kernel's own toolchain: not this package.
"""

from pprint import pformat

from ..codegen import cpp_builder, reference
from ..schema import Definition, Solution, Workload

HEAD = '''\
#!/usr/bin/env python3
"""{name}: the error and the time of one kernel, reproduced with nothing but torch and {needs}.

definition {definition}
solution   {solution} ({language}, by {author})

python THIS_FILE [axis=size ...]     sizes default to {sizes}

Errors are ||out - truth|| / ||truth||; truth is the reference with every float in float64. Exits 1 where the kernel's
error is more than twice eager's, or where it leaves an element unwritten. Times are of whole calls: where the sizes are
small, what torch.compile does around its kernel is most of its time.
"""

'''

COMMON = '''

def make_tensor(shape, strides, dtype, device):
    """Random values at exactly these strides."""
    room = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides)) if 0 not in shape else 0
    if dtype.is_floating_point:
        flat = torch.randn(room, device=device).to(dtype)
    else:
        low, high = (0, 2) if dtype in (torch.bool, torch.uint8) else (-8, 8)
        flat = torch.randint(low, high, (room,), device=device).to(dtype)
    return torch.as_strided(flat, shape, strides)


def dense(shape):
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return strides[::-1]


def make(specs, sizes, device, fill=None):
    tensors = []
    for name, axes, dtype in specs:
        shape = [sizes[axis] for axis in axes]
        use_recorded = name in STRIDES and sizes == SIZES
        tensor = make_tensor(shape, STRIDES[name] if use_recorded else dense(shape), getattr(torch, dtype), device)
        if fill is not None:
            tensor.fill_(fill if tensor.is_floating_point() else 1)
        tensors.append(tensor)
    return tensors


def reference(text):
    namespace = {}
    exec(compile(text, "<reference>", "exec"), namespace)
    return namespace["run"]


def error(outputs, truth):
    """Worst over the outputs; an element that is NaN in one and not in the other makes it infinite."""
    worst = 0.0
    for out, want in zip(outputs, truth):
        out, want = out.double(), want.double()
        if not torch.equal(torch.isnan(out), torch.isnan(want)):
            return float("inf")
        out, want = out.nan_to_num(0.0), want.nan_to_num(0.0)
        norm = want.norm().item()
        worst = max(worst, (out - want).norm().item() / (norm or 1.0))
    return worst


def microseconds(call, device, calls=20):
    """Mean time of one call; on CUDA the L2 cache is flushed before each."""
    if device == "cpu":
        start = time.perf_counter()
        for _ in range(calls):
            call()
        return (time.perf_counter() - start) / calls * 1e6
    flush = torch.empty(1 << 26, device=device)
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(calls)]
    for begin, end in events:
        flush.zero_()
        begin.record()
        call()
        end.record()
    torch.cuda.synchronize()
    return sum(begin.elapsed_time(end) for begin, end in events) / calls * 1e3


def main():
    sizes = dict(SIZES)
    for argument in sys.argv[1:]:
        axis, _, size = argument.partition("=")
        if axis not in sizes or not size.isdigit():
            sys.exit(f"{argument!r} is not one of {', '.join(f'{name}=SIZE' for name in sizes)}")
        sizes[axis] = int(size)
    if DEVICE == "cuda" and not torch.cuda.is_available():
        sys.exit("this kernel runs on an NVIDIA GPU, and torch sees none")
    for condition, holds in GUARDS:
        if not eval(holds, {}, dict(sizes)):
            sys.exit(f"the kernel's guard does not hold for these sizes: {condition}")
    torch.manual_seed(0)
    kernel, run = load_kernel(), reference(REFERENCE)
    compiled = torch.compile(run, dynamic=False)
    inputs, outputs = make(INPUTS, sizes, DEVICE), make(OUTPUTS, sizes, DEVICE, fill=float("nan"))
    kept = [x.clone() for x in inputs]
    kernel(inputs, outputs, sizes)
    truth = reference(re.sub(r"torch\\.(bfloat16|float16|float32)\\b", "torch.float64", REFERENCE))(
        *[x.double() if x.is_floating_point() else x for x in inputs])
    errors = {"kernel": error(outputs, truth), "eager": error(run(*inputs), truth)}
    errors["torch.compile"] = error(compiled(*inputs), truth)
    untouched = all(torch.equal(a, b) for a, b in zip(kept, inputs))
    variants = {"kernel": lambda: kernel(inputs, outputs, sizes), "eager": lambda: run(*inputs),
                "torch.compile": lambda: compiled(*inputs)}
    times = {name: [] for name in variants}
    for _ in range(ROUNDS):
        for name, call in variants.items():
            times[name].append(microseconds(call, DEVICE))
    print(f"{NAME} on {torch.cuda.get_device_name() if DEVICE == 'cuda' else 'cpu'}, {sizes}")
    print(f"{'':15}{'error':>12}{'us':>12}{'speed / torch.compile':>24}")
    base = statistics.median(times["torch.compile"])
    for name in variants:
        median = statistics.median(times[name])
        print(f"{name:15}{errors[name]:>12.2e}{median:>12.2f}{base / median:>24.3f}")
    right = errors["kernel"] <= max(2 * errors["eager"], 1e-6) and untouched
    print("inputs unchanged" if untouched else "THE KERNEL CHANGED ITS INPUTS")
    print("correct" if right else "WRONG")
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
'''

CPP = '''

def load_kernel():
    """Compile with the machine's compiler and load through ctypes."""
    folder = tempfile.mkdtemp()
    for name, text in SOURCES.items():
        pathlib.Path(folder, name).write_text(text)
    compiler = shutil.which("g++") or shutil.which("clang++") or sys.exit("no C++ compiler: install g++")
    subprocess.run([compiler, *FLAGS, ENTRY_FILE, "-lm", "-o", "kernel.so"], cwd=folder, check=True)
    function = ctypes.CDLL(str(pathlib.Path(folder, "kernel.so")))[ENTRY_FUNCTION]
    function.restype = None

    def call(inputs, outputs, sizes):
        tensors = [*inputs, *outputs]
        strides = [stride for tensor in tensors for stride in tensor.stride()]
        function((ctypes.c_void_p * len(tensors))(*[tensor.data_ptr() for tensor in tensors]),
                 (ctypes.c_int64 * len(sizes))(*sizes.values()), (ctypes.c_int64 * len(strides))(*strides))

    return call
'''

TRITON = '''

def load_kernel():
    """Import the sources: triton reads a kernel's text from its file."""
    folder = tempfile.mkdtemp()
    for name, text in SOURCES.items():
        pathlib.Path(folder, name).write_text(text)
    sys.path.insert(0, folder)
    module = importlib.import_module(ENTRY_FILE.removesuffix(".py"))
    run = getattr(module, ENTRY_FUNCTION)
    return lambda inputs, outputs, sizes: run(*inputs, *outputs)
'''

CUDA = '''

def cdiv(a, b):
    return -(-a // b)


class Stream:
    def __cuda_stream__(self):
        return 0, torch.cuda.current_stream().cuda_stream


def load_kernel():
    """Compile with NVRTC through cuda.core and launch as LAUNCHES says."""
    torch.zeros(1, device="cuda")
    major, minor = torch.cuda.get_device_capability()
    cuda.core.Device(torch.cuda.current_device()).set_current()
    options = cuda.core.ProgramOptions(arch=f"sm_{major}{minor}", std="c++17", **OPTIONS)
    code = cuda.core.Program(SOURCES[ENTRY_FILE], "c++", options).compile("cubin")
    kernels = [code.get_kernel(launch["kernel"]) for launch in LAUNCHES]

    def value(argument, tensors, sizes):
        if argument in tensors:
            return tensors[argument].data_ptr()
        if argument in sizes:
            return sizes[argument]
        tensor, dim = argument.removeprefix("stride(").removesuffix(")").split(",")
        return tensors[tensor].stride(int(dim))

    def call(inputs, outputs, sizes):
        tensors = dict(zip([spec[0] for spec in INPUTS + OUTPUTS], [*inputs, *outputs]))
        for launch, kernel in zip(LAUNCHES, kernels):
            grid = tuple(eval(text, {"cdiv": cdiv, "min": min, "max": max}, dict(sizes)) for text in launch["grid"])
            config = cuda.core.LaunchConfig(grid=grid, block=(launch["block"], 1, 1), shmem_size=launch["shared"])
            cuda.core.launch(Stream(), config, kernel, *[value(argument, tensors, sizes) for argument in launch["args"]])

    return call
'''

LOADERS = {"cpp": CPP, "triton": TRITON, "cuda": CUDA}
NEEDS = {"cpp": "a C++ compiler", "triton": "triton", "cuda": "cuda-python"}
IMPORTS = {
    "cpp": ("ctypes", "pathlib", "re", "shutil", "statistics", "subprocess", "sys", "tempfile", "time"),
    "triton": ("importlib", "pathlib", "re", "statistics", "sys", "tempfile", "time"),
    "cuda": ("re", "statistics", "sys", "time"),
}
ROUNDS = 20


def script(definition: Definition, solution: Solution, workload: Workload) -> str:
    """The text of the script."""
    sizes = workload.all_sizes(definition)
    head = HEAD.format(
        name=definition.name, needs=NEEDS[solution.language], definition=definition.digest, solution=solution.digest,
        language=solution.language, author=solution.provenance.author or solution.provenance.agent,
        sizes=" ".join(f"{axis.name}={sizes[axis.name]}" for axis in definition.var_axes) or "the definition's own")
    imports = [f"import {module}" for module in IMPORTS[solution.language]] + [""]
    imports += ["import cuda.core"] if solution.language == "cuda" else []
    constants = {
        "NAME": definition.name, "DEVICE": solution.device_type, "ROUNDS": ROUNDS, "SIZES": sizes,
        "STRIDES": {name: list(strides) for name, strides in workload.strides},
        "INPUTS": [(s.name, s.shape, s.dtype) for s in definition.inputs],
        "OUTPUTS": [(s.name, s.shape, s.dtype) for s in definition.outputs],
        "GUARDS": _guards(solution), "ENTRY_FILE": solution.entry_file, "ENTRY_FUNCTION": solution.entry_function,
    }
    if solution.language == "cpp":
        constants["FLAGS"] = [*cpp_builder.FLAGS, *solution.compile_options]
    if solution.language == "cuda":
        constants["LAUNCHES"] = [launch.to_json() for launch in solution.launches]
        constants["OPTIONS"] = {}
    lines = [f"{name} = {pformat(value, width=120, sort_dicts=False)}" for name, value in constants.items()]
    texts = [f"REFERENCE = {_literal(reference.source(definition))}"]
    texts += ["SOURCES = {"] + [f"    {source.path!r}: {_literal(source.content)}," for source in solution.sources] + ["}"]
    return head + "\n".join([*imports, "import torch", "", *lines, "", *texts]) + "\n" + LOADERS[solution.language] + COMMON


def _guards(solution: Solution) -> list[tuple[str, str]]:
    """(in words, as an expression over the sizes) for the guards that sizes decide."""
    found = []
    for guard in solution.guards:
        if guard.kind == "range":
            found.append((f"{guard.name} within [{guard.low}, {guard.high}]", f"{guard.low} <= {guard.name} <= {guard.high}"))
        elif guard.kind == "divisible":
            found.append((f"{guard.name} a multiple of {guard.low}", f"{guard.name} % {guard.low} == 0"))
    return found


def _literal(text: str) -> str:
    """`text` as a readable Python literal."""
    if "'''" in text or text.endswith("\\") or "\r" in text:
        return repr(text)
    return f"r'''{text}'''" if not text.endswith("'") else repr(text)
