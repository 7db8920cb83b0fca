"""y of a kernel that normalizes rows, fitted row by row with some gamma and beta."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gonogo.kernels.layernorm.forensics import outliers
from gonogo.kernels.layernorm.forensics.forward_sums import Forward
from gonogo.kernels.layernorm.forensics.sums import Array, RowFit
from gonogo.numerics.blocks import over_rows
from gonogo.numerics.diagnosis import Term

ELEMENTS = 2**18
"""Elements of a block of rows. Its few float64 matrices fit the processor's cache."""


def blocks(seed: Forward) -> tuple[int, int]:
    """Return (rows, rows of a block)."""
    return len(seed.x), max(1, ELEMENTS // seed.x.shape[1])


@dataclass(frozen=True)
class Fitted:
    """y fitted row by row with one gamma and beta.

    `energy` is what the fit leaves over, `unit` y's rounding; both are sums of squares.
    """

    gamma: Array
    beta: Array | None
    fit: RowFit
    energy: float
    unit: float
    terms: float
    """The part of the error that the fitted factor and constant remove."""

    @property
    def noise(self) -> float:
        """The rest of the fit, in units of y's rounding."""
        return float(np.sqrt(self.energy / self.unit)) if self.unit > 0 else np.nan


def fitted(seed: Forward, gamma: Array, beta: Array | None) -> Fitted:
    """Fit y - beta on {gamma x^, gamma} in each row."""
    rows = seed.sums(gamma, beta)
    fit = seed.fit(rows, 1.0)
    with np.errstate(all="ignore"):
        tv, tu, tt = seed.without_beta(rows, 1.0)
        slope = np.where(np.isfinite(fit.slope), fit.slope, 1.0)
        left = np.maximum(tt - slope * tu - fit.constant * tv, 0.0)
        away = slope - 1.0
        moved = away**2 * rows.uu + fit.constant**2 * rows.vv + 2 * away * fit.constant * rows.uv
        usable = np.isfinite(left) & (rows.yy > 0)
        unit = float((seed.precision.rounding**2 * rows.yy)[usable].sum())
        terms = float(np.nansum(np.maximum(moved, 0.0)[usable]))
    return Fitted(gamma, beta, fit, float(left[usable].sum()), unit, terms)


def used_normal(seed: Forward, fit: RowFit, start: int, stop: int) -> Array:
    """Return x^ as the kernel computed it, in rows start..stop."""
    here = slice(start, stop)
    slope = np.where(np.isfinite(fit.slope[here]), fit.slope[here], 1.0)[:, None]
    constant = np.where(np.isfinite(fit.constant[here]), fit.constant[here], 0.0)[:, None]
    mean, rstd = (a[here, None] for a in (seed.statistics.mean, seed.statistics.rstd))
    return np.asarray(slope * ((seed.x[here].astype(np.float64) - mean) * rstd) + constant)


def used_mean(seed: Forward, fit: RowFit) -> Array:
    """Return the mean of each row that y was computed with; NaN where a row can't tell."""
    with np.errstate(all="ignore"):
        slope = np.where(np.isfinite(fit.slope), fit.slope, 1.0)
        return np.asarray(seed.statistics.mean - fit.constant / (slope * seed.statistics.rstd))


def products(seed: Forward, fitted_y: Fitted, start: int, stop: int) -> tuple[Array, Array]:
    """Return gamma times the used x^, and beta, in rows start..stop."""
    gamma = seed.spread(fitted_y.gamma, start, stop)
    scaled = gamma * used_normal(seed, fitted_y.fit, start, stop)
    if fitted_y.beta is None:
        return scaled, np.zeros_like(scaled)
    return scaled, np.broadcast_to(seed.spread(fitted_y.beta, start, stop), scaled.shape)


def isolated(seed: Forward, fitted_y: Fitted) -> outliers.Places:
    """Return the isolated wrong values of y: columns by row."""
    assert seed.y is not None
    y_of, sigma_of = seed.y, fitted_y.fit.sigma

    def block(start: int, stop: int) -> dict[int, NDArray[np.int64]]:
        with np.errstate(all="ignore"):
            scaled, added = products(seed, fitted_y, start, stop)
            rest = y_of[start:stop].astype(np.float64) - scaled - added
            rest[~np.isfinite(rest)] = 0.0
            sigma = np.where(np.isfinite(sigma_of[start:stop]), sigma_of[start:stop], np.inf)
            return outliers.isolated(rest, np.abs(scaled) + np.abs(added), sigma, start)

    places: dict[int, NDArray[np.int64]] = {}
    for block_places in over_rows(block, *blocks(seed)):
        places |= block_places
    return places


def outlier_term(seed: Forward, fitted_y: Fitted, places: outliers.Places) -> Term:
    """Return the finding of isolated values."""

    def expected(row: int, columns: NDArray[np.int64]) -> Array:
        scaled, added = products(seed, fitted_y, row, row + 1)
        return np.asarray((scaled + added)[0, columns])

    return outliers.term("y", seed.y, places, expected)
