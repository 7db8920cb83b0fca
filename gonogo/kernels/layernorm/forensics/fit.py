"""Least squares of the sums that a kernel used on the partial sums of each tile.

The coefficients say which tiles a reduction used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gonogo.kernels.layernorm.forensics.patterns import search

Array = NDArray[np.float64]

MAX_GROUPS = 1024
"""The most coefficients: with more tiles, neighbors are summed first (the solve is cubic)."""
SPARE_ROWS = 8
"""Rows beyond one per coefficient.

With them the residual still shows whether the coefficients describe the sums.
"""
GOOD_SCATTER = 1.6
"""Residual over expected rounding up to which coefficients describe the sums.

The expectation itself is about that good.
"""
UNIFORM_LIMIT = 6.0
"""Deviation, in standard deviations of the F ratio, up to which one coefficient is enough.

That is: as good as one per tile.
"""
ODD_ROW = 5.0
"""Residual of a row, in units of its rounding, from which it counts as not following the others."""
POWER = 8.0
"""A tile can be distinguished when dropping it would move the sums by this many units of rounding.

All rows count together.
"""

Method = Literal["tiles", "groups", "pattern", "total", "none"]


@dataclass(frozen=True)
class TileFit:
    """The coefficient of each tile's partial sum in the sums that a kernel used.

    It says how often the tile was used. `starts` are the first tiles (from 0) of the groups that
    have one coefficient each. A coefficient is NaN where the rows can't determine it. `total` is
    the one coefficient that all tiles share, and `uniform` says whether it does as well as one
    each. `scatter`: rms residual, in units of the expected rounding (NaN without spare rows).
    `odd`: rows that do not follow. `method`: how the coefficients were found; "total" means that
    only the total can be determined, for `reason`.
    """

    tiles: int
    starts: NDArray[np.int64]
    coefficients: Array
    errors: Array
    total: float
    total_error: float
    uniform: bool
    scatter: float
    rows: int
    odd: NDArray[np.int64]
    method: Method
    reason: str = ""

    @property
    def group(self) -> int:
        """Tiles per group (the last group may have fewer)."""
        return int(self.starts[1]) if len(self.starts) > 1 else max(1, self.tiles)


@dataclass(frozen=True)
class _Solution:
    coefficients: Array
    errors: Array
    scatter: float
    freedom: int
    determined: bool
    leftover: Array


def fit_tiles(partial: Array, used: Array, sigma: Array) -> TileFit:
    """Fit coefficients c with used_i = sum_t c_t partial_it.

    `partial` is (rows, tiles); `used` and its standard deviation `sigma` are (rows,). Rows with
    anything not finite, or sigma 0, are left out. There is one coefficient per tile where there are
    SPARE_ROWS more rows than tiles and the tiles can be distinguished; else a pattern that fits
    (patterns.py), else one per group of neighbors, else the total alone.
    """
    tiles = partial.shape[1]
    with np.errstate(all="ignore"):
        usable = (
            np.isfinite(used) & np.isfinite(sigma) & (sigma > 0) & np.isfinite(partial.sum(axis=1))
        )
        weighted = partial[usable] / sigma[usable, None]
        target = used[usable] / sigma[usable]
        usable[usable] = finite = np.isfinite(target) & np.isfinite(np.square(weighted).sum(axis=1))
        weighted, target = weighted[finite], target[finite]
    where = np.flatnonzero(usable)
    starts = np.arange(0, tiles, -(-tiles // MAX_GROUPS) or 1)
    if len(weighted):
        weighted = np.add.reduceat(weighted, starts, axis=1)
    return _Fitter(tiles, starts, where, weighted, target).fit()


class _Fitter:
    """The steps of `fit_tiles` on the weighted data."""

    def __init__(
        self,
        tiles: int,
        starts: NDArray[np.int64],
        where: NDArray[np.int64],
        weighted: Array,
        target: Array,
    ) -> None:
        self.tiles, self.starts, self.where, self.weighted, self.target = (
            tiles,
            starts,
            where,
            weighted,
            target,
        )
        whole = weighted.sum(axis=1)
        # a sum that cancels out is 0: its digits are the rounding of this very addition
        self.whole = np.where(np.abs(whole) > 1e-12 * np.abs(weighted).sum(axis=1), whole, 0.0)
        self.common = solve(self.whole[:, None], target)

    def fit(self) -> TileFit:
        """Return the first fit that holds, from the most detailed one down."""
        rows, groups = self.weighted.shape
        if not rows or not np.any(self.whole) or not np.isfinite(self.common.coefficients[0]):
            return self._result(
                np.full(groups, np.nan), np.full(groups, np.nan), "none", reason="its sums are zero"
            )
        if groups == 1:
            odd = self._odd_rows() if self.common.scatter > GOOD_SCATTER else None
            return self._uniform("tiles", odd) if odd is not None else self._uniform("tiles")
        telling = self._telling()
        if not telling.any():
            return self._uniform("total", reason=self._alike())
        if rows >= groups + SPARE_ROWS:
            per_tile = solve(self.weighted, self.target)
            if per_tile.determined:
                return self._full(per_tile, telling)
        if self.common.scatter <= GOOD_SCATTER:
            if self.common.freedom < 4:
                return self._uniform("total", reason="too few rows")
            if telling.mean() > 0.5:
                return self._uniform("pattern", telling=telling)
            return self._uniform("total", reason=self._alike())
        odd = self._odd_rows()
        if odd is not None:
            return self._uniform("pattern", odd, telling)
        return self._pattern(telling) or self._groups()

    def _full(self, per_tile: _Solution, telling: NDArray[np.bool_]) -> TileFit:
        """Return one coefficient per tile.

        Rows that stand apart are left out when the others agree on one coefficient.
        """
        if per_tile.scatter > GOOD_SCATTER:
            odd = self._odd_rows()
            if odd is not None:
                keep = np.ones(len(self.target), bool)
                keep[odd] = False
                without_odd = solve(self.weighted[keep], self.target[keep])
                if not (
                    keep.sum() >= len(without_odd.coefficients) + SPARE_ROWS
                    and without_odd.determined
                ):
                    return self._uniform("pattern", odd, telling)
                common = solve(self.whole[keep, None], self.target[keep])
                same = self._same(without_odd, keep)
                return self._result(
                    without_odd.coefficients,
                    without_odd.errors,
                    "tiles",
                    without_odd.scatter,
                    same,
                    odd,
                    common=common,
                )
        return self._result(
            per_tile.coefficients,
            per_tile.errors,
            "tiles",
            per_tile.scatter,
            self._same(per_tile, None),
        )

    def _same(self, solution: _Solution, keep: NDArray[np.bool_] | None) -> bool:
        """Return whether one common coefficient leaves as little as `solution` does.

        This is an F test, in its standard deviations.
        """
        whole, target = (
            (self.whole, self.target) if keep is None else (self.whole[keep], self.target[keep])
        )
        common = solve(whole[:, None], target)
        extra = int(np.isfinite(solution.coefficients).sum()) - 1
        left = float(solution.leftover @ solution.leftover)
        more = float(common.leftover @ common.leftover) - left
        noise = max(left / max(solution.freedom, 1), 1e-6)
        return bool(
            extra <= 0
            or more / noise <= extra + UNIFORM_LIMIT * np.sqrt(2.0 * extra) + UNIFORM_LIMIT
        )

    def _telling(self) -> NDArray[np.bool_]:
        """Return the groups whose absence the rows would show, apart from the total."""
        scale = float(self.whole @ self.whole)
        along = self.weighted.T @ self.whole
        apart = np.square(self.weighted).sum(axis=0) - along**2 / scale
        # what cancels out below double precision carries no information
        floor = 1e-9 * np.square(self.weighted).sum(axis=0)
        return np.asarray(
            (apart > np.maximum(floor, POWER**2)) & np.isfinite(apart), dtype=np.bool_
        )

    def _alike(self) -> str:
        if len(self.target) == 1:
            return "there is only one row"
        says = self.whole != 0
        spread = np.ptp(self.weighted[says] / self.whole[says, None], axis=0)
        return (
            "the rows are alike"
            if float(spread.max()) < 1e-6
            else "the tiles' sums are below the rounding"
        )

    def _odd_rows(self) -> NDArray[np.int64] | None:
        """Return the positions of the rows that stand apart; None without a majority.

        At least 60% of the rows must agree on one common coefficient.
        """
        if len(self.target) < 8:
            return None
        with np.errstate(all="ignore"):
            ratio = self.target / self.whole
        order = np.argsort(ratio)
        weight = np.cumsum(np.where(np.isfinite(ratio), np.abs(self.whole), 0.0)[order])
        guess = float(ratio[order[np.searchsorted(weight, weight[-1] / 2)]])
        for _ in range(20):
            good = np.abs(self.target - guess * self.whole) <= ODD_ROW * GOOD_SCATTER
            if good.mean() < 0.6 or not np.any(self.whole[good]):
                return None
            better = float(
                self.whole[good] @ self.target[good] / (self.whole[good] @ self.whole[good])
            )
            if better == guess:
                break
            guess = better
        left = self.target[good] - guess * self.whole[good]
        odd = np.flatnonzero(~good)
        apart = np.abs(self.target - guess * self.whole)[odd]
        if (
            not len(odd)
            or float(left @ left) / len(left) > GOOD_SCATTER**2
            or float(np.median(apart)) < 3 * ODD_ROW
        ):
            return None
        return odd

    def _pattern(self, telling: NDArray[np.bool_]) -> TileFit | None:
        pattern = search(self.weighted, self.target, telling, GOOD_SCATTER)
        if pattern is None:
            return None
        return self._result(pattern.coefficients, pattern.errors, "pattern", pattern.scatter)

    def _groups(self) -> TileFit:
        """Return one coefficient per group of neighbors, with as many groups as the rows allow."""
        rows, columns = self.weighted.shape
        size = 2
        while True:
            inner = np.arange(0, columns, size)
            if len(inner) == 1:
                return self._uniform("total", reason="too few rows")
            if rows >= len(inner) + SPARE_ROWS:
                per_group = solve(np.add.reduceat(self.weighted, inner, axis=1), self.target)
                if per_group.determined:
                    break
            size *= 2
        self.starts = self.starts[inner]
        if per_group.scatter > GOOD_SCATTER:
            return self._result(
                per_group.coefficients,
                per_group.errors,
                "groups",
                per_group.scatter,
                reason="fewer rows than tiles",
            )
        return self._result(
            per_group.coefficients,
            per_group.errors,
            "groups",
            per_group.scatter,
            self._same(per_group, None),
        )

    def _uniform(
        self,
        method: Method,
        odd: NDArray[np.int64] | None = None,
        telling: NDArray[np.bool_] | None = None,
        reason: str = "",
    ) -> TileFit:
        """Return the one common coefficient in every group, or in those that can be determined."""
        common = self.common
        if odd is not None:
            keep = np.ones(len(self.target), bool)
            keep[odd] = False
            common = solve(self.whole[keep, None], self.target[keep])
        groups = 1 if method == "total" else self.weighted.shape[1]
        if method == "total":
            self.starts = self.starts[:1]
        shown = np.ones(groups, bool) if telling is None else telling
        coefficients = np.where(shown, common.coefficients[0], np.nan)
        errors = np.where(shown, common.errors[0], np.nan)
        return self._result(coefficients, errors, method, common.scatter, True, odd, reason, common)

    def _result(
        self,
        coefficients: Array,
        errors: Array,
        method: Method,
        scatter: float = np.nan,
        uniform: bool = False,
        odd: NDArray[np.int64] | None = None,
        reason: str = "",
        common: _Solution | None = None,
    ) -> TileFit:
        common = common or self.common
        return TileFit(
            tiles=self.tiles,
            starts=self.starts,
            coefficients=coefficients,
            errors=errors,
            total=float(common.coefficients[0]),
            total_error=float(common.errors[0]),
            uniform=uniform,
            scatter=scatter,
            rows=len(self.target),
            odd=self.where[odd] if odd is not None else np.zeros(0, np.int64),
            method=method,
            reason=reason,
        )


def solve(weighted: Array, target: Array) -> _Solution:
    """Solve least squares through the scaled normal equations.

    Columns of zeros and undetermined directions give NaN. Standard errors come from the residual
    where there are SPARE_ROWS spare rows, else from the expected rounding.
    """
    rows, columns = weighted.shape
    norm = np.sqrt(np.square(weighted).sum(axis=0))
    alive = norm > 0
    coefficients, errors = np.full(columns, np.nan), np.full(columns, np.nan)
    if not alive.any():
        return _Solution(coefficients, errors, np.nan, rows, False, target)
    scaled = weighted[:, alive] / norm[alive]
    values, vectors = np.linalg.eigh(scaled.T @ scaled)
    determined = values > 1e-11 * values[-1]
    inverse = np.zeros_like(values)
    inverse[determined] = 1.0 / values[determined]
    solution = vectors @ (inverse * (vectors.T @ (scaled.T @ target)))
    # one step of refinement recovers the digits that the normal equations lose
    leftover = target - scaled @ solution
    solution += vectors @ (inverse * (vectors.T @ (scaled.T @ leftover)))
    leftover = target - scaled @ solution
    freedom = rows - int(determined.sum())
    scatter = float(np.sqrt(leftover @ leftover / freedom)) if freedom > 0 else np.nan
    noise = (
        max(scatter, 0.1) if freedom >= SPARE_ROWS else max(1.0, scatter if freedom > 0 else 1.0)
    )
    coefficients[alive] = solution / norm[alive]
    errors[alive] = noise * np.sqrt(np.square(vectors) @ inverse) / norm[alive]
    unsure = np.square(vectors[:, ~determined]).sum(axis=1) > 1e-6
    coefficients[np.flatnonzero(alive)[unsure]] = np.nan
    errors[np.flatnonzero(alive)[unsure]] = np.nan
    return _Solution(coefficients, errors, scatter, freedom, not bool(unsure.any()), leftover)
