"""Replay matrix products and einsum: sums of products, whose orders are simulated on samples."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from string import ascii_letters

import numpy as np
from numpy.typing import NDArray

from gonogo.arithmetic.elementwise import rounding_noise
from gonogo.arithmetic.formats import Doubles
from gonogo.arithmetic.program import Program
from gonogo.arithmetic.quantity import (
    ZERO,
    Array,
    Labels,
    Quantity,
    Shared,
    add_shared,
    is_zero,
    sum_of,
)
from gonogo.arithmetic.reductions import unknown_orders
from gonogo.arithmetic.sums import fp32_sum, narrow_noise
from gonogo.arithmetic.values import value_of
from gonogo.graph import Node

SAMPLED_SUMS = 256
"""Elements of a product whose sums are simulated; the others have the same relative noise."""
PIECES = 8
"""Parts of a sum at whose ends its partial sums are computed: some go far, and come back."""


@dataclass(frozen=True)
class _Letters:
    """The axes of a product's operands and result, a letter each."""

    operands: tuple[str, str]
    result: str

    @property
    def summed(self) -> str:
        """The letters that the result doesn't have."""
        return "".join(sorted({*self.operands[0], *self.operands[1]} - {*self.result}))

    def labels(self, labels: Labels, at: int, shape: tuple[int, ...]) -> Labels | None:
        """Return an operand's labels on the result's axes; None if its summed terms differ."""
        labels = labels.reshape((1,) * (len(shape) - labels.ndim) + labels.shape)
        sizes = dict(zip(self.operands[at], labels.shape, strict=True))
        if any(sizes.get(letter, 1) > 1 for letter in self.summed):
            return None
        order = [letter for letter in self.operands[at] if letter not in self.summed]
        plain = labels.reshape([sizes[letter] for letter in order])
        moved = plain.transpose(np.argsort([self.result.index(letter) for letter in order]))
        return moved.reshape([sizes.get(letter, 1) for letter in self.result])


def _letters(node: Node) -> _Letters:
    if node.operation == "einsum":
        operands, _, result = node.attributes["subscripts"].partition("->")
        first, _, second = operands.partition(",")
        return _Letters((first, second), result)
    batch = ascii_letters[3:]
    first, second = (batch[: len(arg.shape) - 2][::-1] for arg in node.args)
    return _Letters((f"{first}ab", f"{second}bc"), f"{max(first, second, key=len)}ac")


def product(node: Node, a: Quantity, b: Quantity, program: Program) -> Quantity:
    """Return the quantity of a product from those of its operands."""
    rule, letters = program.tensix_rule(node), _letters(node)
    noise: Doubles = ZERO
    slack: Doubles = ZERO
    if rule is not None:
        values = rule.computed(node, (a.values, b.values)).astype(np.float64)
    else:
        values = value_of(node, (a.values, b.values))
        if node.kind != "float":
            return Quantity(values)
    if rule is None or program.is_of_card:
        noise = _order_noise(node, letters, a.values, b.values, values, program)
    shared: dict[int, Shared] = {}
    for at, (operand, other) in enumerate(((a, b.values), (b, a.values))):

        def through(
            part: Doubles, factor: Array, at: int = at, like: Array = operand.values
        ) -> Doubles:
            """Return the product with a part in the operand's place."""
            if is_zero(part):
                return ZERO
            full = np.broadcast_to(part, like.shape)
            return value_of(node, (full, factor) if at == 0 else (factor, full))

        noise = sum_of(noise, through(operand.noise, np.square(other)))
        slack = sum_of(slack, through(operand.slack, np.abs(other)))
        for source, part in operand.shared.items():
            labels = letters.labels(part.labels, at, operand.values.shape)
            if labels is None:
                noise = sum_of(noise, through(np.square(part.error), np.square(other)))
            else:
                change = Shared(through(part.error, other), labels)
                noise = sum_of(noise, add_shared(shared, source, change))
    return Quantity(values, noise, shared, slack)


