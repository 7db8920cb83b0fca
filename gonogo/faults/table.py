"""Faults: one table of edits of a kernel's graph, which is what wrong kernels compute.

It serves the emulator's wrong builds, the diagnosis, the detection limits and the exact inputs. It
knows operations, and no kernel. Tiles, rows and columns are counted from 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from gonogo.arithmetic.formats import format_and_mode, unit_roundoff
from gonogo.faults.changes import (
    TILE,
    Array,
    Edit,
    Elementwise,
    Factor,
    Fault,
    Mistaken,
    Moved,
    Replaced,
    ValueChange,
    Weighted,
    changed_value,
    instead,
    rounded,
    shift,
    stored_as_int8,
)
from gonogo.faults.sums import faults_of_sum
from gonogo.graph import OPERATIONS, Graph, Node
from gonogo.graph.operations import decode_constant

EPSILONS = (1e-2, 1e-3, 1e-5, 1e-6, 1e-8, 1e-12)
"""Values that libraries use for the parameter that keeps a root or a quotient finite."""
LARGEST_EPSILON = 0.05
"""Parameters up to this size may be such a parameter."""
FITTED = "has another factor"

STORED: Mapping[str, str] = {
    "stored-bf16": "bf16",
    "stored-cut-bf16": "bf16/zero",
    "stored-fp16": "fp16",
    "stored-tf32": "tf32",
    "stored-cut-tf32": "tf32/zero",
    "stored-fp8": "fp8_e4m3",
}
"""How a value may be kept, by the fault's id: its format, and the rounding if not to nearest."""
FORMAT_NAMES = {"tf32": "TF32", "fp8_e4m3": "fp8"}
MAY_STORE = ("stored-bf16", "stored-fp16", "stored-tf32")
"""The ways of these in which a right kernel with 16-bit tensors may store any value."""


def is_storing(fault: Fault, narrow: Sequence[str] = ()) -> bool:
    """Return whether a fault is to store a value as a right kernel with 16-bit tensors may.

    narrow: the formats of its tensors: nothing is stored with fewer digits than they all have.
    """
    kind = fault.id.partition(":")[0]
    most = max((unit_roundoff(form) for form in narrow), default=np.inf)
    return kind in MAY_STORE and unit_roundoff(format_and_mode(STORED[kind])[0]) <= most


def is_of_input(fault: Fault) -> bool:
    """Return whether a fault changes an input."""
    edits = fault.edits.values()
    return any(isinstance(edit, Edit) and edit.changed.operation == "input" for edit in edits)


def _negated(value: Array) -> Array:
    return -value


def _inverted(value: Array) -> Array:
    return 1 / value


def _doubled(value: Array) -> Array:
    return 2 * value


def _squared(value: Array) -> Array:
    return np.square(value)


def _one_plus(value: Array) -> Array:
    return 1 + value


def _filled(filling: float) -> Callable[[Array], Array]:
    return lambda value: np.full_like(value, filling)


@dataclass(frozen=True)
class Misuse:
    """A wrong use of an operand: the operation, the operands' positions, and what becomes of it."""

    id: str
    operation: str
    at: tuple[int, ...]
    label: str
    function: Callable[[Array], Array]


