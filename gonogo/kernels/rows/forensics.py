"""Forensics of kernels that normalize rows: RMSNorm and group norm.

They estimate the mean, sum of squares, epsilon, gamma and beta that y was computed with.

y = g r' (x - m') + b: in each row y - b is fitted on {g x^, g}. Slope a and constant k give the
used rstd r' = a r and the used mean m' = mean - k / r'. Over the rows, m' is then fitted on the
tiles' sums of x / N, and 1 / r'^2 - epsilon on those of (x - m')^2 / N, as
gonogo.kernels.layernorm.forensics does for LayerNorm. gamma and beta are vectors with a value per
channel, a stretch of `width` elements of a row (RMSNorm: 1). Where too much of y is left over, the
likely mistakes are tried in their place. One that explains y far better is named.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gonogo.kernels.layernorm import forensics
from gonogo.kernels.layernorm.forensics import outliers
from gonogo.kernels.layernorm.forensics.forward import MEAN, MEAN_OUT
from gonogo.kernels.layernorm.forensics.precision import ALIGNMENT, Precision
from gonogo.kernels.layernorm.forensics.reductions import Extra, explain, stored_error
from gonogo.kernels.layernorm.forensics.sums import TILE, Array, RowFit
from gonogo.kernels.layernorm.forensics.variance import (
    clearer,
    explain_variance,
    padding_extras,
    tile_sizes,
    why_not,
)
from gonogo.kernels.layernorm.forensics.words import BELOW, SIGMAS, place
from gonogo.kernels.rows.model import Fitted, Model, fitted
from gonogo.numerics.blocks import over_rows
from gonogo.numerics.diagnosis import Diagnosis, Term, numbers

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

Arrays = Mapping[str, NDArray[Any]]
BETTER = 4.0
"""Another gamma or beta is named when it leaves this many times less of y's energy."""
NOISY = 2.0
"""Another gamma or beta is tried when the given one leaves this many times y's rounding."""
CHANNEL = 12.0
"""A channel's gamma or beta differs when it is off by this many standard errors.

A channel's errors are shared by its elements.
"""
CHANNEL_PART = 2.0**-4
"""A channel's gamma or beta differs when it is off by this part of the vector's size, too."""
COUNT = 0.25
"""The largest distance of a wrong divisor's factor from that of a padded row.

The unit is the difference between the padded row's factor and 1.
"""


def candidates(model: Model) -> Iterator[tuple[str, str, Array, Array | None]]:
    """Yield (vector, words, gamma, beta) of the likely mistakes."""
    for name, vector in (("gamma", model.gamma), ("beta", model.beta)):
        if vector is None:
            continue
        missing = np.ones_like(vector) if name == "gamma" else np.zeros_like(vector)
        others = {
            f"is that of the next {model.channel}": np.roll(vector, -1),
            f"is that of the {model.channel} before": np.roll(vector, 1),
            "is that of the tile after": np.roll(vector, -TILE),
            "is that of the tile before": np.roll(vector, TILE),
            f"is missing ({missing[0]:g} in its place)": missing,
        }
        for words, other in others.items():
            if not np.array_equal(other, vector):
                yield (
                    name,
                    f"{name} {words}",
                    other if name == "gamma" else model.gamma,
                    other if name == "beta" else model.beta,
                )


Regroup = Callable[["Model", "Fitted", Array], str]
"""(model, fit, the used means) -> in words, which other rows the statistics are of.

It returns "" where no other rows explain them.
"""


def explained(model: Model, regroup: Regroup | None) -> tuple[list[Term], dict[str, float | None]]:
    """Return the terms of y, and what is left of its error before and after them."""
    fit = fitted(model, model.gamma, model.beta)
    gamma, beta, words, wrong = model.gamma, model.beta, "", ""
    first = fit
    if fit.noise > NOISY:
        tried = [(fitted(model, g, b), name, text, g, b) for name, text, g, b in candidates(model)]
        best = min(tried, key=lambda attempt: attempt[0].energy, default=None)
        if best is not None and best[0].energy * BETTER < fit.energy:
            fit, wrong, words, gamma, beta = best
    places = isolated(model, fit, gamma, beta)
    notes: list[Term] = []
    if places:
        notes.append(outlier_term(model, fit, gamma, beta, places))
        model.outliers = places
        fit = fitted(model, gamma, beta)
    terms = statistics(model, fit.fit)
    other = (
        regroup(model, fit, used_mean(model, fit.fit))
        if regroup is not None and any(term.wrong for term in terms)
        else ""
    )
    if other:
        terms = [Term("y", "groups", 1, (None,), (None,), other, wrong=True)]
    vectors = vectors_of(model, fit, gamma, beta)
    if other:
        vectors = [replace(term, wrong=False, can_tell=False, words="") for term in vectors]
    if wrong:
        named = Term("y", wrong, 1, (None,), (None,), words, wrong=True)
        vectors = [named if term.name == wrong else term for term in vectors]
    whole = first.energy + first.terms
    residuals = {
        "before": float(np.sqrt(whole / first.unit)) if first.unit > 0 else None,
        "after": fit.noise if np.isfinite(fit.noise) else None,
    }
    return [*terms, *vectors, *notes], residuals


