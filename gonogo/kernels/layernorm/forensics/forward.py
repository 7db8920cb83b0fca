"""Forensics of layernorm_fw: the mean, variance, gamma and beta that y was computed with.

The outputs mean and rstd are explained, too.

y = g r' (x - m') + b: per row, y - b is fitted on {g x^, g}. Slope a and constant k give the rstd
r' = a r and the mean m' = mean - k / r' that were used. m' is then fitted, over the rows, on the
tiles' sums of x / N, and 1 / r'^2 - epsilon on the tiles' sums of (x - m')^2 / N. gamma and beta
come from y on the used x^, per column. Outputs mean and rstd are m' and r' themselves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gonogo.kernels.layernorm.forensics.columns import Factor, fit_factor
from gonogo.kernels.layernorm.forensics.fit import solve
from gonogo.kernels.layernorm.forensics.forward_sums import Forward, Rows
from gonogo.kernels.layernorm.forensics.outliers import Places
from gonogo.kernels.layernorm.forensics.outliers import term as outlier_term
from gonogo.kernels.layernorm.forensics.precision import ALIGNMENT, bf16_grid
from gonogo.kernels.layernorm.forensics.reductions import Extra, explain, stored_error
from gonogo.kernels.layernorm.forensics.sums import TILE, Array, RowFit
from gonogo.kernels.layernorm.forensics.variance import (
    clearer,
    explain_variance,
    padding_extras,
    tile_sizes,
    why_not,
)
from gonogo.kernels.layernorm.forensics.words import SIGMAS, Noun
from gonogo.numerics.diagnosis import Term, numbers

Residuals = dict[str, float | None]

MEAN = Noun("mean", twice="is subtracted twice")
MEAN_OUT = Noun("mean")
ALIGNED = 4.0
"""Alignment losses up to which a bias of the used mean, the same in all rows, is right arithmetic.

ELWSUB and ELWADD round ties up.
"""
ROUNDINGS = 3
"""Roundings to bf16 between x and y (x^, g x^, y), which are alike in all rows where x is."""
GRID = 1e-3
"""Deviation from 1 that the factor of a stored bf16 rstd may have from other roundings.

