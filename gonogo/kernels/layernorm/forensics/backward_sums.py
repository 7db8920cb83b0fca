"""The passes over one seed of layernorm_bw.

They give sums per row and tile and then, with s1 and s2 known, sums per column.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

from gonogo.kernels.layernorm.forensics.columns import ColumnSums
from gonogo.kernels.layernorm.forensics.outliers import Places, counted, isolated
from gonogo.kernels.layernorm.forensics.precision import Precision
from gonogo.kernels.layernorm.forensics.sums import (
    TILE,
    Array,
    RowFit,
    Single,
    column_dot,
    padding_columns,
    row_blocks,
    row_dot,
    solve_rows,
    tile_starts,
    tile_sums,
)


@dataclass
class Rows:
    """Sums per row and per tile of one pass, all float64.

    z is x^, p is P, d is dx / r; pz sums P x^, and so on.
    """

    count: Array
    z: Array
    zz: Array
    p: Array
    pz: Array
    pp: Array
    d: Array
    dz: Array
    dp: Array
    dd: Array
    first: Array  # (rows, tiles): sum over the tile of P, by N
    second: Array  # (rows, tiles): of P x^, by N
    padding: Array  # (rows, 2): the same over the columns that unmasked padding would repeat

    @classmethod
    def empty(cls, rows: int, tiles: int) -> Rows:
        """Return zeros to be filled."""
        widths = {"first": tiles, "second": tiles, "padding": 2}
        names = (column.name for column in fields(cls))
        return cls(
            **{name: np.zeros((rows, widths[name]) if name in widths else rows) for name in names}
        )


@dataclass
class Backward:
    """The tensors of one seed: dx and what it was computed from, (rows, N), (N,) and (rows,)."""

    x: Single
    dy: Single
    gamma: Array
    mean: Array
    rstd: Array
    dx: Single
    precision: Precision
    outliers: Places = field(default_factory=dict)
    """Columns of isolated outliers per row: left out of the sums."""
    centered: bool = True
    """Whether the kernel subtracts a mean and s1. Else the mean is 0 here."""

    def block(self, start: int, stop: int) -> tuple[Array, Array, Array, NDArray[np.bool_] | None]:
        """Return x^, dy and dx / r of the rows, and the elements that count (None: all)."""
        with np.errstate(all="ignore"):
            z = self.x[start:stop].astype(np.float64)
            z -= self.mean[start:stop, None]
            z *= self.rstd[start:stop, None]
            dy = self.dy[start:stop].astype(np.float64)
            d = self.dx[start:stop].astype(np.float64)
            d /= self.rstd[start:stop, None]
            return z, dy, d, counted(d, self.outliers, start)

    def sums(self, gamma: Array) -> Rows:
        """Return the sums per row with P = dy * `gamma`.

        Tiles keep all their elements; the rest leaves out what doesn't count.
        """
        rows, features = self.x.shape
        starts, padding = tile_starts(features), padding_columns(features)
        out = Rows.empty(rows, len(starts))

        def visit(_: int, start: int, stop: int) -> None:
            here = slice(start, stop)
            z, dy, d, keep = self.block(start, stop)
            with np.errstate(all="ignore"):
                p = dy
                p *= gamma
                pz = p * z
                out.first[here] = tile_sums(p, starts)
                out.second[here] = tile_sums(pz, starts)
                if len(padding):
                    out.padding[here, 0] = p[:, padding].sum(axis=1)
                    out.padding[here, 1] = pz[:, padding].sum(axis=1)
                if keep is None:
                    out.count[here] = features
                    out.p[here], out.pz[here] = (
                        out.first[here].sum(axis=1),
                        out.second[here].sum(axis=1),
                    )
                else:
                    out.count[here] = keep.sum(axis=1)
                    for values in (z, p, pz, d):
                        values[~keep] = 0.0
                    out.p[here], out.pz[here] = p.sum(axis=1), pz.sum(axis=1)
                out.z[here], out.zz[here] = z.sum(axis=1), row_dot(z, z)
                out.pp[here] = row_dot(p, p)
                out.d[here], out.dz[here], out.dp[here], out.dd[here] = (
                    d.sum(axis=1),
                    row_dot(d, z),
                    row_dot(d, p),
                    row_dot(d, d),
                )

        row_blocks(rows, features, visit)
        for values in (out.first, out.second, out.padding):
            values /= features
        return out

    def columns(self, gamma: Array, scale: float, fit: RowFit) -> tuple[ColumnSums, Places]:
        """Return sums per column of D = dx / (r scale) + s1 + x^ s2 on dy, and isolated outliers.

        D is gamma dy when the kernel is right. Rows without s1 are left out; rows without s2 (x^
        constant) count it as 0. Outliers come per row.
        """
        rows, features = self.x.shape
        parts = np.zeros((-(-rows // TILE), 4, features))
        outlier_columns: dict[int, NDArray[np.int64]] = {}
        constant, slope = fit.constant, np.where(np.isfinite(fit.slope), fit.slope, 0.0)
        sigma = np.where(np.isfinite(fit.sigma), fit.sigma, np.inf)

        def visit(index: int, start: int, stop: int) -> None:
            z, dy, d, keep = self.block(start, stop)
            with np.errstate(all="ignore"):
                d /= scale
                z *= slope[start:stop, None]
                d += z
                d += constant[start:stop, None]
                if keep is None and not np.isfinite(d.sum()):
                    keep = np.isfinite(d)
                if keep is not None:
                    keep &= np.isfinite(d)
                    d[~keep] = 0.0
                    dy[~keep] = 0.0
                error = np.multiply(dy, gamma, out=z)
                np.subtract(d, error, out=error)
                parts[index, 0] += len(d) if keep is None else keep.sum(axis=0)
                parts[index, 1] += column_dot(dy, d)
                parts[index, 2] += column_dot(dy, dy)
                parts[index, 3] += column_dot(d, d)
                outlier_columns.update(isolated(error, d, sigma[start:stop], start))

        row_blocks(rows, features, visit)
        count, cross, square, target = parts.sum(axis=0)
        return ColumnSums(count, cross, square, target, target), outlier_columns

    def floor(self, rows: Rows) -> Array:
        """Return the smallest standard deviation of an element of dx / r: the output's rounding.

        In short rows dx is what is left of a cancellation, and the terms' own rounding counts, too.
        In long ones it shows.
        """
        with np.errstate(all="ignore"):
            short = np.minimum(1.0, 8.0 / rows.count)
            return np.asarray(
                self.precision.rounding * np.sqrt((rows.dd + short * rows.pp) / rows.count)
            )


@dataclass(frozen=True)
class Scale:
    """The factor of P in dx, over all rows and per row, with standard errors.

    NaN where it can't be determined.
    """

    value: float
    error: float
    rows: Array
    errors: Array


def scale_of(rows: Rows, floor: Array) -> Scale:
    """Return the factor a of P, from what {1, x^} leave of P and of dx / r."""
    with np.errstate(all="ignore"):
        centred = rows.zz - rows.z**2 / rows.count
        flat = ~(centred > 1e-12 * np.maximum(rows.zz, 1e-300))
        safe = np.where(flat, 1.0, centred)

        def apart(ab: Array, a: Array, az: Array, b: Array, bz: Array) -> Array:
            """Return the inner product of what {1, x^} leave of a and b."""
            plain = ab - a * b / rows.count
            sloped = (az - rows.z * a / rows.count) * (bz - rows.z * b / rows.count) / safe
            return np.asarray(plain - np.where(flat, 0.0, sloped))

        pp = apart(rows.pp, rows.p, rows.pz, rows.p, rows.pz)
        dp = apart(rows.dp, rows.p, rows.pz, rows.d, rows.dz)
        dd = apart(rows.dd, rows.d, rows.dz, rows.d, rows.dz)
        measurable = (pp > 1e-9 * rows.pp) & np.isfinite(dp) & np.isfinite(dd) & (rows.count > 3)
        row_factors = np.where(measurable, dp / np.where(measurable, pp, 1.0), np.nan)
        left = np.where(measurable, np.maximum(dd - row_factors * dp, 0.0), 0.0)
        sigma = np.maximum(np.sqrt(left / np.maximum(rows.count - 3, 1)), floor)
        errors = np.where(measurable, sigma / np.sqrt(np.where(measurable, pp, 1.0)), np.nan)
        usable = measurable & np.isfinite(errors) & (errors > 0) & np.isfinite(row_factors)
        if not usable.any():
            return Scale(np.nan, np.nan, row_factors, errors)
        weight = 1.0 / errors[usable] ** 2
        return Scale(
            float(np.sum(weight * row_factors[usable]) / weight.sum()),
            float(1.0 / np.sqrt(weight.sum())),
            row_factors,
            errors,
        )


def fit_sums(rows: Rows, scale: float, floor: Array) -> RowFit:
    """Return the s1 and s2 that the kernel used, per row, relative to its scale.

    R = P - dx / (r scale) is fitted on {1, x^}.
    """
    # sums of strange data are infinite, and their differences NaN
    with np.errstate(all="ignore"):
        t, tz = rows.p - rows.d / scale, rows.pz - rows.dz / scale
        tt = rows.pp - 2 * rows.dp / scale + rows.dd / scale**2
    return solve_rows(rows.count, rows.z, rows.zz, t, tz, tt, floor / abs(scale), 3)
