"""Canonical bodies: one digest however a function is spelled, never one digest for two functions."""

import os
import random
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentinductor.codegen.reference import evaluate
from agentinductor.schema import Axis, Definition, Node, TensorSpec
from agentinductor.schema.body import COMMUTATIVE
from agentinductor.schema.canonical import canonicalize, simplify

AXES = (Axis("rows"), Axis("cols", 4, True))
BINARY = ("add", "mul", "maximum", "sub", "div", "minimum")
UNARY = ("neg", "tanh", "abs", "sigmoid")
NUMBERS = (2, 2.0, 1.0, 0.5, -0.0, 0.0, 3)


def random_program(rng: random.Random, inputs: int = 3, length: int = 6):
    """(inputs, body, outputs, results): pointwise ops over look-alike inputs, and sums over their rows."""
    specs = [TensorSpec(f"a{i}", ("rows", "cols"), "float32") for i in range(inputs)]
    values = {spec.name: spec.shape for spec in specs}
    body = []
    for i in range(length):
        kind = rng.random()
        full = [name for name, axes in values.items() if "cols" in axes]
        if kind < 0.2:
            node = Node(f"n{i}", rng.choice(("sum", "amax", "mean")), (rng.choice(full),), "float32", ("rows",), (("axes", ("cols",)),))
        elif kind < 0.4:
            operand = rng.choice(list(values))
            node = Node(f"n{i}", rng.choice(UNARY), (operand,), "float32", values[operand])
        else:
            first, second = rng.choice(list(values)), rng.choice([*values, rng.choice(NUMBERS)])
            args = (first, second) if rng.random() < 0.7 else (second, first)
            axes = ("rows", "cols") if "cols" in values[first] + values.get(second, ()) else ("rows",)
            node = Node(f"n{i}", rng.choice(BINARY), args, "float32", axes)
        body.append(node)
        values[node.name] = node.axes
    results = [body[-1].name, rng.choice(body).name][: rng.choice((1, 2))]
    outputs = [TensorSpec(f"b{i}", values[name], "float32") for i, name in enumerate(results)]
    return specs, body, outputs, results


def define(specs, body, outputs, results) -> tuple[Definition, list[int], list[int]]:
    body, results = simplify(body, results, {spec.name: spec.dtype for spec in specs})
    inputs, nodes, new_outputs, new_results, in_order, out_order = canonicalize(specs, body, outputs, results)
    return Definition(AXES, inputs, nodes, new_outputs, new_results), in_order, out_order


def respelled(rng: random.Random, specs, body, outputs, results):
    """The same function: inputs, outputs, nodes and commutative operands in another order, other names."""
    waiting, done, moved = list(body), {spec.name for spec in specs}, []
    while waiting:
        node = rng.choice([n for n in waiting if set(n.operands) <= done])
        waiting.remove(node)
        done.add(node.name)
        moved.append(replace(node, args=node.args[::-1]) if node.op in COMMUTATIVE and rng.random() < 0.5 else node)
    names = dict(zip(sorted(done), rng.sample([f"z{i}" for i in range(len(done))], len(done)), strict=True))
    moved = [replace(n, name=names[n.name], args=tuple(names[a] if isinstance(a, str) else a for a in n.args)) for n in moved]
    specs = [replace(spec, name=names[spec.name]) for spec in specs]
    pairs = list(zip(outputs, [names[r] for r in results], strict=True))
    rng.shuffle(specs)
    rng.shuffle(pairs)
    return specs, moved, [spec for spec, _ in pairs], [name for _, name in pairs]