def used_normal(model: Model, fit: RowFit, start: int, stop: int) -> Array:
    """Return x^ as the kernel computed it, in rows start..stop."""
    here = slice(start, stop)
    slope = np.where(np.isfinite(fit.slope[here]), fit.slope[here], 1.0)[:, None]
    constant = np.where(np.isfinite(fit.constant[here]), fit.constant[here], 0.0)[:, None]
    xhat = (model.x[here].astype(np.float64) - model.rows.mean[here, None]) * model.rows.rstd[
        here, None
    ]
    return np.asarray(slope * xhat + constant)


def isolated(model: Model, fitted_y: Fitted, gamma: Array, beta: Array | None) -> outliers.Places:
    """Return the isolated wrong values of y: columns by row."""
    assert model.y is not None
    y_of = model.y

    def block(start: int, stop: int) -> dict[int, NDArray[np.int64]]:
        with np.errstate(all="ignore"):
            product = model.spread(gamma, start, stop) * used_normal(
                model, fitted_y.fit, start, stop
            )
            added = (
                np.zeros_like(product)
                if beta is None
                else np.broadcast_to(model.spread(beta, start, stop), product.shape)
            )
            rest = y_of[start:stop].astype(np.float64) - product - added
            rest[~np.isfinite(rest)] = 0.0
            sigma = np.where(
                np.isfinite(fitted_y.fit.sigma[start:stop]), fitted_y.fit.sigma[start:stop], np.inf
            )
            return outliers.isolated(rest, np.abs(product) + np.abs(added), sigma, start)

    rows, step = model.blocks()
    places: dict[int, NDArray[np.int64]] = {}
    for block_places in over_rows(block, rows, step):
        places |= block_places
    return places


def outlier_term(
    model: Model, fitted_y: Fitted, gamma: Array, beta: Array | None, places: outliers.Places
) -> Term:
    """Return the finding of isolated values."""
    assert model.y is not None
    powers = 0
    for row, columns in places.items():
        expected = (
            model.spread(gamma, row, row + 1)[0] * used_normal(model, fitted_y.fit, row, row + 1)[0]
        )
        expected = expected if beta is None else expected + model.spread(beta, row, row + 1)[0]
        powers += outliers.powers_of_two(
            model.y[row, columns].astype(np.float64), expected[columns]
        )
    return outliers.term("y", sum(map(len, places.values())), powers, sorted(places))


def used_mean(model: Model, fit: RowFit) -> Array:
    """Return the mean of each row that y was computed with; NaN where a row can't tell."""
    with np.errstate(all="ignore"):
        slope = np.where(np.isfinite(fit.slope), fit.slope, 1.0)
        return np.asarray(model.rows.mean - fit.constant / (slope * model.rows.rstd))


def statistics(model: Model, fit: RowFit) -> list[Term]:
    """Return the terms of the mean and the sum of squares that y was computed with."""
    rows = model.rows
    with np.errstate(all="ignore"):
        slope = np.where(np.isfinite(fit.slope), fit.slope, 1.0)
        rstd = slope * rows.rstd
        mean = used_mean(model, fit)
        spread = np.sqrt(rows.mean**2 + 1.0 / rows.rstd**2)
        error = np.sqrt((fit.constant_error / rstd) ** 2 + (ALIGNMENT * spread) ** 2)
    terms = [
        mean_term(model, "y", mean, error) if model.centred else subtracted(model, mean, error)
    ]
    about = mean if model.centred or terms[0].wrong else None
    terms.append(
        squares_term(model, "y", fit.slope * rows.rstd, fit.slope_error * rows.rstd, about)
    )
    return terms