MISUSES = (
    Misuse("missing", "add", (0, 1), "{value} is missing in {user}", _filled(0)),
    Misuse("sign", "add", (0, 1), "{value} is subtracted in {user}", _negated),
    Misuse("twice", "add", (0, 1), "{value} is added twice in {user}", _doubled),
    Misuse("missing", "subtract", (0, 1), "{value} is missing in {user}", _filled(0)),
    Misuse("sign", "subtract", (0,), "{value} has the wrong sign in {user}", _negated),
    Misuse("sign", "subtract", (1,), "{value} is added in {user}", _negated),
    Misuse("twice", "subtract", (0,), "{value} counts twice in {user}", _doubled),
    Misuse("twice", "subtract", (1,), "{value} is subtracted twice in {user}", _doubled),
    Misuse("missing", "multiply", (0, 1), "{value} is missing in {user}", _filled(1)),
    Misuse("twice", "multiply", (0, 1), "{value} is a factor twice in {user}", _squared),
    Misuse(
        "inverse", "multiply", (0, 1), "{value} divides instead of multiplying in {user}", _inverted
    ),
    Misuse("plus-one", "multiply", (0, 1), "{user} takes 1 + {value} for {value}", _one_plus),
    Misuse("missing", "divide", (0, 1), "{value} is missing in {user}", _filled(1)),
    Misuse("twice", "divide", (1,), "{value} divides twice in {user}", _squared),
    Misuse(
        "inverse", "divide", (1,), "{value} multiplies instead of dividing in {user}", _inverted
    ),
    Misuse("plus-one", "divide", (1,), "{user} takes 1 + {value} for {value}", _one_plus),
    Misuse("missing", "maximum", (0, 1), "{value} is missing in {user}", _filled(-np.inf)),
    Misuse("missing", "minimum", (0, 1), "{value} is missing in {user}", _filled(np.inf)),
)
"""Wrong uses of operands. A missing one is the number that changes nothing."""
COMPARISONS = {
    "less": np.less_equal,
    "less_equal": np.less,
    "greater": np.greater_equal,
    "greater_equal": np.greater,
}
"""Comparisons, and those that decide otherwise at the edge."""
UNSKIPPED = ("maximum", "where", "astype", "tril", "triu")
"""Elementwise operations whose absence is another entry's fault."""


def faults(graph: Graph, output: str) -> Iterator[Fault]:
    """Yield the faults that can reach an output of a kernel."""
    for mistake in graph.mistakes:
        if output in mistake.graph.outputs:
            edits = {graph.outputs[output].id: Mistaken(mistake)}
            yield Fault(mistake.id, mistake.label, edits)
    needed = graph.needed(output)
    ids = {node.id for node in needed}
    for node in needed:
        is_output = node is graph.outputs[output]
        yield from _faults_of_uses(graph, node)
        family = OPERATIONS[node.operation].family
        if family in ("sum", "product", "scan"):
            yield from faults_of_sum(node)
        elif family == "elementwise":
            yield from _faults_of_operation(node)
        elif family == "view":
            yield from _faults_of_indices(node)
        if node.operation == "parameter":
            yield from _faults_of_parameter(node)
        elif node.kind == "bool":
            yield from _faults_of_mask(node)
        if node.kind == "float" and (node.name or node.args):
            yield from _faults_of_value(node)
        users = [user for user in graph.users(node) if user.id in ids]
        if is_output or (node.kind == "float" and node.args and len(users) > 1):
            yield from _unwritten(node)


def _changed_use(
    id: str, value: Node, user: Node, label: str, change: ValueChange, at: tuple[int, ...]
) -> Fault:
    """Return the fault that one user takes a changed value; label: the sentence."""
    edits = {user.id: Edit(user, change, at)}
    where = f"{value.key}@{user.key}"
    return Fault(f"{id}:{where}", label, edits, isinstance(change, Factor))


def _faults_of_uses(graph: Graph, node: Node) -> Iterator[Fault]:
    """Yield the faults of a node's operands, and those of values that have other users, too."""
    for misuse in MISUSES:
        if misuse.operation != node.operation or node.kind != "float":
            continue
        for position in misuse.at:
            value = node.args[position]
            if position and value is node.args[0]:  # a square: both operands are the same
                continue
            label = misuse.label.format(value=value.label, user=node.label)
            misused = Elementwise(misuse.function)
            yield _changed_use(misuse.id, value, node, label, misused, (position,))
    for value in dict.fromkeys(node.args):
        if value.kind == "float" and len(graph.users(value)) > 1:
            at = tuple(k for k, arg in enumerate(node.args) if arg is value)
            for id, text, change in _changes(value):
                label = f"{value.label} {text} where {node.label} takes it"
                yield _changed_use(id, value, node, label, change, at)
            if OPERATIONS[value.operation].family == "elementwise":
                yield from _bypasses(value, node, at)


