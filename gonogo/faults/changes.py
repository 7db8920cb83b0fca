"""Changes: wrong values that take the place of right ones.

A fault is a change of a value, for all who use it or for one of them. A change says by its type
whether an element depends on others, so that it can be evaluated on a sample of a tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gonogo.arithmetic import value_of
from gonogo.arithmetic.formats import Doubles, Mode, round_to
from gonogo.graph import Mistake, Node

Array = NDArray[Any]
Indices = NDArray[np.intp]
Computed = Callable[[Node, Sequence[Array]], Array]
"""How an operation is computed from the values of its arguments: exactly, or as a device does."""
TILE = 32
"""Rows and columns of a tile, the unit in which most kernels work."""
SMALL = 2.0**-10
"""The size by which the slope of a fitted fault is measured: far above float64's rounding, far
below where an effect bends."""


class ValueChange(Protocol):
    """A function of a value that gives a wrong one, of the same shape."""

    def __call__(self, value: Array, *others: Array) -> Array: ...


@dataclass(frozen=True)
class Elementwise:
    """A change of each element alone."""

    function: Callable[..., Array]

    def __call__(self, value: Array, *others: Array) -> Array:
        return self.function(value, *others)


@dataclass(frozen=True)
class Factor:
    """A factor of 1 + size; an array's shape is that of the value."""

    size: float | Array = SMALL

    def __call__(self, value: Array, *others: Array) -> Array:
        return np.asarray(value * (1 + self.size))


@dataclass(frozen=True)
class Moved:
    """Elements in the place of others.

    Attributes:
        axis: that along which they move, counted from the last (-1).
        source: for each place on the axis, where its element comes from.
        is_added: whether they are added to those that stand there.
    """

    axis: int
    source: Indices
    is_added: bool = False

    def __call__(self, value: Array, *others: Array) -> Array:
        moved = value.take(self.source, self.axis)
        return np.asarray(value + moved) if self.is_added else moved


@dataclass(frozen=True)
class Weighted:
    """A factor for each place on an axis, counted from the last (-1)."""

    axis: int
    weights: Doubles

    def __call__(self, value: Array, *others: Array) -> Array:
        weights = self.weights.reshape(-1, *(1,) * (-self.axis - 1))
        # a weight of 0 leaves out: also what is infinite
        with np.errstate(invalid="ignore"):
            return np.where(weights == 0, 0.0, value * weights)


@dataclass(frozen=True)
class Edit:
    """The computation of a wrong kernel in the place of a node's operation.

    Attributes:
        node: the node, which may be that of a part of the graph.
        change: what becomes of a value.
        at: the arguments that are changed, by position: the fault is at one use of them. None: the
            node's own value is changed, for all who use it.
        others: nodes whose values the change takes, too.
    """

    node: Node
    change: ValueChange
    at: tuple[int, ...] | None = None
    others: tuple[Node, ...] = ()

    def __call__(self, *values: Array) -> Array:
        return self.applied(value_of, *values)

    def applied(self, compute: Computed, *values: Array) -> Array:
        """Return the wrong value of the node, whose operation is computed as is said."""
        count = len(values) - len(self.others)
        args, others = values[:count], values[count:]
        if self.at is None:
            value = compute(self.node, args) if self.node.args else args[0]
            return self.change(value, *others)
        changed = [self.change(arg, *others) if k in self.at else arg for k, arg in enumerate(args)]
        return compute(self.node, changed)

    @property
    def changed(self) -> Node:
        """The node whose value is changed."""
        return self.node if self.at is None else self.node.args[self.at[0]]


@dataclass(frozen=True)
class Replaced:
    """Another operation in the place of a node's, element by element or on axes that aren't cut."""

    function: Callable[..., Array]

    def __call__(self, *args: Array) -> Array:
        return np.asarray(self.function(*args))


@dataclass(frozen=True)
class Mistaken:
    """An output of a wrong function, of the same inputs, in the place of the kernel's own."""

    mistake: Mistake


@dataclass(frozen=True)
class Fault:
    """An edit of a kernel's graph.

    Attributes:
        id: stable data, such as "twice:s1@P_centered": the change, the value, and its user.
        label: the sentence that says what is wrong.
        edits: by the id of a node, what is computed in its place.
        is_fitted: whether its size has to be found; its edits then have the size SMALL.
    """

    id: str
    label: str
    edits: Mapping[int, Edit | Replaced | Mistaken]
    is_fitted: bool = False

    @property
    def of_operations(self) -> dict[int, Edit | Replaced]:
        """The edits of single operations; a mistake has none."""
        return {id: edit for id, edit in self.edits.items() if not isinstance(edit, Mistaken)}

    def sized(self, size: float) -> Fault:
        """Return a fitted fault of the given size, which is that of its factor less 1."""
        edits: dict[int, Edit | Replaced | Mistaken] = {}
        for id, edit in self.edits.items():
            assert isinstance(edit, Edit)
            edits[id] = replace(edit, change=Factor(size))
        factor = f"{1 + size:.7g}" if abs(size) < 0.01 else f"{1 + size:.4g}"
        if abs(size) < 1e-6:
            factor = f"1 {'-' if size < 0 else '+'} {abs(size):.2g}"
        label = self.label.replace("another factor", f"a factor of {factor}")
        return Fault(self.id, label, edits)


def changed_value(id: str, node: Node, label: str, change: ValueChange) -> Fault:
    """Return the fault that a node's value is changed for all who use it."""
    edits = {node.id: Edit(node, change)}
    return Fault(f"{id}:{node.key}", f"{node.label} {label}", edits, isinstance(change, Factor))


def rounded(form: str, mode: Mode = "even") -> ValueChange:
    """Return the change of a value that is stored in a format."""
    return Elementwise(lambda value: round_to(value, form, mode))


def instead(value: Array, other: Array) -> Array:
    """Return another node's value in the place of one, in its shape."""
    return np.broadcast_to(other, value.shape)


def stored_as_int8(value: Array) -> Array:
    """Return a value in int8, with the scale that its largest element takes."""
    finite = np.abs(value[np.isfinite(value)])
    largest = float(finite.max(initial=0.0))
    return round_to(value, f"int8:{largest / 127!r}") if largest else value


def shift(count: int, by: int) -> Indices:
    """Return sources by which each place takes the element that lies `by` places before it."""
    return (np.arange(count) - by) % count
