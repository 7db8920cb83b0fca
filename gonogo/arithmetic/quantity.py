"""Quantities: values of a replay with what is not known about them.

Each part broadcasts to the shape of the values: one number for a row costs one number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo.arithmetic.formats import Doubles

Array = NDArray[Any]
Labels = NDArray[np.intp]
ZERO: Doubles = np.zeros(())
TIE = 8.0
"""Standard deviations within which an error may lie, as a judge allows for an element."""


@dataclass(frozen=True)
class Shared:
    """The effect of a source's errors on a quantity's elements.

    Attributes:
        error: what one standard deviation of the source's element changes, with its sign.
        labels: which element of the source that is, as a flat index. Elements with one label share
            its error.
    """

    error: Doubles
    labels: Labels


@dataclass(frozen=True)
class Quantity:
    """Values of a node.

    Attributes:
        values: float64, or int64 or bool, as the node's kind says.
        noise: the variance of each element's own rounding.
        shared: the errors that elements share, by the id of the node whose error it is.
        slack: how far each element may be off otherwise, in either direction, such as by the
            rounding of a near tie to the other side.
    """

    values: Array
    noise: Doubles = field(default_factory=lambda: ZERO)
    shared: Mapping[int, Shared] = field(default_factory=dict)
    slack: Doubles = field(default_factory=lambda: ZERO)

    @property
    def is_certain(self) -> bool:
        """Whether nothing is unknown, by the form of the parts."""
        return not self.shared and is_zero(self.noise) and is_zero(self.slack)

    @property
    def variance(self) -> Doubles:
        """The variance of each element, what it shares with others included."""
        return sum_of(self.noise, *(np.square(part.error) for part in self.shared.values()))

    @property
    def reach(self) -> Doubles:
        """How far a right kernel's value may lie from each element."""
        variance = self.variance
        if is_zero(variance):
            return self.slack
        return sum_of(TIE * np.sqrt(variance), self.slack)


def is_zero(part: Doubles) -> bool:
    """Return whether a part says by its form that there is nothing."""
    return part.ndim == 0 and not part


def sum_of(*parts: Doubles) -> Doubles:
    """Return the sum of parts of a quantity, without a pass over those that are nothing."""
    total = ZERO
    for part in parts:
        if not is_zero(part):
            total = part if is_zero(total) else total + part
    return total


def scaled(part: Doubles, factor: Any) -> Doubles:
    """Return a part of a quantity times a factor."""
    return ZERO if is_zero(part) else np.asarray(part * factor)


def as_source(quantity: Quantity, source: int) -> Quantity:
    """Return a quantity whose own noise is a shared error, with the source's id.

    Needed before its elements are repeated or take part in several operations.
    """
    if is_zero(quantity.noise):
        return quantity
    shape = quantity.values.shape
    labels = np.arange(quantity.values.size).reshape(shape)
    own_error = Shared(np.sqrt(np.broadcast_to(quantity.noise, shape)), labels)
    return replace(quantity, noise=ZERO, shared={**quantity.shared, source: own_error})


def without_singles(quantity: Quantity) -> Quantity:
    """Return a quantity in which sources whose labels no two elements share are own noise."""
    noise, shared = quantity.noise, dict(quantity.shared)
    for source, part in quantity.shared.items():
        if part.labels.size == quantity.values.size:
            counts = np.bincount(part.labels.ravel())
            if counts.max(initial=0) <= 1:
                noise = sum_of(noise, np.square(part.error).reshape(quantity.values.shape))
                del shared[source]
    return replace(quantity, noise=noise, shared=shared)


def add_shared(into: dict[int, Shared], source: int, other: Shared) -> Doubles:
    """Add an error of a source to those of a quantity, in place.

    Where both have the same label, errors add with their signs. Where they come from different
    elements of the source, one of them is noise: its variance is returned.
    """
    first = into.get(source)
    if first is None:
        into[source] = other
        return ZERO
    if first.labels is other.labels:
        into[source] = Shared(first.error + other.error, first.labels)
        return ZERO
    same = first.labels == other.labels
    if same.all():
        labels = min(first.labels, other.labels, key=np.size)
        into[source] = Shared(first.error + other.error, labels)
        return ZERO
    is_free = ~same & (first.error == 0)
    labels = np.where(is_free, other.labels, first.labels)
    is_added = same | is_free
    into[source] = Shared(first.error + np.where(is_added, other.error, 0.0), labels)
    return np.where(is_added, 0.0, np.square(other.error))


def combined(parts: Sequence[tuple[Quantity, Any]], values: Array) -> Quantity:
    """Return a quantity of given values whose errors are sums of slope times error."""
    noise, slack = ZERO, ZERO
    shared: dict[int, Shared] = {}
    for quantity, slope in parts:
        if not is_zero(quantity.noise):
            noise = sum_of(noise, quantity.noise * np.square(slope))
        if not is_zero(quantity.slack):
            slack = sum_of(slack, quantity.slack * np.abs(slope))
        for source, part in quantity.shared.items():
            moved = Shared(scaled(part.error, slope), part.labels)
            noise = sum_of(noise, add_shared(shared, source, moved))
    return Quantity(values, noise, shared, slack)


def viewed(quantity: Quantity, values: Array, view: Callable[[Array], Array]) -> Quantity:
    """Return a quantity whose elements were moved by a view; values: the moved ones."""
    shape = quantity.values.shape

    def moved(part: Array) -> Array:
        return view(np.broadcast_to(part, shape))

    return Quantity(
        values,
        quantity.noise if is_zero(quantity.noise) else moved(quantity.noise),
        {
            source: Shared(moved(part.error), compact(moved(part.labels)))
            for source, part in quantity.shared.items()
        },
        quantity.slack if is_zero(quantity.slack) else moved(quantity.slack),
    )


def concatenated(quantities: Sequence[Quantity], values: Array, axis: int) -> Quantity:
    """Return quantities one behind the other along an axis."""

    def joined(parts: Sequence[Array]) -> Array:
        if all(is_zero(part) for part in parts):
            return ZERO
        full = [
            np.broadcast_to(part, quantity.values.shape)
            for part, quantity in zip(parts, quantities, strict=True)
        ]
        return np.concatenate(full, axis)

    nothing = Shared(ZERO, np.zeros((), np.intp))
    shared: dict[int, Shared] = {}
    for source in {source for quantity in quantities for source in quantity.shared}:
        parts = [quantity.shared.get(source, nothing) for quantity in quantities]
        labels = np.concatenate(
            [
                np.broadcast_to(part.labels, quantity.values.shape)
                for part, quantity in zip(parts, quantities, strict=True)
            ],
            axis,
        )
        shared[source] = Shared(joined([part.error for part in parts]), compact(labels))
    return Quantity(
        values,
        joined([quantity.noise for quantity in quantities]),
        shared,
        joined([quantity.slack for quantity in quantities]),
    )


def compact(labels: Labels) -> Labels:
    """Return labels with size 1 along each axis on which they are all the same."""
    for axis, size in enumerate(labels.shape):
        if size > 1:
            first = labels.take([0], axis)
            if (labels == first).all():
                labels = first
    return labels
