"""Factors along the features: the gamma and beta that a kernel used, and where they came from.

A factor w_j multiplies a known term t_ij: target_ij = w_j t_ij + rounding. Per column the sums of
target t, t^2 and target^2 are enough to compare any candidate for w: the given one, that of the
neighboring tile, or none (1).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gonogo.kernels.layernorm.forensics.sums import TILE, Array, tile_starts
from gonogo.kernels.layernorm.forensics.words import SIGMAS, place
from gonogo.numerics.diagnosis import Term, numbers

FITS = 1.5
"""Residual, in units of the columns' own scatter, up to which a candidate explains a tile."""

FEW = 3.0
"""Standard deviations of FITS that are added for few columns.

The residual of n columns is uncertain by 1/sqrt(2 n), because rows may round alike.
"""
MANY = 3
"""More factors than this are not listed one by one."""
EIGHT = 8
"""Elements of a column from which their own scatter shows its rounding."""
ONES, BEFORE, AFTER, DIFFERS = "ones", "before", "after", "differs"
SAYS = {
    BEFORE: "is that of the tile before",
    AFTER: "is that of the tile after",
    ONES: "is missing (1 in its place)",
}


@dataclass
class ColumnSums:
    """Sums per column, all (N,) float64.

    They are the elements counted, and the sums of target * term, of term^2, of target^2, and of the
    output^2.
    """

    count: Array
    cross: Array
    square: Array
    target: Array
    energy: Array
    """The sum of the squares of what was rounded: the output itself, over the same rows."""

    def free(self, otherwise: Array) -> Array:
        """Return the factor of each column alone; `otherwise` where its term is zero."""
        some = self.square > 0
        return np.where(some, self.cross / np.where(some, self.square, 1.0), otherwise)


@dataclass(frozen=True)
class Factor:
    """The result for a factor: its term, and the factor as the kernel used it.

    The latter is the given one where it is right.
    """

    term: Term
    used: Array
    differs: bool = False
    """True where it differs in some tile in a way that no candidate explains."""


@dataclass(frozen=True)
class _Tiles:
    """The sums of each tile, and the variance that rounding leaves in an element of it."""

    sums: ColumnSums
    starts: NDArray[np.int64]
    elements: Array
    floor: Array

    @classmethod
    def of(
        cls, sums: ColumnSums, candidates: Iterable[Array], noise: float, coherent: float
    ) -> _Tiles:
        """Return the tiles with their floor.

        The floor is what a free factor per column leaves or, with fewer than EIGHT elements per
        column, what the best candidate leaves.
        """
        starts = tile_starts(len(sums.count))
        elements = np.add.reduceat(sums.count, starts)
        spare = np.add.reduceat(np.maximum(sums.count - 1, 0.0), starts)
        free = np.add.reduceat(
            np.maximum(sums.target - sums.cross * sums.free(np.zeros_like(sums.cross)), 0.0), starts
        )
        bare = cls(sums, starts, elements, np.ones_like(elements))
        best = np.min([bare.left(candidate) ** 2 for candidate in candidates], axis=0)
        best = best[np.isfinite(best) & (elements > 0)]
        usual = float(np.median(best)) if len(best) else 0.0
        tile_variance = np.where(
            spare >= (EIGHT - 1) * elements / EIGHT, free / np.maximum(spare, 1.0), usual
        )
        energy = np.add.reduceat(sums.energy, starts) / np.maximum(elements, 1.0)
        usual = float(np.median(energy))
        column_variance = coherent * np.maximum(1.0, energy / usual) if usual > 0 else coherent
        return cls(sums, starts, elements, np.maximum(tile_variance, noise) + column_variance)

    def left(self, candidate: Array) -> Array:
        """Return the rms residual of a candidate factor in every tile, in units of the floor's."""
        rest = self.sums.target - 2 * candidate * self.sums.cross + candidate**2 * self.sums.square
        total = np.maximum(np.add.reduceat(rest, self.starts), 0.0)
        return np.asarray(np.sqrt(total / np.maximum(self.elements, 1.0) / self.floor))

    @property
    def limit(self) -> Array:
        """The residual up to which a candidate explains a tile.

        It is FITS, and more where few columns make it uncertain.
        """
        wide = np.diff(np.append(self.starts, len(self.sums.count)))
        return np.asarray(FITS + FEW / np.sqrt(2.0 * wide))