def mean_term(model: Model, output: str, mean: Array, error: Array) -> Term:
    """Return the term of a mean: which tiles it sums."""
    rows, seed = model.rows, model.seed
    features = model.x.shape[1]
    sizes = tile_sizes(seed)
    with np.errstate(all="ignore"):
        partial = rows.first + rows.mean[:, None] * sizes
        pad = min(-features % TILE, features) / features
        extras = padding_extras(seed, "mean", rows.padding[:, 0] + rows.mean * pad)
        extras.append(Extra(np.ones_like(mean), "mean starts from {value} in every row"))
        square = rows.mean**2 + rows.second.sum(axis=1)
        sigma = stored_error(error, mean, partial, square, features, model.precision)
        noun = model.precision.noun(MEAN if output == "y" else MEAN_OUT, partial.shape[1])
        term = explain(output, noun, partial, mean, sigma, extras, why_not(seed, partial))
        if term.wrong and output == "y" and len(mean) >= TILE:
            # the alignment losses of x - mean and of the sum with beta have one sign
            limit = 4 * ALIGNMENT * float(np.nanmedian(np.sqrt(square)))
            bias = float(np.clip(np.nanmedian(mean - rows.mean), -limit, limit))
            term = clearer(
                term,
                explain(output, noun, partial, mean - bias, sigma, extras, why_not(seed, partial)),
            )
    return replace(term, words=_padded(term, "mean", features))


def subtracted(model: Model, mean: Array, error: Array) -> Term:
    """Return the term of a mean that the kernel must not subtract.

    Its coefficient is a multiple of the rows' own means.
    """
    with np.errstate(all="ignore"):
        row_means = model.x.astype(np.float64).mean(axis=1)
        good = np.isfinite(mean) & np.isfinite(error) & (error > 0)
        weight = np.where(good, 1.0 / error**2, 0.0)
        power = float((weight * row_means**2).sum())
        if not good.any() or not power > SIGMAS**2:  # rows without a mean, or errors as large
            return Term(
                "y",
                "mean",
                1,
                (None,),
                (None,),
                "cannot tell whether a mean is subtracted: x has none",
                can_tell=False,
            )
        value = float((weight * row_means * np.where(good, mean, 0.0)).sum()) / power
        left = np.where(good, (mean - value * row_means) ** 2 * weight, 0.0).sum() / max(
            1, int(good.sum()) - 1
        )
        sigma = float(np.sqrt(max(1.0, left) / power))
    wrong = abs(value) > SIGMAS * sigma + 2.0**-6
    words = ""
    if wrong:
        words = (
            "the mean is subtracted"
            if abs(value - 1) < 2.0**-4 + SIGMAS * sigma
            else f"{value:.3g} times the mean is subtracted"
        )
        words += ", which this kernel must not"
    return Term("y", "mean", 1, numbers([value]), numbers([sigma]), words, wrong=wrong)


def squares_term(model: Model, output: str, rstd: Array, error: Array, mean: Array | None) -> Term:
    """Return the term of an rstd: the tiles whose squares it sums, epsilon and the divisor."""
    term = explain_variance(model.seed, model.rows, output, rstd, error, mean)
    features = model.x.shape[1]
    return replace(
        term,
        name=model.noun,
        words=_padded(term, "variance", features).replace("variance", model.noun),
    )


