"""Static checks: what a solution's source may contain, before anything compiles or imports it.

An early, explained refusal, not the proof: the launcher is traced, the linked object's symbols are checked, and the
kernel runs in a child process. Triton files are Python, so they pass an allowlist of syntax and names here; C++ and CUDA
go to static_cpp.py. `check` raises StaticCheckError: the line, what is wrong, the next step.
"""

import ast
import re

from ..codegen.options import refused
from ..errors import StaticCheckError
from ..schema import Solution
from . import static_cpp
from .static_names import (
    BUILTINS,
    IMPORTS,
    KERNEL_ATTRIBUTES,
    KERNEL_BUILTINS,
    LAUNCHER_ATTRIBUTES,
    LAUNCHER_METHODS,
    MATH,
    TL_DENIED,
    TL_NESTED,
    TORCH,
    TORCH_CALLS,
    TRITON,
)

LONGEST = 256 * 1024  # characters of a source
_RESERVED = {"torch", "triton", "tl", "libdevice", "math", *BUILTINS, *KERNEL_BUILTINS}

_COMMON = (
    ast.Module,
    ast.FunctionDef,
    ast.arguments,
    ast.arg,
    ast.Assign,
    ast.AugAssign,
    ast.AnnAssign,
    ast.Expr,
    ast.If,
    ast.For,
    ast.Pass,
    ast.Return,
    ast.Name,
    ast.Constant,
    ast.Attribute,
    ast.Subscript,
    ast.Slice,
    ast.Call,
    ast.keyword,
    ast.BinOp,
    ast.UnaryOp,
    ast.BoolOp,
    ast.Compare,
    ast.IfExp,
    ast.Tuple,
    ast.List,
    ast.expr_context,
    ast.operator,
    ast.unaryop,
    ast.boolop,
    ast.cmpop,
)
_KERNEL_NODES = (*_COMMON, ast.While, ast.Break, ast.Continue)


def check(solution: Solution) -> None:
    """Raises StaticCheckError when a source uses something that solutions may not use."""
    bad = refused(solution.language, solution.compile_options)
    if bad is not None:
        raise StaticCheckError(f"compile option {bad!r} is not allowed; allowed are those of codegen/options.py")
    if len(solution.sources) != 1:
        raise StaticCheckError(f"{len(solution.sources)} sources: put the whole solution into one file")
    source = solution.sources[0]
    if len(source.content) > LONGEST:
        raise StaticCheckError(f"{source.path} has {len(source.content)} characters: write fewer than {LONGEST}")
    if solution.language == "triton":
        _Triton(source.path, source.content, solution.entry_function).check()
    else:
        static_cpp.check(source.path, source.content, solution.language)