def fit_factor(
    output: str,
    name: str,
    given: Array,
    sums: ColumnSums,
    noise: float,
    tolerance: float,
    common: float | None = None,
    coherent: float = 0.0,
) -> Factor:
    """Fit the coefficient of `given` (N,) in each tile.

    Where one is not 1, the candidate that explains the tile is named. noise: the smallest variance
    of an element of the target. tolerance: the deviation that a right coefficient may have.
    coherent: the variance of a rounding that may be alike down a column. With `common` None, a
    coefficient that all tiles share is no finding about the factor: the caller has it as a scale.
    """
    count = len(tile_starts(len(given)))
    candidates = {BEFORE: np.roll(given, TILE), AFTER: np.roll(given, -TILE)} if count > 1 else {}
    candidates[ONES] = np.ones_like(given)
    with np.errstate(all="ignore"):
        tiles = _Tiles.of(sums, [given, *candidates.values()], noise, coherent)
        power = np.add.reduceat(given**2 * sums.square, tiles.starts)
        measurable = (
            (power > 0) & np.isfinite(power) & (tiles.elements > 0) & np.isfinite(tiles.floor)
        )
        safe = np.where(measurable, power, 1.0)
        coefficients = np.where(
            measurable, np.add.reduceat(given * sums.cross, tiles.starts) / safe, np.nan
        )
        errors = np.where(
            measurable, np.sqrt((tiles.floor + coherent * tiles.elements / TILE) / safe), np.nan
        )
        measurable &= np.isfinite(coefficients) & np.isfinite(errors)
        if not measurable.any():
            blank = numbers(np.full(count, np.nan))
            return Factor(
                Term(
                    output,
                    name,
                    count,
                    blank,
                    blank,
                    f"cannot tell {name}: it multiplies nothing",
                    can_tell=False,
                ),
                given,
            )
        proportional = (
            tiles.left(
                np.repeat(np.where(measurable, coefficients, 1.0), TILE)[: len(given)] * given
            )
            <= tiles.limit
        )
        if common is None:
            common = (
                float(np.median(coefficients[measurable & proportional]))
                if (measurable & proportional).any()
                else 1.0
            )
        slack = tolerance * max(1.0, abs(common)) + SIGMAS * errors
        near = (np.abs(coefficients - common) <= slack) | (np.abs(coefficients - 1.0) <= slack)
        scores = {
            kind: tiles.left(common * candidate) / tiles.limit
            for kind, candidate in candidates.items()
        }
        free = sums.free(given)
    used = given.copy()
    kinds: dict[str, list[int]] = {}
    for tile in np.flatnonzero(measurable & ~(near & proportional)).tolist():
        here = slice(tile * TILE, (tile + 1) * TILE)
        best = min(scores, key=lambda kind: float(scores[kind][tile]))
        if proportional[tile]:
            kind, used[here] = (
                _factor(coefficients[tile], slack[tile]),
                coefficients[tile] * given[here],
            )
        elif scores[best][tile] <= 1.0:
            kind, used[here] = best, candidates[best][here]
        else:
            kind, used[here] = DIFFERS, free[here]
        kinds.setdefault(kind, []).append(tile)
    words = f"{name} {_sentence(kinds, count)}" if kinds else ""
    term = Term(
        output, name, count, numbers(coefficients), numbers(errors), words, wrong=bool(words)
    )
    return Factor(term, np.where(np.isfinite(used), used, given), DIFFERS in kinds)


def _factor(value: float, slack: float) -> str:
    """Return a coefficient as text: a simple one where it is that within its uncertainty."""
    near = [simple for simple in (0.0, 0.5, 2.0, -1.0) if abs(value - simple) <= slack]
    return f"{min(near, key=lambda simple: abs(value - simple)) if near else value:.3g}"


def _sentence(kinds: dict[str, list[int]], tiles: int) -> str:
    """Return the words of the tiles of each kind. Many different factors become a range."""
    named = (*SAYS, DIFFERS)
    values = {kind: members for kind, members in kinds.items() if kind not in named}
    parts = [
        _say(kind, members, tiles)
        for kind, members in kinds.items()
        if kind in named or len(values) <= MANY
    ]
    if len(values) > MANY:
        low, high = min(values, key=float), max(values, key=float)
        members = sorted(tile for tiles_of_value in values.values() for tile in tiles_of_value)
        parts.append(f"is {low} to {high} times what it should be in {place(members, tiles)}")
    return " and ".join(parts)


def _say(kind: str, members: list[int], tiles: int) -> str:
    where = place(members, tiles)
    if kind in SAYS:
        return f"{SAYS[kind]} in {where}"
    if kind == DIFFERS:
        return f"differs in {where}"
    if float(kind) == 0.0:
        return f"is missing (0 in its place) in {where}"
    return f"is {kind} times what it should be in {where}"
