"""Errors that elements share: estimates of each source's errors, by the groups that share them.

A source's error a has the deviation 1, and an element's error is P a + noise, with the replay's
pattern P. The best estimate is (I + M)^-1 P'W e with M = P'W P and the precision W of the noise.
Its own variance, where there is nothing but rounding, is M (I + M)^-1.

Sources with equal groups are estimated together, and with those of which each group has one error
only. Where a group has smaller groups inside, their errors are eliminated first. The errors of
groups that cross are noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gonogo.arithmetic import Quantity, Shared
from gonogo.arithmetic.formats import Doubles
from gonogo.arithmetic.quantity import Labels
from gonogo.judgment.cells import Cells, Mask

LEAST_EIGENVALUE = 1e-11
"""Relative to the largest: float64 knows nothing about directions with a smaller one."""
LEAST_SPREAD = 1e-9
"""The variance from which on an estimate says something; its prior variance is 1."""


@dataclass(frozen=True)
class Estimates:
    """Estimates of a source's errors, one per group.

    Attributes:
        source: the id of the node whose error it is.
        labels: the elements of the source, as flat indices.
        sizes: the estimates, in deviations of the source's own rounding.
        spreads: their variances.
    """

    source: int
    labels: Labels
    sizes: Doubles
    spreads: Doubles

    @property
    def says(self) -> Mask:
        """Which groups' elements say something about the error."""
        return self.spreads > LEAST_SPREAD

    @property
    def largest(self) -> float:
        """The largest estimate in its own deviations."""
        with np.errstate(invalid="ignore", divide="ignore"):
            scores = np.where(self.says, np.abs(self.sizes) / np.sqrt(self.spreads), 0.0)
        return float(scores.max(initial=0.0))


class Groups:
    """Elements of an output in groups of equal labels; groups are counted from 0."""

    def __init__(self, labels: Labels, shape: Sequence[int]) -> None:
        """Number the groups of labels that broadcast to a shape."""
        self.shape = tuple(shape)
        full = labels.reshape((1,) * (len(self.shape) - labels.ndim) + labels.shape)
        self.labels, inverse = np.unique(full, return_inverse=True)
        self.index = inverse.reshape(full.shape)
        self.count = len(self.labels)
        is_grid = self.count == full.size
        self.axes = tuple(i for i, size in enumerate(full.shape) if size == 1) if is_grid else None
        """The axes that a group spans, where each group is a slice of the output."""

    @cached_property
    def every(self) -> Labels:
        """The group of each element, flat."""
        every: Labels = np.broadcast_to(self.index, self.shape).ravel()
        return every

    def sums(self, part: Doubles) -> Doubles:
        """Return the sum over each group of an array that broadcasts to the shape."""
        full = np.broadcast_to(part, self.shape)
        if self.axes is None:
            return np.bincount(self.every, full.ravel(), self.count).astype(np.float64)
        total = np.empty(self.count)
        total[self.index.ravel()] = full.sum(self.axes).ravel()
        return total

    def products(self, parts: Sequence[Doubles], weights: Doubles) -> Doubles:
        """Return the sums of the products of parts, (groups, parts, parts)."""
        result = np.empty((self.count, len(parts), len(parts)))
        for i, first in enumerate(parts):
            weighted = first * weights
            for j, second in enumerate(parts[: i + 1]):
                result[:, i, j] = result[:, j, i] = self.sums(weighted * second)
        return result

    def parents(self, larger: Groups) -> Labels | None:
        """Return which larger group each group lies in; None if some lie in several."""
        if self.count < larger.count:
            return None
        result = np.zeros(self.count, np.intp)
        result[self.every] = larger.every
        return result if (result[self.every] == larger.every).all() else None


@dataclass(frozen=True)
class _Level:
    """Sources with equal groups."""

    groups: Groups
    sources: tuple[int, ...]


@dataclass(frozen=True)
class _Information:
    """Per group: M and P'W e of some sources."""

    matrix: Doubles
    projected: Doubles