Those are the roundings of x^, g x^ and y, whose ties go one way. Measured: up to 8e-4 of right
kernels with small beta, 1.9e-3 with a beta like g x^, which doubles the limit.
"""


def explain_y(seed: Forward) -> tuple[list[Term], Residuals]:
    """Return the terms of y, and the residuals.

    The terms are those of mean, variance, gamma, beta, and the factor of rstd.
    """
    assert seed.beta is not None
    factors = _factors(seed)
    notes: list[Term] = []
    if factors.outliers:
        notes.append(_outliers(seed, factors))
        seed.outliers = factors.outliers
        factors = _factors(seed)
    rows, fit, beta = factors.rows, factors.fit, factors.beta
    if factors.gamma.differs:
        # beside a free gamma neither the factor of rstd nor beta can be determined
        unknown = replace(
            beta.term,
            wrong=False,
            can_tell=False,
            words="cannot tell beta beside an unknown gamma",
        )
        beta = replace(beta, term=unknown, used=seed.beta)
    elif factors.gamma.term.wrong:
        # fit beta again, beside the gamma that was used
        beta = _factors(replace(seed, gamma=factors.gamma.used)).beta
    if factors.gamma.term.wrong or beta.term.wrong:
        rows = seed.sums(factors.gamma.used, beta.used)
        fit = seed.fit(rows, 1.0)
    statistics = _statistics(seed, rows, fit)
    if factors.gamma.differs:
        statistics = []
    return [*statistics, factors.gamma.term, beta.term, *notes], _residuals(seed, rows, fit)


@dataclass(frozen=True)
class _Factors:
    """gamma and beta that y was computed with, the sums and fit per row, and the outliers.

    Sums and fit are those with the given gamma and beta.
    """

    gamma: Factor
    beta: Factor
    rows: Rows
    fit: RowFit
    outliers: Places


def _factors(seed: Forward) -> _Factors:
    assert seed.beta is not None
    given_beta, rows = seed.beta, seed.sums(seed.gamma, seed.beta)
    share, share_error = seed.share_of_beta(rows)
    off = np.isfinite(share) and abs(share - 1.0) > 2.0**-6 + SIGMAS * share_error
    fit = seed.fit(rows, share if off else 1.0)
    with np.errstate(all="ignore"):
        common = float(np.nanmedian(fit.slope)) if np.isfinite(fit.slope).any() else 1.0
        common = common if np.isfinite(common) and abs(common) > 1e-3 else 1.0
        slope = np.where(np.isfinite(fit.slope), fit.slope, common)
        square = rows.yy / rows.count
        energy = float(np.nanmedian(square)) if np.isfinite(square).any() else 0.0
        noise = energy * seed.precision.rounding**2
    beta = share * given_beta if off else given_beta
    tolerance = seed.precision.scale + 2.0**-8
    coherent = ROUNDINGS * noise + seed.precision.column**2 * energy

    def fit_gamma(fit: RowFit) -> Factor:
        on_gamma, _, _ = seed.columns(rows, slope, fit, seed.gamma, beta, common)
        return fit_factor("y", "gamma", seed.gamma, on_gamma, noise, tolerance, coherent=coherent)

    gamma = fit_gamma(fit)
    if gamma.differs:
        # where the rows are alike, a wrong gamma looks like a mean, too: then fit it with the right
        # mean
        right = replace(fit, constant=np.where(np.isfinite(fit.constant), 0.0, np.nan))
        again = fit_gamma(right)
        gamma, fit = (gamma, fit) if again.differs else (again, right)

    def fit_beta(fit: RowFit) -> tuple[Factor, Places]:
        _, on_one, outliers = seed.columns(
            rows, slope, fit, gamma.used, beta, common if gamma.term.wrong else 1.0
        )
        factor = fit_factor(
            "y",
            "beta",
            given_beta,
            on_one,
            noise,
            tolerance + 2.0**-6,
            common=1.0,
            coherent=coherent,
        )
        return factor, outliers

    beta_factor, outliers = fit_beta(fit)
    if beta_factor.differs and off:
        # a wrong beta looks like a mean that is off by as much in every row
        again, _ = fit_beta(replace(fit, constant=fit.constant - np.nanmedian(fit.constant)))
        beta_factor = beta_factor if again.differs else again
    return _Factors(gamma, beta_factor, rows, fit, outliers)


def _outliers(seed: Forward, factors: _Factors) -> Term:
    def expected(row: int, columns: NDArray[np.int64]) -> Array:
        centred = seed.x[row, columns].astype(np.float64) - factors.rows.mean[row]
        z = centred * factors.rows.rstd[row]
        return np.asarray(factors.gamma.used[columns] * z + factors.beta.used[columns])

    return outlier_term("y", seed.y, factors.outliers, expected)


def explain_mean(seed: Forward, rows: Rows, mean: Array) -> Term:
    """Return the term of the output mean (rows,): the tiles that it sums."""
    with np.errstate(all="ignore"):
        error = np.abs(mean) * seed.precision.rounding
    return mean_term(seed, rows, "mean", MEAN_OUT, mean, error)


def explain_rstd(seed: Forward, rows: Rows, rstd: Array, mean: Array | None) -> Term:
    """Return the term of the output rstd (rows,): the tiles of its squares, epsilon, divisor.

    mean: the output of that name.
    """
    with np.errstate(all="ignore"):
        error = np.abs(rstd) * seed.precision.rounding
    return explain_variance(seed, rows, "rstd", rstd, error, mean)


def _statistics(seed: Forward, rows: Rows, fit: RowFit) -> list[Term]:
    with np.errstate(all="ignore"):
        slope = np.where(np.isfinite(fit.slope), fit.slope, 1.0)
        rstd = slope * rows.rstd
        mean = rows.mean - fit.constant / rstd
        # the alignment losses of x - mean and of the sum with beta are alike along a row
        spread = np.sqrt(rows.mean**2 + 1.0 / rows.rstd**2)
        added = np.sqrt(np.maximum(rows.uu, rows.ww) / rows.vv) / np.abs(rstd)
        error = np.sqrt((fit.constant_error / rstd) ** 2 + ALIGNMENT**2 * (spread**2 + added**2))
        bias = common_offset(rows.mean, mean, error)
        losses = ALIGNMENT * (spread + added)
        losses = losses[np.isfinite(losses)]
        limit = ALIGNED * float(np.median(losses)) if len(losses) else 0.0
        bias = min(max(bias, -limit), limit)
        terms = [mean_term(seed, rows, "y", MEAN, mean, error)]
        if terms[0].wrong and np.isfinite(bias):
            terms = [clearer(terms[0], mean_term(seed, rows, "y", MEAN, mean - bias, error))]
        used, error = fit.slope * rows.rstd, fit.slope_error * rows.rstd
        terms.append(explain_variance(seed, rows, "y", used, error, mean))
        terms.append(_factor(seed, rows, used, error))
    return terms


def common_offset(expected: Array, used: Array, error: Array) -> float:
    """Return what is added to `used` in every row (rows,) beside a multiple of `expected`.

    NaN where that can't be determined.
    """
    with np.errstate(all="ignore"):
        usable = np.isfinite(expected) & np.isfinite(used) & (error > 0) & np.isfinite(error)
        if usable.sum() < 8:
            return np.nan
        both = np.column_stack([expected, np.ones_like(expected)])[usable] / error[usable, None]
        target = used[usable] / error[usable]
        if not np.isfinite(np.square(both).sum()) or not np.isfinite(target @ target):
            return np.nan
        return float(solve(both, target).coefficients[1])


def mean_term(
    seed: Forward, rows: Rows, output: str, noun: Noun, mean: Array, error: Array
) -> Term:
    """Return the term of a mean (rows,) with standard errors: which tiles it sums."""
    sizes = tile_sizes(seed)
    with np.errstate(all="ignore"):
        partial = rows.first + rows.mean[:, None] * sizes
        pad = min(-seed.x.shape[1] % TILE, seed.x.shape[1]) / seed.x.shape[1]
        extras = padding_extras(seed, "mean", rows.padding[:, 0] + rows.mean * pad)
        extras.append(Extra(np.ones_like(mean), "mean starts from {value} in every row"))
        square = rows.mean**2 + rows.second.sum(axis=1)
        sigma = stored_error(error, mean, partial, square, seed.x.shape[1], seed.precision)
        return explain(
            output,
            seed.precision.noun(noun, partial.shape[1]),
            partial,
            mean,
            sigma,
            extras,
            why_not(seed, partial),
        )


def _factor(seed: Forward, rows: Rows, used: Array, error: Array) -> Term:
    """Return the term of a factor of rstd that is too small for its rounding to bf16.

    Every used rstd is then off the bf16 grid by the same factor.
    """
    with np.errstate(all="ignore"):
        beside = np.sqrt(np.nansum(rows.ww) / np.nansum(rows.uu))
        limit = GRID * (1.0 + min(1.0, float(beside))) if np.isfinite(beside) else 2 * GRID
        # y's two products lose as much, and block formats more
        limit += 2 * seed.precision.loss + seed.precision.coarse
        good = np.isfinite(used) & (used > 0) & (error < GRID / 4 * used)
        if good.sum() < 8 or not seed.precision.stores_bf16:
            return Term("y", "scale", 1, (None,), (None,), can_tell=False)
        used = used[good]
        off = used / bf16_grid(used)
        exact = float(np.median(used / rows.rstd[good]))
        factor, spread = (
            float(np.median(off)),
            float(np.median(np.abs(off - np.median(off))) * 1.4826),
        )
    wrong = abs(factor - 1) > limit and abs(exact - 1) > limit and spread < limit / 4
    words = f"rstd is {factor:.5g} times what it should be" if wrong else ""
    return Term(
        "y",
        "scale",
        1,
        numbers([factor if wrong else exact]),
        numbers([spread]),
        words,
        wrong=wrong,
    )


def _residuals(seed: Forward, rows: Rows, fit: RowFit) -> Residuals:
    """Return the rms error before and after the terms found, in units of y's rounding."""
    with np.errstate(all="ignore"):
        slope = np.where(np.isfinite(fit.slope), fit.slope, 1.0)
        unit = seed.precision.rounding**2 * rows.yy
        after = rows.count * fit.sigma**2
        a, k = slope - 1.0, fit.constant
        terms = a**2 * rows.uu + k**2 * rows.vv + 2 * a * k * rows.uv
        measurable = np.isfinite(after) & np.isfinite(terms) & (unit > 0)
        if not measurable.any():
            return {"before": None, "after": None, "along_gamma": None, "along_xhat": None}
        whole, total = (
            float(np.sum(after[measurable] + np.maximum(terms[measurable], 0.0))),
            float(unit[measurable].sum()),
        )
        return {
            "before": float(np.sqrt(whole / total)),
            "after": float(np.sqrt(after[measurable].sum() / total)),
            "along_gamma": float(np.sum((k**2 * rows.vv)[measurable])) / whole if whole else None,
            "along_xhat": float(np.sum((a**2 * rows.uu)[measurable])) / whole if whole else None,
        }