def _bypasses(value: Node, user: Node, at: tuple[int, ...]) -> Iterator[Fault]:
    """Yield the faults that one user takes what a value was computed from in its place."""
    for operand in dict.fromkeys(value.args):
        if operand.shape == value.shape and operand.kind == "float":
            label = f"{user.label} takes {operand.label} for {value.label}"
            edit = Edit(user, Elementwise(instead), at, (operand,))
            yield Fault(f"bypass-{operand.key}:{value.key}@{user.key}", label, {user.id: edit})


def _changes(value: Node) -> Iterator[tuple[str, str, ValueChange]]:
    """Yield wrong values in the place of a value: an id, what a label says, and the change."""
    yield "factor", FITTED, Factor()
    for id, store in STORED.items():
        form, mode = format_and_mode(store)
        text = "is truncated to" if mode == "zero" else "is stored in"
        yield id, f"{text} {FORMAT_NAMES.get(form, form)}", rounded(form, mode)
    yield "stored-int8", "is stored in int8", Elementwise(stored_as_int8)
    rank = len(value.shape)
    for axis in range(rank - 1):
        count = value.shape[axis]
        if count < 2:
            continue
        at, along = axis - rank, "" if axis == rank - 2 else f" along axis {axis}"
        suffix = "" if axis == rank - 2 else f"-{axis}"
        last = np.arange(count)
        last[-1] = 0
        yield f"before{suffix}", f"is that of the row before{along}", Moved(at, shift(count, 1))
        yield f"after{suffix}", f"is that of the row after{along}", Moved(at, shift(count, -1))
        first = np.zeros(count, np.intp)
        yield f"first{suffix}", f"is that of the first row in all rows{along}", Moved(at, first)
        yield f"wrapped{suffix}", f"is that of the first row in the last{along}", Moved(at, last)
    if value.operation == "input" and rank:
        count = value.shape[-1]
        for by in (1, -1, TILE, -TILE):
            if abs(by) < count:
                text = f"is read {abs(by)} columns too {'early' if by > 0 else 'late'}"
                yield f"shifted{by:+d}", text, Moved(-1, shift(count, by))


def _faults_of_value(node: Node) -> Iterator[Fault]:
    for id, text, change in _changes(node):
        yield changed_value(id, node, text, change)
    if node.operation == "input":
        yield changed_value("ones", node, "is taken as ones", Elementwise(np.ones_like))
        yield changed_value("zeros", node, "is taken as zeros", Elementwise(np.zeros_like))


def _faults_of_operation(node: Node) -> Iterator[Fault]:
    """Yield the faults that an operation is left out, or is another one."""
    name = node.operation
    if len(node.args) == 1 and node.kind == "float" and name not in UNSKIPPED:
        label = f"{node.label} is {node.args[0].label}, without {name}"
        yield Fault(f"skipped:{node.key}", label, {node.id: Replaced(lambda value: value)})
    if name == "sqrt" and node.args[0].operation == "add":
        sum_, epsilon = node.args[0], node.args[0].args[1]
        if epsilon.operation == "parameter":
            number = float(decode_constant(**epsilon.attributes))
            label = f"{epsilon.label} is added outside the root in {node.label}"

            def outside(shifted: Array) -> Array:
                return np.sqrt(np.maximum(shifted - number, 0.0)) + number

            yield Fault(f"outside:{epsilon.key}@{sum_.key}", label, {node.id: Replaced(outside)})
    if name in ("tril", "triu"):
        k = node.attributes["k"]
        for by in (1, -1):
            moved = partial(OPERATIONS[name].value, k=k + by)
            label = f"the mask of {node.label} is off by one: {k + by} instead of {k}"
            yield Fault(f"mask{by:+d}:{node.key}", label, {node.id: Replaced(moved)})
        label = f"the mask of {node.label} is missing"
        yield Fault(f"unmasked:{node.key}", label, {node.id: Replaced(lambda value: value)})


