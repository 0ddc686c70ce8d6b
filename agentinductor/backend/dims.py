"""Dims and axes: finds the loop axes of a region by unifying the dims of its values.

Each dim of each value is a product of atoms. Pointwise ops unify the dims of their operands, views only regroup
them, and reshapes split an atom in two where they must. What is left at the end are the region's axes.
"""

from collections.abc import Sequence

from torch.fx.experimental.symbolic_shapes import statically_known_true

from ..errors import UnsupportedRegionError
from ..schema import Reason


class Atom:
    """One axis in the making. `size` in elements, int or SymInt."""

    __slots__ = ("size", "parent", "halves", "frozen")

    def __init__(self, size, frozen: bool = False):
        self.size = plain(size)
        self.parent: Atom | None = None
        self.halves: tuple[Atom, Atom] | None = None  # (outer, inner) once split
        self.frozen = frozen  # a slice, cat or iota counts along it: it cannot be split or merged

    def find(self) -> "Atom":
        atom = self
        while atom.parent is not None:
            atom = atom.parent
        return atom


def plain(size):
    """An int where the size is a number after all: a quotient of symbolic sizes may be."""
    return int(size) if not isinstance(size, int) and size.node.expr.is_number else size


Dim = tuple[Atom, ...]


def known_equal(a, b) -> bool:
    return a == b if isinstance(a, int) and isinstance(b, int) else statically_known_true(a == b)


def known_multiple(a, b) -> bool:
    if isinstance(a, int) and isinstance(b, int):
        return b != 0 and a % b == 0
    return statically_known_true(a % b == 0)


def known_within(size, low: int, high: int, most: int) -> bool:
    """Is `size` known to lie in [low, high]? A symbolic size is at most `most`."""
    if isinstance(size, int):
        return low <= size <= high
    return statically_known_true(size >= low) and (most <= high or statically_known_true(size <= high))


def is_one(size) -> bool:
    size = plain(size)
    return isinstance(size, int) and size == 1


def hint(size) -> int:
    """A concrete size to order and bucket by."""
    return size if isinstance(size, int) else int(size.node.hint)


def leaves(atoms: Sequence[Atom]) -> list[Atom]:
    """The atoms behind `atoms`, splits followed, outermost first."""
    out: list[Atom] = []
    for atom in atoms:
        atom = atom.find()
        out.extend(leaves(atom.halves) if atom.halves else [atom])
    return out


def fresh_dims(sizes: Sequence) -> list[Dim]:
    """A new atom for each dim; dims of size 1 have none."""
    return [() if is_one(size) else (Atom(size),) for size in sizes]


def split(atom: Atom, inner) -> tuple[Atom, Atom]:
    """Split a leaf into (size / inner, inner)."""
    if atom.frozen:
        raise UnsupportedRegionError(Reason.UNSUPPORTED_SHAPE, "a reshape splits an axis that a slice or cat runs along")
    atom.halves = (Atom(atom.size // inner), Atom(inner))
    return atom.halves


def unify(first: Sequence[Atom], second: Sequence[Atom]) -> None:
    """Make two dims of the same size the same axes. Raises UnsupportedRegionError where the factors do not fit."""
    left, right = leaves(first), leaves(second)
    while left and right:
        a, b = left.pop().find(), right.pop().find()
        if a is b:
            continue
        if known_equal(a.size, b.size):
            union(a, b)
        elif known_multiple(a.size, b.size):
            outer, inner = split(a, b.size)
            union(inner, b)
            left.append(outer)
        elif known_multiple(b.size, a.size):
            outer, inner = split(b, a.size)
            union(inner, a)
            right.append(outer)
        else:
            raise UnsupportedRegionError(Reason.UNSUPPORTED_SHAPE, f"dims of {a.size} and {b.size} elements do not factor alike")
    if left or right:
        raise UnsupportedRegionError(Reason.UNSUPPORTED_SHAPE, "dims of unequal sizes meet")


def union(a: Atom, b: Atom) -> None:
    if a is b:
        return
    if isinstance(b.size, int) and not isinstance(a.size, int):
        a, b = b, a  # keep the static size
    a.frozen = a.frozen or b.frozen
    b.parent = a


def regroup(dims: Sequence[Dim], sizes: Sequence) -> list[Dim]:
    """The dims of a reshape to `sizes`."""
    rest = leaves([atom for dim in dims for atom in dim])
    out: list[Dim] = []
    for size in reversed(list(sizes)):
        taken: list[Atom] = []
        remaining = size
        while not is_one(remaining):
            if not rest:
                raise UnsupportedRegionError(Reason.UNSUPPORTED_SHAPE, "a reshape does not fit its operand")
            atom = rest.pop().find()
            if known_equal(atom.size, remaining):
                remaining = 1
            elif known_multiple(remaining, atom.size):
                remaining = remaining // atom.size
            elif known_multiple(atom.size, remaining):
                outer, atom = split(atom, remaining)
                rest.append(outer)
                remaining = 1
            else:
                raise UnsupportedRegionError(Reason.UNSUPPORTED_SHAPE, f"a reshape cuts {atom.size} into {size}")
            taken.insert(0, atom)
        out.insert(0, tuple(taken))
    if rest:
        raise UnsupportedRegionError(Reason.UNSUPPORTED_SHAPE, "a reshape does not fit its operand")
    return out