def shared_errors(cells: Cells) -> list[Estimates]:
    """Return the estimates of the errors of every source that elements of an output share."""
    quantity = cells.replay
    levels = _levels(quantity)
    result = []
    for at, level in enumerate(levels):
        coarser = [
            source
            for other in levels[at + 1 :]
            if level.groups.parents(other.groups) is not None
            for source in other.sources
        ]
        sources = (*level.sources, *coarser)
        sizes, spreads = _solved(_information(cells, levels[: at + 1], sources))
        result += [
            Estimates(source, level.groups.labels, sizes[:, k], spreads[:, k])
            for k, source in enumerate(level.sources)
        ]
    return result


def _levels(quantity: Quantity) -> list[_Level]:
    """Return the sources by equal groups, those with the smallest groups first."""
    by_labels: list[tuple[Shared, list[int]]] = []
    for source, part in quantity.shared.items():
        for first, others in by_labels:
            if first.labels is part.labels or np.array_equal(first.labels, part.labels):
                others.append(source)
                break
        else:
            by_labels.append((part, [source]))
    shape = quantity.values.shape
    levels = [_Level(Groups(part.labels, shape), tuple(sources)) for part, sources in by_labels]
    return sorted(levels, key=lambda level: -level.groups.count)


def _information(cells: Cells, levels: Sequence[_Level], sources: Sequence[int]) -> _Information:
    """Return the elements' information about sources, by the groups of the last level.

    The errors of smaller groups inside these are eliminated; others are noise.
    """
    *finer, level = levels
    for at in reversed(range(len(finer))):
        parents = finer[at].groups.parents(level.groups)
        if parents is not None:
            inner = _information(cells, finer[: at + 1], (*finer[at].sources, *sources))
            return _eliminated(inner, len(finer[at].sources), parents, level.groups.count)
    shared = cells.replay.shared
    others = [np.square(shared[source].error) for source in shared if source not in sources]
    weights = cells.precision
    if others:
        variance = cells.own_variance + sum(others)
        with np.errstate(divide="ignore", invalid="ignore"):
            weights = np.where(np.isfinite(variance) & (variance > 0), 1 / variance, 0.0)
    patterns = [np.where(np.isfinite(shared[s].error), shared[s].error, 0.0) for s in sources]
    weighted = cells.error * weights
    projected = np.stack([level.groups.sums(weighted * p) for p in patterns], axis=1)
    return _Information(level.groups.products(patterns, weights), projected)


def _eliminated(inner: _Information, count: int, parents: Labels, groups: int) -> _Information:
    """Return information about the sources behind the first `count`, which are eliminated."""
    matrix_of_sources = np.eye(count) + inner.matrix[:, :count, :count]
    across = inner.matrix[:, :count, count:]
    right_hand = np.concatenate([across, inner.projected[:, :count, None]], axis=2)
    solved = np.swapaxes(across, 1, 2) @ np.linalg.solve(matrix_of_sources, right_hand)
    matrix = np.zeros((groups, across.shape[2], across.shape[2]))
    projected = np.zeros((groups, across.shape[2]))
    np.add.at(matrix, parents, inner.matrix[:, count:, count:] - solved[:, :, :-1])
    np.add.at(projected, parents, inner.projected[:, count:] - solved[:, :, -1])
    return _Information(matrix, projected)


def _solved(information: _Information) -> tuple[Doubles, Doubles]:
    """Return the estimates and their variances, (groups, sources)."""
    values, vectors = np.linalg.eigh(information.matrix)
    values = np.where(values > LEAST_EIGENVALUE * values[:, -1:], values, 0.0)
    along = np.einsum("gji,gj->gi", vectors, information.projected)
    along = np.where(values > 0, along / (1 + values), 0.0)
    estimates = np.einsum("gji,gi->gj", vectors, along)
    spreads = np.einsum("gji,gi->gj", np.square(vectors), values / (1 + values))
    return estimates, spreads