class _Triton:
    """Checks one Triton file."""

    def __init__(self, path: str, text: str, entry: str):
        self.path, self.text, self.entry = path, text, entry
        self.imported: set[str] = set()
        self.constants: set[str] = set()
        self.kernels: set[str] = set()

    def check(self) -> None:
        tree = self._parse()
        self.kernels = {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.decorator_list}
        functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
        for at, node in enumerate(tree.body):
            self._module_level(node, at)
        names = [node.name for node in functions] + sorted(self.constants)
        for name in names:
            if names.count(name) > 1 or name in _RESERVED or name.startswith("__"):
                self._refuse(functions[0], f"the name {name} is taken", "give every function and constant a name of its own")
        launchers = [node for node in functions if not node.decorator_list]
        if [node.name for node in launchers] != [self.entry] or not self.kernels:
            raise StaticCheckError(
                f"{self.path} line 1: the file must hold @triton.jit kernels and one launcher; name the launcher {self.entry}"
            )
        for node in functions:
            self._function(node)

    def _parse(self) -> ast.Module:
        lines = self.text.split("\n")
        if any(re.search(r"#.*coding\s*[:=]", line) for line in lines[:2]):
            raise StaticCheckError(f"{self.path} line 1: an encoding declaration is not allowed; sources are UTF-8")
        odd = next((c for c in self.text if (ord(c) < 32 and c not in "\n\t") or c in "\x7f\ufeff\u2028\u2029\x85"), None)
        if odd is not None:
            raise StaticCheckError(f"{self.path}: the control character {odd!r} is not allowed; remove it")
        try:
            return ast.parse(self.text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise StaticCheckError(f"{self.path}: does not parse as Python: {error}") from None

    def _module_level(self, node: ast.stmt, at: int) -> None:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            module = getattr(node, "module", None)
            for alias in node.names:
                if (module, alias.name, alias.asname) not in IMPORTS or (isinstance(node, ast.ImportFrom) and node.level):
                    self._refuse(
                        node, f"import of {alias.name}", "import torch, triton, triton.language as tl, math or libdevice only"
                    )
                self.imported.add(alias.asname or alias.name)
        elif isinstance(node, ast.Assign):
            target = node.targets[0]
            if len(node.targets) != 1 or not isinstance(target, ast.Name) or not self._literal(node.value):
                self._refuse(node, "a statement at module level", "only NAME = <literal>, imports and functions may stand there")
            else:
                self.constants.add(target.id)
        elif not isinstance(node, ast.FunctionDef) and not (at == 0 and self._docstring(node)):
            self._refuse(
                node, f"{type(node).__name__} at module level", "only imports, literal constants and functions may stand there"
            )

    def _literal(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Call) and self._chain(node.func) == ["tl", "constexpr"]:
            return len(node.args) == 1 and not node.keywords and self._literal(node.args[0])
        if isinstance(node, ast.Tuple):
            return all(self._literal(item) for item in node.elts)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return self._literal(node.operand)
        return isinstance(node, ast.Constant)

    @staticmethod
    def _docstring(node: ast.stmt) -> bool:
        return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)

    # ---- functions ----

    def _function(self, node: ast.FunctionDef) -> None:
        kernel = bool(node.decorator_list)
        if kernel and [self._chain(d) for d in node.decorator_list] != [["triton", "jit"]]:
            self._refuse(
                node, "a decorator other than @triton.jit", "write @triton.jit alone: no autotune, no heuristics, no arguments"
            )
        self._signature(node, kernel)
        local = {a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}
        local |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        taken = local & (_RESERVED | self.kernels | self.constants | self.imported | {self.entry})
        if taken:
            self._refuse(node, f"{node.name} binds {sorted(taken)[0]} again", "choose another name")
        known = local | self.constants | self.imported | self.kernels | (KERNEL_BUILTINS if kernel else BUILTINS)
        for statement in node.body:
            for child in ast.walk(statement):
                if not isinstance(child, _KERNEL_NODES if kernel else _COMMON) or isinstance(child, ast.FunctionDef):
                    self._refuse(
                        child, f"{type(child).__name__} in {node.name}", "use plain assignments, arithmetic, if, for and calls"
                    )
                if isinstance(child, ast.Name) and child.id not in known:
                    self._refuse(child, f"the name {child.id}", "use parameters, locals, constants, kernels and tl only")
            if not kernel:
                self._launcher_statement(statement)
        check = self._kernel_expression if kernel else self._launcher_expression
        for statement in node.body:
            inside = {
                id(n.value)
                for n in ast.walk(statement)
                if isinstance(n, ast.Attribute) and self._chain(n)[:1] and self._chain(n)[0] in self.imported
            }  # parts of a longer a.b.c, which is judged whole
            for child in ast.walk(statement):
                if not (isinstance(child, ast.Attribute) and id(child) in inside):
                    check(child)
        self._uses(node, kernel)

    def _signature(self, node: ast.FunctionDef, kernel: bool) -> None:
        arguments = node.args
        if arguments.vararg or arguments.kwarg or node.returns is not None or getattr(node, "type_params", None):
            self._refuse(
                node, f"the signature of {node.name}", "list plain parameters, without * and without a return annotation"
            )
        for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            if argument.annotation is not None and not (kernel and self._chain(argument.annotation) == ["tl", "constexpr"]):
                self._refuse(argument, f"the annotation of {argument.arg}", "annotate kernel parameters with tl.constexpr only")
        for default in (*arguments.defaults, *arguments.kw_defaults):
            if default is not None and not (kernel and isinstance(default, ast.Constant)):
                self._refuse(default, "a default that is not a literal", "write a literal, or pass the value at the launch")

    def _uses(self, node: ast.FunctionDef, kernel: bool) -> None:
        """Modules and kernels are only reached through an allowed attribute, or launched; they are no values."""
        parents = {child: parent for parent in ast.walk(node) for child in ast.iter_child_nodes(parent)}
        for child in ast.walk(node):
            if not isinstance(child, ast.Name) or not isinstance(child.ctx, ast.Load):
                continue
            parent = parents[child]
            if child.id in self.imported and not isinstance(parent, ast.Attribute):
                self._refuse(child, f"{child.id} as a value", f"write {child.id}.<name>")
            called = isinstance(parent, ast.Call) and parent.func is child
            reducer = kernel and isinstance(parent, ast.Call) and child in parent.args[2:]  # tl.reduce(x, axis, combine)
            launched = isinstance(parent, ast.Subscript) and parent.value is child
            if child.id in self.kernels and not ((called or reducer) if kernel else launched):
                self._refuse(child, f"the kernel {child.id} as a value", "launch it: kernel[grid](...)")

    def _launcher_statement(self, node: ast.stmt) -> None:
        for child in ast.walk(node):
            if isinstance(child, ast.Expr) and not self._docstring(child) and not self._is_launch(child.value):
                self._refuse(child, "a statement without effect here", "launch a kernel: kernel[grid](...)")
            if isinstance(child, ast.Return) and child.value is not None:
                self._refuse(child, "a returned value", "write results into the outputs that the launcher is given")
            targets = (
                child.targets
                if isinstance(child, ast.Assign)
                else [child.target]
                if isinstance(child, (ast.AugAssign, ast.For))
                else []
            )
            for target in targets:
                flat = target.elts if isinstance(target, ast.Tuple) else [target]
                if not all(isinstance(item, ast.Name) for item in flat):
                    self._refuse(child, "an assignment into an object", "the launcher may not write tensors; kernels do")
            if isinstance(child, ast.AugAssign) and not isinstance(child.target, ast.Name):
                self._refuse(child, "an assignment into an object", "the launcher may not write tensors; kernels do")
            if isinstance(child, ast.For) and not (
                isinstance(child.iter, ast.Call) and self._chain(child.iter.func) == ["range"]
            ):
                self._refuse(child, "a loop over something else than range(...)", "write for i in range(n)")

    def _is_launch(self, node: ast.expr) -> bool:
        return (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Subscript)
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id in self.kernels
        )

    def _launcher_expression(self, node: ast.AST) -> None:
        if isinstance(node, ast.Attribute):
            self._module_attribute(
                node, {"torch": TORCH | TORCH_CALLS, "triton": TRITON, "math": MATH}, LAUNCHER_ATTRIBUTES | LAUNCHER_METHODS
            )
        if not isinstance(node, ast.Call) or self._is_launch(node):
            return
        chain = self._chain(node.func)
        if any(k.arg is None for k in node.keywords):
            self._refuse(node, "** in a call", "write the keywords out")
        if isinstance(node.func, ast.Name) and node.func.id in BUILTINS:
            return
        if chain and chain[0] in self.imported:
            if chain[0] == "torch" and chain[-1] not in TORCH_CALLS:
                self._refuse(
                    node, f"a call of {'.'.join(chain)}", "the launcher may only allocate with torch.empty; compute in a kernel"
                )
            return
        if not (isinstance(node.func, ast.Attribute) and node.func.attr in LAUNCHER_METHODS):
            self._refuse(node, "this call", "the launcher may only compute sizes, make views, allocate and launch")

    def _kernel_expression(self, node: ast.AST) -> None:
        if isinstance(node, ast.Attribute):
            chain = self._chain(node)
            if chain and chain[0] == "tl":
                nested = len(chain) == 3 and chain[1] in TL_NESTED and chain[2] in TL_NESTED[chain[1]]
                plain = len(chain) == 2 and not chain[1].startswith("_") and chain[1] not in TL_DENIED
                if not (plain or nested):
                    self._refuse(node, ".".join(chain), "use the language's own functions: no inline assembly, no internals")
                return
            self._module_attribute(
                node, {"triton": TRITON, "math": MATH, "libdevice": None, "torch": frozenset()}, KERNEL_ATTRIBUTES
            )
        elif isinstance(node, ast.Call):
            if any(k.arg is None for k in node.keywords):
                self._refuse(node, "** in a call", "write the keywords out")
            if not isinstance(node.func, (ast.Name, ast.Attribute)):
                self._refuse(node, "a call of a computed function", "call tl functions and kernels by name")
            if isinstance(node.func, ast.Name) and node.func.id not in self.kernels | KERNEL_BUILTINS:
                self._refuse(node, f"a call of {node.func.id}", "call tl functions and @triton.jit functions of this file")

    def _module_attribute(self, node: ast.Attribute, modules: dict, attributes: frozenset[str]) -> None:
        chain = self._chain(node)
        if chain and chain[0] in modules and chain[0] in self.imported:
            allowed = modules[chain[0]]
            fine = not chain[1].startswith("_") if allowed is None else chain[1] in allowed
            if len(chain) != 2 or not fine:
                self._refuse(node, ".".join(chain), "it is not among what this place may use")
        elif node.attr not in attributes:
            self._refuse(node, f"the attribute .{node.attr}", "use shapes, strides, dtypes and views only")

    @staticmethod
    def _chain(node: ast.AST) -> list[str]:
        """["a", "b", "c"] for a.b.c; [] for anything else."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        return [node.id, *parts[::-1]] if isinstance(node, ast.Name) else []

    def _refuse(self, node: ast.AST, what: str, step: str) -> None:
        raise StaticCheckError(f"{self.path} line {getattr(node, 'lineno', 1)}: {what} is not allowed; {step}")
