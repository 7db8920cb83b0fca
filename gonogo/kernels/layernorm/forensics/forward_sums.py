"""One seed of a forward kernel that normalizes rows, and the passes over it.

They give sums per row and tile and then, with mean and rstd known, sums per column.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace

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
    """Sums per row and per tile, float64.

    They are statistics of x, and inner products of u = g x^, v = g, w = b, y and t = y - b.
    """

    mean: Array
    rstd: Array
    count: Array
    uu: Array
    uv: Array
    vv: Array
    uw: Array
    vw: Array
    ww: Array
    tu: Array
    tv: Array
    tw: Array
    tt: Array
    yy: Array
    first: Array  # (rows, tiles): sum over the tile of x - mean, by N
    second: Array  # (rows, tiles): of (x - mean)^2, by N
    padding: Array  # (rows, 2): the same over the columns that unmasked padding would repeat

    @classmethod
    def empty(cls, rows: int, tiles: int, known: Rows | None = None) -> Rows:
        """Return zeros to be filled, beside the sums of x alone of `known`."""
        widths = {"first": tiles, "second": tiles, "padding": 2}
        names = (column.name for column in fields(cls))
        zeros = {name: np.zeros((rows, widths[name]) if name in widths else rows) for name in names}
        if known is not None:
            zeros |= {name: getattr(known, name) for name in ("mean", "rstd", *widths)}
        return cls(**zeros)


@dataclass
class Forward:
    """The tensors of one seed: y and what it was computed from, y and x (rows, N).

    y is None where it wasn't produced. gamma and beta have one value per channel; beta is None
    where the kernel has none. Row i belongs to group i % groups. Its elements are the group's
    channels, `width` of each; LayerNorm's channels are the columns of its only group.
    """

    x: Single
    gamma: Array
    beta: Array | None
    epsilon: float
    y: Single | None
    precision: Precision
    groups: int = 1
    width: int = 1
    centred: bool = True
    """The kernel subtracts a mean."""
    noun: str = "variance"
    """The name of the sum of squares: variance, or mean square."""
    channel: str = "column"
    """The unit that has one value of gamma: column, or channel."""
    outliers: Places = field(default_factory=dict)
    """Columns of isolated outliers per row of y: left out of the sums."""
    _statistics: Rows | None = field(default=None, init=False)
    """The sums of the first pass. Those of x alone are the same in all passes."""

    @property
    def statistics(self) -> Rows:
        """The sums of x alone."""
        if self._statistics is None:
            self._statistics = replace(self, y=None).sums(self.gamma, self.beta)
        return self._statistics

    def spread(self, vector: Array, start: int, stop: int) -> Array:
        """Return a vector as the matrix of rows start..stop: (1 or rows, N)."""
        one = np.repeat(vector.reshape(self.groups, -1), self.width, axis=1)
        return one[np.arange(start, stop) % self.groups] if self.groups > 1 else one

    def sums(self, gamma: Array, beta: Array | None) -> Rows:
        """Return the sums per row with u = `gamma` x^, v = `gamma`, w = `beta`.

        Elements of y that don't count are left out. The mean is 0 where the kernel has none.
        """
        rows, features = self.x.shape
        starts, padding = tile_starts(features), padding_columns(features)
        known = self._statistics
        out = Rows.empty(rows, len(starts), known)

        def visit(_: int, start: int, stop: int) -> None:
            here = slice(start, stop)
            with np.errstate(all="ignore"):
                z = self.x[here].astype(np.float64)
                if known is None and self.centred:
                    out.mean[here] = z.mean(axis=1)
                if self.centred:
                    z -= out.mean[here, None]
                if known is None:
                    out.first[here] = tile_sums(z, starts)
                    square = z * z
                    out.second[here] = tile_sums(square, starts)
                    if len(padding):
                        out.padding[here, 0] = z[:, padding].sum(axis=1)
                        out.padding[here, 1] = square[:, padding].sum(axis=1)
                    out.rstd[here] = 1.0 / np.sqrt(
                        out.second[here].sum(axis=1) / features + self.epsilon
                    )
                if self.y is None:
                    return
                y = self.y[here].astype(np.float64)
                v = self.spread(gamma, start, stop)
                z *= out.rstd[here, None]
                z *= v
                v = np.broadcast_to(v, y.shape)
                keep = counted(y, self.outliers, start)
                out.count[here] = features
                if keep is not None:
                    out.count[here] = keep.sum(axis=1)
                    v = np.where(keep, v, 0.0)
                    y[~keep], z[~keep] = 0.0, 0.0
                out.yy[here] = row_dot(y, y)
                pairs = [("uu", z, z), ("uv", z, v), ("vv", v, v)]
                if beta is not None:
                    w = np.broadcast_to(self.spread(beta, start, stop), y.shape)
                    w = w if keep is None else np.where(keep, w, 0.0)
                    y -= w
                    pairs += [("uw", z, w), ("vw", v, w), ("ww", w, w), ("tw", y, w)]
                for name, left, right in (*pairs, ("tu", y, z), ("tv", y, v), ("tt", y, y)):
                    getattr(out, name)[here] = row_dot(left, right)

        row_blocks(rows, features, visit)
        if known is None:
            for values in (out.first, out.second, out.padding):
                values /= features
            self._statistics = out
        return out

    def without_beta(self, rows: Rows, share: float) -> tuple[Array, Array, Array]:
        """Return the inner products of y - `share` beta with v, u and itself."""
        rest = 1.0 - share
        return (
            rows.tv + rest * rows.vw,
            rows.tu + rest * rows.uw,
            rows.tt + 2 * rest * rows.tw + rest**2 * rows.ww,
        )

    def fit(self, rows: Rows, share: float) -> RowFit:
        """Fit y - `share` beta = slope u + constant v in every row."""
        with np.errstate(all="ignore"):
            tv, tu, tt = self.without_beta(rows, share)
            floor = self.precision.rounding * np.sqrt(rows.yy / rows.count)
            return solve_rows(rows.vv, rows.uv, rows.uu, tv, tu, tt, floor, 2, rows.count)

    def share_of_beta(self, rows: Rows) -> tuple[float, float]:
        """Return the coefficient of beta in y and its standard error, pooled over the rows.

        NaN where beta looks like u and v.
        """
        floor = np.zeros_like(rows.count)
        with np.errstate(all="ignore"):
            beta = solve_rows(
                rows.vv, rows.uv, rows.uu, rows.vw, rows.uw, rows.ww, floor, 2, rows.count
            )
            slope = np.where(np.isfinite(beta.slope), beta.slope, 0.0)
            apart = rows.ww - beta.constant * rows.vw - slope * rows.uw
            cross = rows.tw - beta.constant * rows.tv - slope * rows.tu
            measurable = (apart > 1e-9 * rows.ww) & (rows.count > 3) & np.isfinite(cross)
            if not measurable.any():
                return np.nan, np.nan
            total = float(apart[measurable].sum())
            share = 1.0 + float(cross[measurable].sum()) / total
            # that of a single row: the rows' roundings may be alike
            return share, float(
                np.median(self.fit(rows, share).sigma[measurable] / np.sqrt(apart[measurable]))
            )

    def columns(
        self, rows: Rows, slope: Array, fit: RowFit, gamma: Array, beta: Array, divide: float
    ) -> tuple[ColumnSums, ColumnSums, Places]:
        """Return sums per column, and the isolated outliers.

        The first are those of y - `beta` on the used x^, the second those of y - `gamma` times that
        on 1. The used x^ is `slope` x^ + the fitted constant, both over `divide`.
        """
        features = self.x.shape[1]
        parts = np.zeros((-(-len(slope) // TILE), 8, features))
        outlier_columns: dict[int, NDArray[np.int64]] = {}
        scale = slope * rows.rstd / divide
        shift = fit.constant / divide - scale * rows.mean
        known = np.isfinite(scale) & np.isfinite(shift)
        scale, shift = np.where(known, scale, 0.0), np.where(known, shift, 0.0)
        sigma = np.where(np.isfinite(fit.sigma), fit.sigma, np.inf)

        def visit(index: int, start: int, stop: int) -> None:
            if self.y is None:
                return
            with np.errstate(all="ignore"):
                z = self.x[start:stop].astype(np.float64)
                z *= scale[start:stop, None]
                z += shift[start:stop, None]
                y = self.y[start:stop].astype(np.float64)
                rest = y - gamma * z
                keep = counted(rest, self.outliers, start)
                y -= beta
                if keep is not None or not known[start:stop].all():
                    keep = np.isfinite(rest) if keep is None else keep
                    keep &= known[start:stop, None]
                    for values in (y, z, rest):
                        values[~keep] = 0.0
                parts[index, 0] += len(y) if keep is None else keep.sum(axis=0)
                parts[index, 1] += column_dot(y, z)
                parts[index, 2] += column_dot(z, z)
                parts[index, 3] += column_dot(y, y)
                parts[index, 4] += rest.sum(axis=0)
                parts[index, 5] += column_dot(rest, rest)
                parts[index, 6] += z.sum(axis=0)
                parts[index, 7] += y.sum(axis=0)
                rest -= beta
                if keep is not None:
                    rest[~keep] = 0.0
                # a sum may cancel out: rounding is relative to its terms
                outlier_columns.update(
                    isolated(rest, np.abs(y) + np.abs(beta), sigma[start:stop], start)
                )

        row_blocks(len(slope), features, visit)
        count, cross, square, target, total, total_square, z, y = parts.sum(axis=0)
        on_one = ColumnSums(count, total, count, total_square, target)
        on_gamma = ColumnSums(count, cross, square, target, target)
        with np.errstate(all="ignore"):
            centred = square - z * z / count
            if np.median(count) >= 8 and np.median(centred / square) > 0.1:
                # about the column's mean, gamma does not depend on beta at all
                on_gamma = ColumnSums(
                    count - 1, cross - z * y / count, centred, target - y * y / count, target
                )
        return on_gamma, on_one, outlier_columns
