"""Cells: how far a replay lies outside the numbers that each value of an output stands for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo.arithmetic import TIE, Quantity
from gonogo.arithmetic.formats import Doubles, beyond_cell, half_cell, round_to

Mask = NDArray[np.bool_]

LIMIT = TIE
"""Deviations beyond its cell up to which an element, or what a group shares, is rounding: a normal
error is larger once in 10^15; real errors have longer tails."""
FLOOR = 2.0**-46
"""The accuracy of the replay's own float64, relative to the value."""
MISFIT_UNIT = 4.0
"""Deviations from where on a distance counts in the misfit."""
FARTHEST = 1e12
"""The distance that infinite ones count as in the misfit."""


@dataclass(frozen=True)
class Cells:
    """An output beside a replay of it; arrays have the output's shape.

    Attributes:
        values: the output, float64.
        replay: the replay's quantity of it.
        form: the format of the values.
        flush: whether the program turns subnormal numbers into 0.
    """

    values: Doubles
    replay: Quantity
    form: str
    flush: bool = False

    @cached_property
    def error(self) -> Doubles:
        """The values less the replay; 0 where one of them isn't finite."""
        with np.errstate(invalid="ignore"):
            error = self.values - self.replay.values
        return np.where(np.isfinite(error), error, 0.0)

    @cached_property
    def half(self) -> Doubles:
        """Half the width of each cell, on the side of the replay."""
        return half_cell(self.values, self.replay.values, self.form, flush=self.flush)

    @cached_property
    def deviation(self) -> Doubles:
        """The standard deviation of the replay, what elements share included."""
        with np.errstate(over="ignore"):
            given = np.where(np.isinf(self.values), 0.0, np.abs(self.values))
            floor = FLOOR * np.maximum(np.abs(self.replay.values), given)
            return np.sqrt(self.replay.variance + np.square(floor))

    @cached_property
    def distance(self) -> Doubles:
        """How many deviations the replay lies outside each cell; inf for a wrong inf or NaN."""
        beyond = beyond_cell(self.values, self.replay.values, self.form, flush=self.flush)
        with np.errstate(invalid="ignore", divide="ignore"):
            beyond = np.where(np.isfinite(beyond), beyond - self.replay.slack, beyond)
            distance = np.where(beyond > 0, beyond / self.deviation, 0.0)
        return np.where(np.isnan(distance), np.inf, distance)

    @property
    def largest(self) -> float:
        """The largest distance."""
        return float(self.distance.max(initial=0.0))

    @cached_property
    def outside(self) -> Mask:
        """Which elements are no rounding of the replay."""
        return self.distance > LIMIT

    @property
    def misfit(self) -> float:
        """The sum by which explanations compete.

        A single stray element counts, but not for thousands of others.
        """
        return misfit_of(self.distance)

    @cached_property
    def precision(self) -> Doubles:
        """1 / own_variance; 0 for elements that say nothing."""
        variance = self.own_variance
        with np.errstate(divide="ignore"):
            return np.where(np.isfinite(variance) & (variance > 0), 1 / variance, 0.0)

    @cached_property
    def own_variance(self) -> Doubles:
        """The variance of each error without what elements share; inf where it says nothing.

        The output's own rounding is in it.
        """
        quantity = self.replay
        with np.errstate(invalid="ignore", over="ignore"):
            variance = quantity.noise + np.square(self.half) / 3 + np.square(quantity.slack)
            finite = np.isfinite(self.values) & np.isfinite(quantity.values)
        return np.where(finite & ~np.isnan(variance), variance, np.inf)

    def moved(self, effect: Any) -> Cells:
        """Return the cells beside the replay with an effect added to it."""
        replay = Quantity(
            self.replay.values + effect, self.replay.noise, self.replay.shared, self.replay.slack
        )
        return Cells(self.values, replay, self.form, self.flush)


def misfit_of(distance: Doubles) -> float:
    """Return the sum of log(1 + (distance / MISFIT_UNIT)^2)."""
    return float(np.log1p(np.square(np.minimum(distance, FARTHEST) / MISFIT_UNIT)).sum())


def rounding_ratio(cells: Cells, exact: Doubles) -> float:
    """Return the largest error, relative to the largest that the replay's arithmetic may have.

    At most about 1 where the arithmetic explains the output, and proportional to the error where it
    doesn't. Values that aren't finite are left out: they are counted elsewhere.
    """
    replay = cells.replay
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(cells.values - exact)
        allowed = np.abs(replay.values - exact) + cells.half + replay.slack
        allowed = allowed + LIMIT * cells.deviation
        ratio = error / allowed
    return float(ratio[np.isfinite(ratio)].max(initial=0.0))


def squares(cells: Cells, exact: Doubles) -> tuple[float, float]:
    """Return the sums of the squares of an output's errors and of its exact values.

    The output format's own rounding is no error.
    """
    rounded = round_to(exact, cells.form)
    finite = np.isfinite(cells.values) & np.isfinite(rounded)
    error = cells.values[finite] - rounded[finite]
    return float(np.square(error).sum()), float(np.square(exact[finite]).sum())
