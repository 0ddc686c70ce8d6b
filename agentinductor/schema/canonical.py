"""Canonical bodies: two spellings of the same numerical function get one text, and so one digest.

What is unified: order of nodes and of commutative operands, x*x and pow(x, 2), copies and casts that change nothing,
common subexpressions, number formats, names. What is not: anything that changes rounding, such as where a cast sits.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from .axes import FLOATS, TensorSpec
from .body import COMMUTATIVE, Node, Operand
from .digest import canonical_json

_ROUNDS = 3  # of neighbourhood refinement, to tell apart operands that look alike


def simplify(body: Sequence[Node], results: Sequence[str], dtypes: Mapping[str, str]) -> tuple[list[Node], list[str]]:
    """Drop copies and no-op casts, spell powers as products, merge equal nodes. `dtypes`: of the inputs, by name."""
    alias: dict[Operand, Operand] = {}
    seen: dict[str, str] = {}
    kept: dict[str, Node] = {}
    types = dict(dtypes)

    def add(node: Node) -> str:
        raw = node.to_json()
        args = sorted(raw["args"], key=canonical_json) if node.op in COMMUTATIVE else raw["args"]
        key = canonical_json([node.op, args, node.dtype, raw["attrs"], list(node.axes)])
        if key not in seen:
            seen[key] = node.name
            kept[node.name] = node
            types[node.name] = node.dtype
        return seen[key]

    for node in body:
        args = tuple(_number(alias.get(a, a) if isinstance(a, str) else a, node.dtype, node.op) for a in node.args)
        node = replace(node, args=args)
        if node.op == "cast" and isinstance(args[0], str) and types[args[0]] == node.dtype:
            alias[node.name] = args[0]
        elif node.op == "pow" and args[1] in (2.0, 3.0) and isinstance(args[0], str) and types[args[0]] == node.dtype:
            square = add(replace(node, op="mul", args=(args[0], args[0])))
            alias[node.name] = square
            if args[1] == 3.0:
                cube = replace(node, name=node.name + "_cubed", op="mul", args=(square, args[0]))
                alias[node.name] = add(cube)
        else:
            alias[node.name] = add(node)
    return list(kept.values()), [str(alias.get(r, r)) for r in results]


def _number(operand: Operand, dtype: str, op: str) -> Operand:
    """2 and 2.0 are one number beside floats; comparisons keep what they were given."""
    if isinstance(operand, int) and not isinstance(operand, bool) and dtype in FLOATS and op != "cast":
        return float(operand)
    return operand


def canonicalize(
    inputs: Sequence[TensorSpec], body: Sequence[Node], outputs: Sequence[TensorSpec], results: Sequence[str]
) -> tuple[tuple[TensorSpec, ...], tuple[Node, ...], tuple[TensorSpec, ...], tuple[str, ...], list[int], list[int]]:
    """Canonical (inputs, body, outputs, results, input order, output order).

    Names become x0.., t0.., y0..; the orders say which given input or output each canonical one is. Inputs that no
    result needs are dropped.
    """
    nodes = {node.name: node for node in body}
    marks = _marks(inputs, body, outputs, results)
    output_order = sorted(range(len(outputs)), key=lambda i: (marks[results[i]], canonical_json(outputs[i].to_json()), i))
    by_name = {spec.name: i for i, spec in enumerate(inputs)}
    names: dict[str, str] = {}
    input_order: list[int] = []
    ordered: list[Node] = []

    def visit(name: str) -> None:
        stack = [(name, False)]
        while stack:
            current, ready = stack.pop()
            if current in names:
                continue
            if current in by_name:
                names[current] = f"x{len(input_order)}"
                input_order.append(by_name[current])
                continue
            node = nodes[current]
            args = tuple(sorted(node.args, key=lambda a: _operand_key(a, marks))) if node.op in COMMUTATIVE else node.args
            if ready:
                names[current] = f"t{len(ordered)}"
                renamed = tuple(names[a] if isinstance(a, str) else a for a in args)
                ordered.append(replace(node, name=names[current], args=renamed))
                continue
            stack.append((current, True))
            stack.extend((a, False) for a in reversed(args) if isinstance(a, str))

    for index in output_order:
        visit(results[index])
    new_inputs = tuple(replace(inputs[i], name=f"x{k}") for k, i in enumerate(input_order))
    new_outputs = tuple(replace(outputs[i], name=f"y{k}") for k, i in enumerate(output_order))
    return new_inputs, tuple(ordered), new_outputs, tuple(names[results[i]] for i in output_order), input_order, output_order


def _operand_key(operand: Operand, marks: Mapping[str, str]) -> tuple:
    """Names before numbers; names by structure, numbers by value."""
    return (0, marks[operand]) if isinstance(operand, str) else (1, str(operand))


def _hash(value) -> str:
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def _marks(inputs, body, outputs, results) -> dict[str, str]:
    """A structural hash for each value, from its operands up. Inputs that look alike are told apart by who uses them."""
    base = {spec.name: _hash(["input", list(spec.shape), spec.dtype, spec.layout]) for spec in inputs}
    near = _near(base, body, outputs, results)
    for _ in range(_ROUNDS):
        base = _refined(base, body, outputs, results)
    while len(set(base.values())) < len(base):
        base = _refined(_parted(base), body, outputs, results)
    far = _upward(body, base)
    return {name: near[name] + far[name] for name in far}


def _parted(base: Mapping[str, str]) -> dict[str, str]:
    """Alike after refinement is interchangeable: set one of the first such group apart, whichever."""
    count = Counter(base.values())
    mark = min(mark for mark, times in count.items() if times > 1)
    chosen = next(name for name in base if base[name] == mark)
    return {**base, chosen: _hash([mark, "first"])}


def _refined(base: Mapping[str, str], body: Sequence[Node], outputs, results) -> dict[str, str]:
    """The inputs' marks, with all that is made of each input, however far away, hashed in."""
    marks = _upward(body, base)
    uses: dict[str, list[str]] = {name: [] for name in marks}
    for spec, result in zip(outputs, results, strict=True):
        uses[result].append(_hash(["output", spec.to_json()]))
    for node in reversed(body):
        below = sorted(uses[node.name])
        for position, operand in enumerate(node.args):
            if isinstance(operand, str):
                slot = 0 if node.op in COMMUTATIVE else position
                uses[operand].append(_hash([slot, marks[node.name], below]))
    return {name: _hash([mark, sorted(uses[name])]) for name, mark in base.items()}


