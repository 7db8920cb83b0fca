"""Effects: how faults change a sample of an output, and how much of the misfit that takes away."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gonogo.arithmetic.formats import Doubles, round_to
from gonogo.faults.changes import Fault
from gonogo.judgment.cells import FARTHEST, LIMIT, Cells, Mask, misfit_of
from gonogo.judgment.sample import Sample

LOOSE = 2.0
"""Deviations beyond its cell within which an element allows a size."""
REFUTED = 0.01
"""The share of the values that a fault makes wrong though they were right, from which they may
refute it."""
REFUTING_RATIO = 2.0
"""They do refute it if right values become wrong this many times as often as wrong ones stay wrong:
what a kernel stores besides makes both wrong equally often."""
SIZED, PAIRED = 2**11, 2**13
"""Elements from which a size is found, and from which two faults at once are chosen."""


class Effects:
    """The effects of faults on a sample, beside an output.

    Attributes:
        sample: the part of the kernel.
        error: output - replay; 0 where one of them isn't finite.
        allowed: half a cell and the slack.
        deviation: of the replay, with what elements share.
    """

    def __init__(self, sample: Sample, cells: Cells, region: Mask | None = None) -> None:
        """Prepare the effects of faults that a kernel has everywhere, or in a region only.

        region: a mask of the whole output's shape.
        """
        self.sample = sample
        self._known: dict[int, tuple[Fault, Doubles]] = {}
        self._region = None if region is None else sample.part_of(region)
        part_of = sample.part_of
        self.allowed = part_of(cells.half + cells.replay.slack)
        self.deviation = np.maximum(part_of(cells.deviation), np.finfo(np.float64).tiny)
        self._form = cells.form
        self._values, self._replay = part_of(cells.values), part_of(cells.replay.values)
        self._odd = ~np.isfinite(self._values) | ~np.isfinite(self._replay)
        self.error = np.where(self._odd, 0.0, part_of(cells.error))
        with np.errstate(all="ignore"):
            weights = 1 / (np.square(self.deviation) + np.square(self.allowed) / 3)
        self.weights: Doubles = np.where(np.isfinite(weights) & ~self._odd, weights, 0.0)
        distance = self.distance_with(np.zeros(self.error.shape))
        self.misfit, self._is_right = misfit_of(distance), distance <= LIMIT

    def of(self, fault: Fault) -> Doubles:
        """Return a fault's effect on the sample. It is computed once."""
        if id(fault) not in self._known:
            # the fault, too: nothing else gets its id
            self._known[id(fault)] = fault, self.computed(fault)
        return self._known[id(fault)][1]

    def computed(self, fault: Fault) -> Doubles:
        """Return the same, and don't keep it: for a fault that is looked at once."""
        effect = self.sample.effect(fault)
        return effect if self._region is None else np.where(self._region, effect, 0.0)

    @property
    def size(self) -> int:
        """How many values of the output the sample has."""
        return self.error.size

    def share(self, effect: Doubles) -> float:
        """Return the share of the misfit that an effect takes away; below 0 where it adds to it."""
        return 1 - misfit_of(self.distance_with(effect)) / self.misfit if self.misfit else 0.0

    def refutes(self, effect: Doubles) -> bool:
        """Return whether values that were right, and become wrong by an effect, speak against it.

        Some become wrong by the effect of a true fault, too, where the kernel also stores values.
        """
        is_off = self.distance_with(effect) > LIMIT
        made_wrong = self._is_right & is_off
        if made_wrong.mean() <= REFUTED:
            return False
        left = is_off[~self._is_right].mean() if not self._is_right.all() else 0.0
        return bool(made_wrong.sum() > REFUTING_RATIO * left * self._is_right.sum())

    def distance_with(self, effect: Doubles) -> Doubles:
        """Return the distance of the output from the replay with an effect, in deviations."""
        with np.errstate(all="ignore"):
            beyond = np.abs(self.error - effect) - self.allowed
            distance = np.maximum(beyond, 0.0) / self.deviation
            odd = self._odd | ~np.isfinite(effect)
            if odd.any():
                wrong = round_to(self._replay[odd] + effect[odd], self._form)
                given = self._values[odd]
                same = (given == wrong) | (np.isnan(given) & np.isnan(wrong))
                distance[odd] = np.where(same, 0.0, FARTHEST)
        return np.where(np.isnan(distance), FARTHEST, distance)

    def multiple(self, effect: Doubles) -> float:
        """Return the multiple of an effect that most elements allow."""
        with np.errstate(all="ignore"):
            center = self.error / effect
            width = (self.allowed + LOOSE * self.deviation) / np.abs(effect)
            says = np.isfinite(center) & np.isfinite(width) & ~self._odd
            center, width = center[says], width[says]
        if not center.size:
            return np.nan
        if center.size > SIZED:
            at = np.linspace(0, center.size - 1, SIZED).astype(int)
            center, width = center[at], width[at]
        ends = np.concatenate([center - width, center + width])
        order = np.argsort(ends, kind="stable")
        inside = np.cumsum(np.where(order < center.size, 1, -1))
        best = int(np.argmax(inside))
        return float((ends[order[best]] + ends[order[min(best + 1, len(order) - 1)]]) / 2)

    def alignment(self, effect: Doubles, error: Doubles) -> float:
        """Return how much an effect points the way of an error, by the size of its cosine."""
        is_usable = np.isfinite(effect) & np.isfinite(error)
        effect, error = np.where(is_usable, effect, 0.0), np.where(is_usable, error, 0.0)
        product = float((self.weights * effect * error).sum())
        size = float((self.weights * np.square(effect)).sum())
        return abs(product) / size**0.5 if size else 0.0

    def left_by_pairs(self, moves: Sequence[Doubles]) -> Doubles:
        """Return the weighted square of the error that each two of some effects leave, (k, k)."""
        at = np.flatnonzero(self.weights)
        at = at[:: -(-at.size // PAIRED) or 1]
        scale = np.sqrt(self.weights.ravel()[at])
        rows = np.array([scale * move.ravel()[at] for move in (self.error, *moves)])
        products = np.where(np.isfinite(rows), rows, 0.0)
        products = products @ products.T
        alone = products.diagonal()[1:] - 2 * products[0, 1:]
        left: Doubles = products[0, 0] + alone + alone[:, None] + 2 * products[1:, 1:]
        return left