def _padded(term: Term, noun: str, features: int) -> str:
    """Return the term's words, or the wrong divisor that explains them.

    Padding makes a divisor too large, and then the sum is too small in all tiles by one factor.
    """
    padded = -(-features // TILE) * TILE
    known = [value for value in term.coefficients if value is not None]
    alike = re.fullmatch(rf"{noun} is \S+ times what it should be in .*", term.words)
    if (
        not alike
        or padded == features
        or abs(float(np.median(known)) - features / padded)
        > COUNT * (1 - features / padded) + BELOW
    ):
        return term.words
    return f"{noun} divides by {padded}, the elements with their padding, instead of {features}"


def vectors_of(model: Model, fitted_y: Fitted, gamma: Array, beta: Array | None) -> list[Term]:
    """Return the terms of gamma and beta, channel by channel.

    They come from what is left of y after the used statistics.
    """
    assert model.y is not None
    y_of = model.y
    channels = len(gamma)

    def block(start: int, stop: int) -> Array:
        with np.errstate(all="ignore"):
            z = used_normal(model, fitted_y.fit, start, stop)
            rest = y_of[start:stop].astype(np.float64) - model.spread(gamma, start, stop) * z
            if beta is not None:
                rest -= model.spread(beta, start, stop)
            keep = outliers.counted(rest, model.outliers, start)
            ones = np.ones_like(z)
            if keep is not None:
                rest, z, ones = (np.where(keep, values, 0.0) for values in (rest, z, ones))
            total = np.zeros((6, model.groups, channels // model.groups))
            for k, values in enumerate((ones, z, z * z, rest, rest * z, rest * rest)):
                sums = values.reshape(stop - start, -1, model.width).sum(axis=2)
                np.add.at(total[k], np.arange(start, stop) % model.groups, sums)
            return total.reshape(6, -1)

    rows, step = model.blocks()
    n, z, zz, e, ez, ee = np.sum(over_rows(block, rows, step), axis=0)
    terms = []
    with np.errstate(all="ignore"):
        apart = zz - z * z / n
        measurable = (n >= 8) & (apart > 0.05 * zz) if beta is not None else (n >= 4) & (zz > 0)
        slope = (ez - z * e / n) / apart if beta is not None else ez / zz
        left = np.maximum(ee - slope * ez, 0.0)
        sigma = np.sqrt(
            np.maximum(left, model.precision.rounding**2 * gamma**2 * zz) / np.maximum(n - 2, 1.0)
        )
        error = sigma / np.sqrt(np.where(beta is not None, apart, zz))
        terms.append(_vector(model, "gamma", gamma, slope, error, measurable))
        if beta is not None:
            terms.append(
                _vector(model, "beta", beta, (e - slope * z) / n, sigma / np.sqrt(n), measurable)
            )
    return terms


def _vector(
    model: Model, name: str, used: Array, off: Array, error: Array, measurable: NDArray[np.bool_]
) -> Term:
    """Return the term of a vector: whether some channels are off by more than their errors."""
    measurable = measurable & np.isfinite(off) & np.isfinite(error)
    if not measurable.any():
        return Term(
            "y",
            name,
            1,
            (None,),
            (None,),
            f"cannot tell {name}: too few elements of each {model.channel}",
            can_tell=False,
        )
    size = float(np.abs(used).max()) or 1.0
    # One factor, or one shift, that all channels share belongs to the scale's and the mean's terms.
    some = measurable & (used != 0)
    common = float(np.median(off[some] / used[some])) if name == "gamma" and some.any() else 0.0
    apart = np.abs(off - common * used)
    wrong = measurable & (apart > CHANNEL * error) & (apart > CHANNEL_PART * size)
    words = (
        f"{name} differs in {place(np.flatnonzero(wrong).tolist(), len(used), model.channel)}"
        if wrong.any()
        else ""
    )
    return Term(
        "y",
        name,
        1,
        numbers([1.0 + common]),
        numbers([float(np.median(error[measurable])) / size]),
        words,
        wrong=bool(words),
    )


def diagnose(
    test: TestSpec,
    given: Arrays,
    outputs: Arrays,
    *,
    groups: int,
    centred: bool,
    noun: str,
    channel: str,
    regroup: Regroup | None = None,
) -> Diagnosis:
    """Return what is wrong with y, mean and rstd (any subset), flat arrays. Never raises."""
    x = given.get("x")
    if x is None or x.ndim != 2 or not x.size:
        return Diagnosis((), "cannot tell: there is no x", False)
    terms: list[Term] = []
    good: dict[str, NDArray[Any]] = {}
    for name, values in outputs.items():
        if values.shape != test.flat_shape_of(name):
            terms.append(
                Term(
                    name,
                    name,
                    0,
                    (),
                    (),
                    f"cannot tell {name}: its shape is {list(values.shape)}",
                    can_tell=False,
                )
            )
            continue
        terms.extend(forensics.not_finite(name, values))
        if np.isfinite(values).any():
            good[name] = values
    gamma = np.asarray(given["gamma"], np.float64)
    beta = np.asarray(given["beta"], np.float64) if "beta" in given else None
    width = x.shape[1] * groups // len(gamma)
    precision = Precision.of(test)
    model = Model(
        x,
        good.get("y"),
        gamma,
        beta,
        test.epsilon,
        precision,
        groups,
        width,
        centred,
        noun,
        channel,
        {},
    )
    residuals: dict[str, dict[str, float | None]] = {}
    if "y" in good:
        y_terms, residuals["y"] = explained(model, regroup)
        terms.extend(y_terms)
    if any(term.name == "groups" for term in terms):
        # the outputs mean and rstd are those of other groups, too
        good = {name: value for name, value in good.items() if name == "y"}
    with np.errstate(all="ignore"):
        if "mean" in good:
            mean = np.asarray(good["mean"], np.float64)
            terms.append(mean_term(model, "mean", mean, np.abs(mean) * precision.rounding))
        if "rstd" in good:
            rstd = np.asarray(good["rstd"], np.float64)
            mean_used = np.asarray(good["mean"], np.float64) if "mean" in good else None
            about = mean_used if centred else None
            terms.append(
                squares_term(model, "rstd", rstd, np.abs(rstd) * precision.rounding, about)
            )
    return forensics.concluded(terms, residuals)