def mutated(rng: random.Random, specs, body, outputs, results):
    """One small change: an op, an operand, a number, an operand order, a result."""
    at = rng.randrange(len(body))
    node = body[at]
    change = rng.randrange(4)
    earlier = [spec.name for spec in specs] + [n.name for n in body[:at] if n.axes == node.axes]
    if change == 0 and node.op in BINARY:
        node = replace(node, op=rng.choice(BINARY))
    elif change == 1:
        node = replace(node, args=node.args[::-1])
    elif change == 2 and len(node.args) == 2:
        number = rng.choice(NUMBERS)
        node = replace(node, args=(node.args[0], number)) if isinstance(node.args[0], str) else node
    elif node.op in BINARY:
        fits = [name for name in earlier if name.startswith("n") or "cols" in node.axes]
        node = replace(node, args=(rng.choice(fits), node.args[1])) if fits and isinstance(node.args[1], str) else node
    if "cols" in node.axes and not any("cols" in _axes(specs, body, a) for a in node.operands):
        return specs, body, outputs, results
    return specs, [*body[:at], node, *body[at + 1 :]], outputs, results


def _axes(specs, body, name: str) -> tuple[str, ...]:
    return next(item.shape if isinstance(item, TensorSpec) else item.axes for item in [*specs, *body] if item.name == name)


def same_function(first: Definition, second: Definition) -> bool:
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(3, 4, generator=generator) for _ in first.inputs]
    pairs = zip(evaluate(first, inputs), evaluate(second, inputs), strict=True)
    return all(torch.allclose(a, b, equal_nan=True) for a, b in pairs)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.integers(0, 2**32))
def test_spelling_does_not_matter(seed):
    rng = random.Random(seed)
    program = random_program(rng, rng.randint(1, 4), rng.randint(1, 9))
    assert define(*program)[0].digest == define(*respelled(rng, *program))[0].digest


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.integers(0, 2**32))
def test_one_digest_is_one_function(seed):
    rng = random.Random(seed)
    program = random_program(rng, rng.randint(1, 3), rng.randint(1, 7))
    first, second = define(*program)[0], define(*mutated(rng, *program))[0]
    if first.digest == second.digest:
        assert same_function(first, second)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.integers(0, 2**32))
def test_canonical_form_is_the_function(seed):
    """Inputs and outputs really stand in the orders that are given back."""
    rng = random.Random(seed)
    specs, body, outputs, results = random_program(rng, rng.randint(1, 4), rng.randint(1, 9))
    definition, in_order, out_order = define(specs, body, outputs, results)
    tensors = [torch.randn(3, 4) for _ in specs]
    plain = evaluate(Definition(AXES, tuple(specs), tuple(body), tuple(outputs), tuple(results)), tensors)
    for got, want in zip(evaluate(definition, [tensors[i] for i in in_order]), [plain[i] for i in out_order], strict=True):
        torch.testing.assert_close(got, want, equal_nan=True)


def test_uses_far_away_tell_inputs_apart():
    """x0 and x1 look alike but for what is done to a value made of x0, four ops later."""

    def program(first, second):
        body = [
            Node("t0", "neg", (first,), "float32", ("rows", "cols")),
            Node("t1", "neg", (second,), "float32", ("rows", "cols")),
            Node("t2", "add", ("t0", "t1"), "float32", ("rows", "cols")),
            Node("t3", "tanh", ("t0",), "float32", ("rows", "cols")),
        ]
        specs = [TensorSpec(name, ("rows", "cols"), "float32") for name in ("a", "b")]
        outputs = [TensorSpec(name, ("rows", "cols"), "float32") for name in ("y0", "y1")]
        return define(specs, body, outputs, ["t2", "t3"])[0].digest

    assert program("a", "b") == program("b", "a")


@pytest.mark.parametrize("numbers", [(0.0, -0.0), (1.0, float("nan")), (2.0, 2.0000000000000004), (float("inf"), -float("inf"))])
def test_numbers_that_differ(numbers):
    specs, outputs = [TensorSpec("a", ("rows", "cols"), "float64")], [TensorSpec("y", ("rows", "cols"), "float64")]
    first, second = (define(specs, [Node("n", "copysign", ("a", n), "float64", ("rows", "cols"))], outputs, ["n"])[0] for n in numbers)
    assert first.digest != second.digest


def test_hash_seed_does_not_matter():
    code = (
        "import random; from tests.unit.test_canonical import define, random_program;"
        "print([define(*random_program(random.Random(i)))[0].digest for i in range(20)])"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