def _near(base: Mapping[str, str], body: Sequence[Node], outputs, results) -> dict[str, str]:
    """Marks by the inputs' immediate uses. They come first, so that kernels keep the digests they were made for."""
    marks = _upward(body, base)
    for _ in range(_ROUNDS):
        uses: dict[str, list[str]] = {name: [] for name in base}
        for node in body:
            for position, operand in enumerate(node.args):
                if operand in uses:
                    slot = 0 if node.op in COMMUTATIVE else position
                    uses[str(operand)].append(f"{slot}:{marks[node.name]}")
        for spec, result in zip(outputs, results, strict=True):
            if result in uses:
                uses[result].append(_hash(["output", spec.to_json()]))
        base = {name: _hash([base[name], sorted(used)]) for name, used in uses.items()}
        marks = _upward(body, base)
    return marks


def _upward(body: Sequence[Node], base: Mapping[str, str]) -> dict[str, str]:
    marks = dict(base)
    for node in body:
        raw = node.to_json()
        args = [marks[a] if isinstance(a, str) else raw["args"][i] for i, a in enumerate(node.args)]
        if node.op in COMMUTATIVE:
            args.sort(key=str)
        marks[node.name] = _hash([node.op, args, node.dtype, list(node.axes), raw["attrs"]])
    return marks