def _order_noise(
    node: Node, letters: _Letters, a: Array, b: Array, values: Doubles, program: Program
) -> Doubles:
    """Return the variance that the order of a product's sums gives, and its result's rounding."""
    count = int(np.prod(values.shape, dtype=int))
    sampled = np.unique(np.linspace(0, count - 1, min(count, SAMPLED_SUMS)).astype(int))
    terms = _terms(letters, a, b, values.shape, sampled)
    if not terms.size:
        return ZERO
    rule = program.tensix_rule(node)
    if rule is not None:
        variance = unknown_orders(terms, rule)
    elif program.narrow and program.narrow_sums:
        variance = np.square(narrow_noise(terms, program.narrow))
    else:
        # most kernels add to one total; others may round a product before they add it
        running, deviation = fp32_sum(terms, "running")
        products = np.square(terms - terms.astype(np.float32)).sum(axis=1)
        error = np.maximum(deviation, np.abs(running - terms.sum(axis=1)))
        variance = np.square(error) + products
    partial = _partial_sums(node, letters, a, b, values)
    of_sampled = partial.ravel()[sampled]
    has_terms = of_sampled > 0
    relative = (variance[has_terms] / of_sampled[has_terms]).mean() if has_terms.any() else 0.0
    form = program.narrow or "fp32"
    noise: Doubles = partial * relative + rounding_noise(values, form)
    return noise


def _partial_sums(node: Node, letters: _Letters, a: Array, b: Array, values: Doubles) -> Doubles:
    """Return the mean square of each sum's partial sums from either end: what roundings scale with.

    They are computed at the ends of pieces. Within a piece they are taken for a random walk's.
    """
    ends = _ends(letters, (a, b))
    squares = value_of(node, (np.square(a), np.square(b))) / (6 * max(len(ends) - 1, 1))
    partial: Doubles = np.zeros(values.shape)
    for start, stop in pairwise(ends):
        piece = slice(start, stop)
        first, second = (
            operand[tuple(piece if x == letters.summed[0] else slice(None) for x in names)]
            for operand, names in zip((a, b), letters.operands, strict=True)
        )
        partial = partial + value_of(node, (first, second))
        both = np.square(partial) + np.square(values - partial)
        squares = squares + both / (2 * (len(ends) - 1))
    return squares


def _ends(letters: _Letters, operands: tuple[Array, Array]) -> list[int]:
    """Return the ends of the pieces of the first summed axis; [] where nothing is summed."""
    sizes = [
        size
        for operand, names in zip(operands, letters.operands, strict=True)
        for name, size in zip(names, operand.shape, strict=True)
        if name in letters.summed[:1]
    ]
    if not sizes:
        return []
    return sorted({int(end) for end in np.linspace(0, max(sizes), PIECES + 1)})


def _terms(
    letters: _Letters, a: Array, b: Array, shape: tuple[int, ...], sampled: NDArray[np.intp]
) -> Doubles:
    """Return the terms (samples, n) of elements of a product, by their places in all of it."""
    if not sampled.size:
        return np.zeros((0, 0))
    sizes: dict[str, int] = {}
    for operand, names in zip((a, b), letters.operands, strict=True):
        for name, size in zip(names, operand.shape, strict=True):
            sizes[name] = max(size, sizes.get(name, 1))
    summed = letters.summed
    extents = [sizes[name] for name in summed]
    grid = np.indices(extents).reshape(len(summed), 1, int(np.prod(extents)))
    index = dict(zip(summed, grid, strict=True))
    places = np.unravel_index(sampled, shape)
    index.update({name: place[:, None] for name, place in zip(letters.result, places, strict=True)})

    def chosen(operand: Array, names: str) -> Array:
        # an axis of size 1 serves all places
        at = [index[name] % size for name, size in zip(names, operand.shape, strict=True)]
        part: Array = operand[tuple(at)]
        return part

    terms: Doubles = chosen(a, letters.operands[0]) * chosen(b, letters.operands[1])
    return np.broadcast_to(terms, (len(sampled), grid.shape[-1])).astype(np.float64)
