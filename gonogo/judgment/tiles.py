"""Tiles: which terms a wrong sum has counted, and how often.

The error of each of a sum's results is estimated from the output's values that depend on it. It is
compared with the sums over ranges of tiles, and over every p-th block of places, which cost no
evaluation of the kernel: differences of prefix sums.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo.arithmetic.formats import Doubles
from gonogo.faults.changes import SMALL, TILE, Array, Edit, Factor, Fault, Indices
from gonogo.faults.sums import counted, summed_axes
from gonogo.graph import OPERATIONS, Graph, Node
from gonogo.judgment.cells import Mask
from gonogo.judgment.effects import Effects

DIGIT = 8
"""Different sizes of a change, by which the result of a sum that an element depends on is told."""
MIN_SINGLE = 0.75
"""The share of the changed values that must depend on one result only."""
STEPS = 5
"""Newton steps of the estimates: an output may be far from linear in a sum."""
MIN_GROUPS = 4
"""Results of a sum from which its terms are compared."""
MIN_EACH = 16
"""Values that must depend on each result, if nothing but the results' errors is to be said."""
MAX_TERMS = 2**23
"""Terms of a sum that are looked at."""
BLOCKS = (1, 2, 4, 8, 16, 32, 64, 128)
PERIODS = range(2, 9)
"""Lengths of blocks, and how many of them make a period, in patterns of places."""
WIDTH = 4.0
"""Deviations within which a sum's error fits a choice of terms."""
PATTERNS, MAX_CHANCE = 1000, 0.05
"""About how many choices of terms there are besides ranges of tiles, and how likely one of them may
fit by chance for them to be tried."""
FLOOR = 1e-6
"""The least relative error of an estimate: wrong kernels have noise of their own."""


