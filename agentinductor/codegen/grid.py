"""Launch grids: integer expressions over axis names, parsed once and compiled to closures.

cdiv(rows, 4) * heads        names, integers, + - * //, cdiv, min, max; nothing else is in the language
"""

import ast
from collections.abc import Callable, Mapping

from ..errors import BuildError

Sizes = Mapping[str, int]
Expression = Callable[[Sizes], int]

_OPERATORS: dict[type, Callable[[int, int], int]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
}
_FUNCTIONS: dict[str, Callable[[int, int], int]] = {"cdiv": lambda a, b: -(-a // b), "min": min, "max": max}
_LONGEST = 200  # characters: an expression is one line, and the parser recurses


def compile_expression(text: str, names: frozenset[str]) -> Expression:
    """A function from axis sizes to the expression's value. Raises BuildError outside the language."""
    try:
        if len(text) > _LONGEST:
            raise SyntaxError("too long")
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError) as error:
        raise BuildError(f"grid expression {text[:_LONGEST]!r} does not parse: {error}") from None
    return _compile(tree.body, text, names)


def _compile(node: ast.expr, text: str, names: frozenset[str]) -> Expression:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        value = node.value
        return lambda sizes: value
    if isinstance(node, ast.Name) and node.id in names:
        name = node.id
        return lambda sizes: sizes[name]
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        operator = _OPERATORS[type(node.op)]
        return _binary(operator, node.left, node.right, text, names)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 2 and not node.keywords:
        function = _FUNCTIONS.get(node.func.id)
        if function is not None:
            return _binary(function, node.args[0], node.args[1], text, names)
    raise BuildError(
        f"grid expression {text!r}: {ast.unparse(node)!r} is not allowed; use integers, the axes {', '.join(sorted(names))},"
        f" + - * //, cdiv(a, b), min(a, b) and max(a, b)"
    )


def _binary(operator, left: ast.expr, right: ast.expr, text: str, names: frozenset[str]) -> Expression:
    a, b = _compile(left, text, names), _compile(right, text, names)

    def value(sizes: Sizes) -> int:
        try:
            return operator(a(sizes), b(sizes))
        except ZeroDivisionError:
            raise BuildError(f"grid expression {text!r} divides by zero for sizes {dict(sizes)}") from None

    return value
