"""The house rules, proven on the syntax tree of every file: layers, seams, and who may write where."""

import ast
from pathlib import Path

import pytest

import agentinductor

PACKAGE = Path(agentinductor.__file__).parent
FILES = sorted(path for path in PACKAGE.rglob("*.py") if "library" not in path.relative_to(PACKAGE).parts)
LAYERS = {
    "errors": 0, "settings": 0, "observability": 0,
    "schema": 1,
    "codegen": 2, "accept": 2, "device": 2,
    "validation": 3, "bench": 3, "kernel_cache": 3, "agents": 3,
    "evaluate": 4,
    "synthesize": 5,
    "backend": 6, "on_miss": 6,
    "workflows": 7,
    "api": 8, "targets": 8, "cli": 8, "__init__": 8,
}
SIDEWAYS = {("settings", "errors"), ("cli", "api"), ("cli", "targets"), ("cli", "__init__"), ("__init__", "api")}
# ^ within the lowest and the top layer
BACKEND_NEVER = ("agents", "validation", "bench")  # the backend is handed a resolver instead
WRITERS = {"write_text", "write_bytes", "replace", "rename", "unlink", "mkdir", "makedirs", "rmdir", "rmtree", "symlink_to",
           "touch", "chmod", "move", "copyfile", "copytree"}
CACHE_WRITERS = ("kernel_cache/store.py", "kernel_cache/entry.py",  # the store, and the directories that it publishes through
                 "kernel_cache/publish.py")  # opens the modes of a finished library, never of the cache


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def part_of(path: Path) -> str:
    """The package or top-level module that a file belongs to."""
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def imports(path: Path) -> list[tuple[int, str]]:
    """(line, absolute module name) of every import, inside functions and through import_module("...") too."""
    package = ["agentinductor", *path.relative_to(PACKAGE).parts[:-1]]
    found = []
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[:len(package) - node.level + 1] if node.level else []
            module = ".".join(base + ([node.module] if node.module else []))
            found.append((node.lineno, module))
            found += [(node.lineno, f"{module}.{alias.name}") for alias in node.names]
        elif isinstance(node, ast.Call) and called(node) == "import_module" and isinstance(node.args[0], ast.Constant):
            text = str(node.args[0].value)
            level = len(text) - len(text.lstrip("."))
            base = package[:len(package) - level + 1] if level else []
            found.append((node.lineno, ".".join([*base, text.lstrip(".")])))
    return found


def called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_imports_point_downwards(path):
    mine = part_of(path)
    assert mine in LAYERS, f"{mine} has no layer: add it to LAYERS and to docs/architecture.md"
    wrong = []
    for line, module in imports(path):
        parts = module.split(".")
        if parts[0] != "agentinductor" or len(parts) < 2 or parts[1] not in LAYERS:
            continue
        theirs = parts[1]
        if theirs != mine and LAYERS[theirs] >= LAYERS[mine] and (mine, theirs) not in SIDEWAYS:
            wrong.append(f"{name_of(path)}:{line} imports {module} (layer {LAYERS[theirs]}) from layer {LAYERS[mine]}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("path", [p for p in FILES if part_of(p) == "backend"], ids=name_of)
def test_the_backend_is_handed_its_resolver(path):
    wrong = [f"{line}: {module}" for line, module in imports(path)
             if module.startswith(tuple(f"agentinductor.{part}" for part in BACKEND_NEVER))]
    assert not wrong, wrong


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_one_seam_to_inductor(path):
    if name_of(path) == "backend/inductor.py":
        return
    wrong = [f"{line}: import {module}" for line, module in imports(path) if module.startswith("torch._inductor")]
    wrong += [f"{node.lineno}: {dotted(node)}" for node in ast.walk(tree_of(path))
              if isinstance(node, ast.Attribute) and dotted(node) == "torch._inductor"]
    assert not wrong, f"only backend/inductor.py touches torch._inductor: {wrong}"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_one_reader_of_the_environment(path):
    if name_of(path) == "settings.py":
        return
    wrong = [f"{node.lineno}: {dotted(node)}" for node in ast.walk(tree_of(path))
             if dotted(node) in ("os.environ", "os.environb", "os.getenv", "os.putenv")]
    wrong += [f"{line}: {module}" for line, module in imports(path) if module in ("os.environ", "os.getenv")]
    assert not wrong, f"only settings.py reads the environment: {wrong}"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_one_writer_of_the_cache(path):
    """In kernel_cache only the store and its entries write; elsewhere, a file that knows the cache root writes nothing."""
    tree = tree_of(path)
    knows = any(isinstance(node, ast.Attribute) and node.attr == "cache_root" for node in ast.walk(tree))
    if name_of(path) in CACHE_WRITERS or not (knows or part_of(path) == "kernel_cache"):
        return
    wrong = [f"{node.lineno}: {called(node)}" for node in ast.walk(tree) if isinstance(node, ast.Call) and writes(node)]
    assert not wrong, f"only {CACHE_WRITERS} write under the cache root: {wrong}"


def writes(node: ast.Call) -> bool:
    if called(node) in WRITERS:
        is_method_of_text = called(node) == "replace" and len(node.args) == 2 and not dotted(node.func).startswith("os.")
        is_record = called(node) == "replace" and isinstance(node.func, ast.Name)  # dataclasses.replace
        return not (is_method_of_text or is_record)
    if called(node) == "open":
        modes = [argument.value for argument in node.args[1:] if isinstance(argument, ast.Constant)]
        return any(isinstance(mode, str) and set(mode) & set("wax+") for mode in modes)
    return False


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_no_star_imports_and_no_pickle(path):
    wrong = [f"{line}: {module}" for line, module in imports(path) if module.endswith(".*") or module.split(".")[0] == "pickle"]
    assert not wrong, wrong


@pytest.mark.parametrize("package", sorted({p.parent for p in FILES}), ids=lambda p: p.relative_to(PACKAGE).as_posix())
def test_each_package_has_a_map(package):
    """A package's docstring says what it does."""
    assert ast.get_docstring(tree_of(package / "__init__.py")), f"{package.name}/__init__.py has no docstring"