@dataclass(frozen=True)
class SumErrors:
    """The errors of a sum's results, as the output shows them.

    Attributes:
        node: the sum, in the whole graph.
        error: of each result, (groups,).
        deviation: of each estimate.
        value: the right results.
        terms: what is added, (groups, places), along one axis; None if it isn't looked at.
        axis: that axis of the sum's first operand, counted from the last (-1).
        share: of the misfit, that all errors together take away.
        is_free: whether they have far fewer numbers than the output has values.
    """

    node: Node
    error: Doubles
    deviation: Doubles
    value: Doubles
    terms: Doubles | None
    axis: int
    share: float
    is_free: bool

    @property
    def sentence(self) -> str:
        """The sentence about the errors where no terms explain them."""
        with np.errstate(all="ignore"):
            factors = 1 + self.error / self.value
        low, high = np.nanquantile(factors, (0.05, 0.95))
        ends = f"{low:.3g}", f"{high:.3g}"
        spread = f" ({ends[0]} to {ends[1]})" if ends[0] != ends[1] else ""  # few rows are wrong
        return f"{self.node.label} is wrong by no one factor{spread}."

    def faults(self) -> Iterator[Fault]:
        """Yield the ranges of tiles, and the patterns of places, that fit best."""
        if self.terms is None or len(self.error) < MIN_GROUPS or not np.isfinite(self.terms).all():
            return
        count = self.terms.shape[1]
        with np.errstate(all="ignore"):
            widths = WIDTH * self.deviation / np.abs(self.error)
        # so many ranges and patterns are tried that some fit a few rough errors by chance
        if np.nanprod(np.minimum(widths, 1.0)) * ((count // TILE) ** 2 + PATTERNS) > MAX_CHANCE:
            return
        yield from self._ranges(count)
        yield from self._tails(count)
        yield from self._patterns(count)

    @cached_property
    def _weights(self) -> Doubles:
        spread = np.square(self.deviation) + np.square(FLOOR * np.abs(self.value))
        return np.where(spread > 0, 1 / np.maximum(spread, 1e-300), 0.0)

    def _ranges(self, count: int) -> Iterator[Fault]:
        assert self.terms is not None
        edges = [*range(0, count, TILE), count]
        total = len(edges) - 1
        if total < 2:
            return
        prefix = np.concatenate(
            [np.zeros((len(self.error), 1)), np.cumsum(self.terms, axis=1)], axis=1
        )[:, edges]
        gram = (prefix * self._weights[:, None]).T @ prefix
        size = np.diag(gram)
        squares = size[:, None] + size - 2 * gram
        is_range = np.tri(total + 1, k=-1, dtype=bool)  # from the tile of the column to the row's
        is_range[total, 0] = False
        for kind, target, sign in self._kinds():
            along = prefix.T @ (self._weights * target)
            cost = squares - 2 * sign * (along[:, None] - along)
            stop, start = np.unravel_index(np.argmin(np.where(is_range, cost, np.inf)), cost.shape)
            here = np.zeros(count, bool)
            here[edges[start] : edges[stop]] = True
            at = f"tile {start}" if stop == start + 1 else f"tiles {start} to {stop - 1}"
            name = f"tile-{start}" if stop == start + 1 else f"tiles-{start}-{stop - 1}"
            yield self._fault(kind, here, f"{at} of {total} (counted from 0)", name)

    def _tails(self, count: int) -> Iterator[Fault]:
        places, unit = np.arange(count), self._unit
        lengths = range(2, min(TILE, count))
        names = [(f"the last {length} {unit}", f"last-{length}") for length in lengths]
        yield from self._best([places >= count - length for length in lengths], names)

    def _patterns(self, count: int) -> Iterator[Fault]:
        masks, names, places, unit = [], [], np.arange(count), self._unit
        for block in BLOCKS:
            for period in PERIODS:
                if 2 * block * period > count:
                    break
                for offset in range(period):
                    masks.append(places // block % period == offset)
                    first = block * offset
                    last = first + block - 1
                    within = f"{first} to {last}" if block > 1 else f"{first}"
                    text = f"{within} of every {block * period} {unit}"
                    names.append((text, f"every-{block}-{period}-{offset}"))
        yield from self._best(masks, names)

    @property
    def _unit(self) -> str:
        return {-1: "columns", -2: "rows"}.get(self.axis, "places")

    def _best(self, masks: list[Mask], names: list[tuple[str, str]]) -> Iterator[Fault]:
        """Yield the fault of each kind whose places fit best.

        names: of each mask's places: the words, and a part of the fault's id.
        """
        assert self.terms is not None
        if not masks:
            return
        sums = self.terms @ np.array(masks, np.float64).T
        for kind, target, sign in self._kinds():
            cost = np.square(target[:, None] - sign * sums).T @ self._weights
            best = int(np.argmin(cost))
            yield self._fault(kind, masks[best], *names[best])

    def _kinds(self) -> Iterator[tuple[str, Doubles, float]]:
        """Yield how terms may be counted: the error that they then are, and its sign."""
        yield "without", self.error, -1.0
        yield "twice", self.error, 1.0
        yield "only", self.error + self.value, 1.0

    def _fault(self, kind: str, here: Array, text: str, name: str) -> Fault:
        label, weights = {
            "without": (f"leaves out {text}", ~here),
            "twice": (f"counts {text} twice", 1 + here),
            "only": (f"sums only {text}", here),
        }[kind]
        return counted(f"{kind}-{name}", self.node, label, self.axis, weights)


def sum_errors(graph: Graph, effects: Effects) -> list[SumErrors]:
    """Return the errors of each sum's, product's and variance's results that can be estimated."""
    estimates = []
    for node in graph.needed(effects.sample.output):
        if OPERATIONS[node.operation].family not in ("sum", "product") or node.kind != "float":
            continue
        errors = _errors(node, effects)
        if errors is not None:
            estimates.append(errors)
    return estimates


def _errors(node: Node, effects: Effects) -> SumErrors | None:
    labels = _labels(node, effects)
    if labels is None:
        return None
    sample = effects.sample
    value = sample.base.values[node.id]
    fits: Doubles = np.zeros(value.size)
    says = labels >= 0
    at = labels[says]
    information = np.zeros(value.size)

    def effect(factors: NDArray[Any]) -> Doubles:
        edit = Edit(sample.part.nodes[node.id], Factor(factors.reshape(value.shape)))
        return sample.effect_of({node.id: edit})

    best, share = fits, 0.0
    for _ in range(STEPS):
        now = effect(fits)
        slope = (effect(fits + SMALL) - now)[says] / SMALL
        weights = np.where(np.isfinite(slope), effects.weights[says], 0.0)
        slope = np.where(np.isfinite(slope), slope, 0.0)
        rest = np.where(np.isfinite(now), effects.error - now, 0.0)[says]
        information[:] = np.bincount(at, weights * slope**2, value.size)
        projected = np.bincount(at, weights * slope * rest, value.size)
        with np.errstate(all="ignore"):
            change = np.where(information > 0, projected / information, 0.0)
        fits = fits + change
        better = effects.share(effect(fits))
        if better > share:
            best, share = fits, better
    has = information > 0
    flat = value.ravel()[has]
    terms, axis = _terms(node, effects, np.flatnonzero(has))
    return SumErrors(
        node,
        best[has] * flat,
        np.abs(flat) / np.sqrt(information[has]),
        flat,
        terms,
        axis,
        share,
        effects.size >= MIN_EACH * max(int(has.sum()), 1) and has.sum() >= MIN_GROUPS,
    )


def _labels(node: Node, effects: Effects) -> Indices | None:
    """Return which result of a sum each value of the output depends on; -1: none, or several.

    The results are changed by different sizes; the size of the effect says which one it was.
    """
    sample = effects.sample
    part_node = sample.part.nodes[node.id]
    value = sample.base.values[node.id]
    numbers = np.arange(value.size)

    def effect(factors: NDArray[Any]) -> Doubles:
        edit = Edit(part_node, Factor(factors.reshape(value.shape)))
        return sample.effect_of({node.id: edit})

    unit = effect(np.full(value.size, SMALL**2))
    depends = np.isfinite(unit) & (unit != 0)
    if not depends.any():
        return None
    labels = np.zeros(unit.shape, np.intp)
    power, is_own = 1, depends.copy()
    while power < max(value.size, 2):
        digits = numbers // power % DIGIT
        with np.errstate(all="ignore"):
            ratio = effect(SMALL**2 * (1 + digits)) / unit - 1
        ratio = np.where(np.isfinite(ratio), ratio, -1.0)
        digit = np.rint(ratio).astype(np.intp)
        is_own &= (np.abs(ratio - digit) < 0.2) & (digit >= 0) & (digit < DIGIT)
        labels += digit * power
        power *= DIGIT
    if is_own.sum() < MIN_SINGLE * depends.sum():
        return None
    return np.where(is_own & (labels < value.size), labels, -1)


def _terms(node: Node, effects: Effects, results: Indices) -> tuple[Doubles | None, int]:
    """Return the terms of a sum's results along its longest axis, (results, places)."""
    sample = effects.sample
    axes = summed_axes(node)
    if not axes or node.operation == "einsum":
        return None, -1
    axis = max(axes, key=lambda summed_axis: node.args[0].shape[summed_axis])
    args = [sample.base.values[arg.id] for arg in node.args]
    count = args[0].shape[axis]
    if count * len(results) > MAX_TERMS:
        return None, axis
    if node.operation == "matmul":
        shape = sample.base.values[node.id].shape
        *batch, row, column = np.unravel_index(results, shape)
        left = np.broadcast_to(args[0], (*shape[:-2], *args[0].shape[-2:]))
        right = np.broadcast_to(args[1], (*shape[:-2], *args[1].shape[-2:]))
        return left[(*batch, row)] * right.swapaxes(-1, -2)[(*batch, column)], axis
    every = tuple(summed_axis for summed_axis in node.attributes["axes"])
    terms = args[0]
    if node.operation == "var":
        terms = np.square(terms - terms.mean(every, keepdims=True))
    if node.operation != "sum":
        divisor = int(np.prod([terms.shape[summed_axis] for summed_axis in every]))
        terms = terms / (divisor - node.attributes.get("ddof", 0))
    others = tuple(summed_axis for summed_axis in every if summed_axis != axis + terms.ndim)
    partial = np.moveaxis(terms.sum(others, keepdims=True), axis, -1)
    return partial.reshape(-1, count)[results], axis