def _faults_of_mask(node: Node) -> Iterator[Fault]:
    """Yield the faults of a value of True and False."""
    for id, text, filling in (("true", "True", True), ("false", "False", False)):
        change = Elementwise(_filled(filling))
        yield changed_value(f"all-{id}", node, f"is {text} everywhere", change)
    yield changed_value("inverted", node, "is inverted", Elementwise(np.logical_not))
    if node.operation in COMPARISONS:
        other = COMPARISONS[node.operation]
        label = f"{node.label} is off by one: {other.__name__}, not {node.operation}"
        yield Fault(f"edge:{node.key}", label, {node.id: Replaced(other)})
    if node.operation == "input" and node.shape and node.shape[-1] > 1:
        for by in (1, -1):
            change_ = Moved(-1, shift(node.shape[-1], by))
            yield changed_value(f"shifted{by:+d}", node, f"is shifted by {by}", change_)


def _faults_of_parameter(node: Node) -> Iterator[Fault]:
    value = float(decode_constant(**node.attributes))
    yield changed_value("zero", node, "is left out", Elementwise(_filled(0.0)))
    if abs(value) > LARGEST_EPSILON or node.kind != "float":
        return
    for other in dict.fromkeys((*EPSILONS, 1000 * value, value / 1000)):
        if not np.isclose(other, value, rtol=1e-9, atol=0):
            text = f"is {other:g} instead of {value:g}"
            yield changed_value(f"is-{other:g}", node, text, Elementwise(_filled(other)))


def _faults_of_indices(node: Node) -> Iterator[Fault]:
    """Yield the faults of elements that are taken from elsewhere."""
    if node.operation in ("gather", "take_along_axis"):
        axes = node.attributes.get("axes", (node.attributes.get("axis"),))
        for at, (index, axis) in enumerate(zip(node.args[1:], axes, strict=True), 1):
            count = node.args[0].shape[axis]
            for by in (1, -1):

                def moved(value: Array, by: int = by, count: int = count) -> Array:
                    return (value + by) % count

                label = f"the index {index.label} of {node.label} is off by {by:+d}"
                yield _changed_use(f"index{by:+d}", index, node, label, Elementwise(moved), (at,))
            if index.shape and index.shape[0] > 1:
                before = Moved(-len(index.shape), shift(index.shape[0], 1))
                label = f"the index {index.label} of {node.label} is that of the row before"
                yield _changed_use("index-before", index, node, label, before, (at,))
    if node.operation == "slice":
        value = node.args[0]
        for axis, (start, stop, step) in enumerate(node.attributes["slices"]):
            count = value.shape[axis]
            if (start, stop, step) == (0, count, 1) or count < 2:
                continue
            for by in (1, -1):
                change: ValueChange = Moved(axis - len(value.shape), shift(count, by))
                label = f"{node.label} is taken {by:+d} elements off from {value.label}"
                yield _changed_use(f"index{by:+d}", value, node, label, change, (0,))


def _unwritten(node: Node) -> Iterator[Fault]:
    """Yield the faults that an output isn't written, or its last tile isn't."""
    if node.operation != "input":
        yield changed_value("unwritten", node, "is 0 everywhere", Elementwise(np.zeros_like))
    for axis, unit in ((-1, "columns"), (-2, "rows")):
        if len(node.shape) >= -axis and (count := node.shape[axis]) > TILE:
            last_start = (count - 1) // TILE * TILE
            change = Weighted(axis, (np.arange(count) < last_start).astype(np.float64))
            text = f"isn't written from {unit[:-1]} {last_start} on: its last tile of {unit}"
            yield changed_value(f"unwritten-{unit}", node, text, change)
