"""Forensics of kernels that normalise rows (RMSNorm, group norm): mean, sum of squares, epsilon,
gamma and beta that y was made with.

y = g r' (x - m') + b: per row y - b is fitted on {g x^, g}; slope a and constant k give the used
rstd r' = a r and mean m' = mean - k / r'. m' is then fitted, over the rows, on the tiles' sums of x
/ N, and 1 / r'^2 - epsilon on those of (x - m')^2 / N: gonogo.kernels.layernorm.forensics does that for
LayerNorm, and here. gamma and beta are vectors with a value a channel, a stretch of `width`
elements of a row (RMSNorm: 1); where what is left of y is too large, the likely mistakes are tried
in their place, and one that explains y far better is named.
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
"""Another gamma or beta is named when it leaves so many times less of y's energy than the given
one,"""
NOISY = 2.0
"""and one that is asked for at all, when the given one leaves so many times y's rounding."""
CHANNEL = 12.0
"""Standard errors by which a channel's own gamma or beta is another one (its errors are shared by
its elements)."""
CHANNEL_PART = 2.0**-4
"""and the part of the vector's size."""
COUNT = 0.25
"""How far a wrong divisor's factor may be from what a padded row makes of it, in units of what that
differs from 1."""


def candidates(model: Model) -> Iterator[tuple[str, str, Array, Array | None]]:
    """(vector, words, gamma, beta) of the likely mistakes."""
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
"""(model, fit, the used means) -> in words which other rows the statistics are of; "" for none that
explains them."""


def explained(model: Model, regroup: Regroup | None) -> tuple[list[Term], dict[str, float | None]]:
    """The terms of y."""
    found = fitted(model, model.gamma, model.beta)
    gamma, beta, words, wrong = model.gamma, model.beta, "", ""
    first = found
    if found.noise > NOISY:
        tried = [(fitted(model, g, b), name, said, g, b) for name, said, g, b in candidates(model)]
        best = min(tried, key=lambda each: each[0].energy, default=None)
        if best is not None and best[0].energy * BETTER < found.energy:
            found, wrong, words, gamma, beta = best
    places = isolated(model, found, gamma, beta)
    notes: list[Term] = []
    if places:
        notes.append(outlier_term(model, found, gamma, beta, places))
        model.outliers = places
        found = fitted(model, gamma, beta)
    terms = statistics(model, found.fit)
    other = (
        regroup(model, found, used_mean(model, found.fit))
        if regroup is not None and any(term.wrong for term in terms)
        else ""
    )
    if other:
        terms = [Term("y", "groups", 1, (None,), (None,), other, wrong=True)]
    vectors = vectors_of(model, found, gamma, beta)
    if other:
        vectors = [replace(each, wrong=False, can_tell=False, words="") for each in vectors]
    if wrong:
        named = Term("y", wrong, 1, (None,), (None,), words, wrong=True)
        vectors = [named if each.name == wrong else each for each in vectors]
    whole = first.energy + first.terms
    residuals = {
        "before": float(np.sqrt(whole / first.unit)) if first.unit > 0 else None,
        "after": found.noise if np.isfinite(found.noise) else None,
    }
    return [*terms, *vectors, *notes], residuals


def used_normal(model: Model, fit: RowFit, start: int, stop: int) -> Array:
    """x^ as the kernel made it, rows start..stop."""
    here = slice(start, stop)
    slope = np.where(np.isfinite(fit.slope[here]), fit.slope[here], 1.0)[:, None]
    constant = np.where(np.isfinite(fit.constant[here]), fit.constant[here], 0.0)[:, None]
    xhat = (model.x[here].astype(np.float64) - model.rows.mean[here, None]) * model.rows.rstd[
        here, None
    ]
    return np.asarray(slope * xhat + constant)


def isolated(model: Model, found: Fitted, gamma: Array, beta: Array | None) -> outliers.Places:
    """Isolated wrong values of y: columns per row."""
    assert model.y is not None
    y_of = model.y

    def block(start: int, stop: int) -> dict[int, NDArray[np.int64]]:
        with np.errstate(all="ignore"):
            product = model.spread(gamma, start, stop) * used_normal(model, found.fit, start, stop)
            added = (
                np.zeros_like(product)
                if beta is None
                else np.broadcast_to(model.spread(beta, start, stop), product.shape)
            )
            rest = y_of[start:stop].astype(np.float64) - product - added
            rest[~np.isfinite(rest)] = 0.0
            sigma = np.where(
                np.isfinite(found.fit.sigma[start:stop]), found.fit.sigma[start:stop], np.inf
            )
            return outliers.isolated(rest, np.abs(product) + np.abs(added), sigma, start)

    rows, step = model.blocks()
    places: dict[int, NDArray[np.int64]] = {}
    for each in over_rows(block, rows, step):
        places |= each
    return places


def outlier_term(
    model: Model, found: Fitted, gamma: Array, beta: Array | None, places: outliers.Places
) -> Term:
    """The finding of isolated values."""
    assert model.y is not None
    powers = 0
    for row, columns in places.items():
        expected = (
            model.spread(gamma, row, row + 1)[0] * used_normal(model, found.fit, row, row + 1)[0]
        )
        expected = expected if beta is None else expected + model.spread(beta, row, row + 1)[0]
        powers += outliers.powers_of_two(
            model.y[row, columns].astype(np.float64), expected[columns]
        )
    return outliers.term("y", sum(map(len, places.values())), powers, sorted(places))


def used_mean(model: Model, fit: RowFit) -> Array:
    """The mean of each row that y was made with; NaN where a row doesn't tell."""
    with np.errstate(all="ignore"):
        slope = np.where(np.isfinite(fit.slope), fit.slope, 1.0)
        return np.asarray(model.rows.mean - fit.constant / (slope * model.rows.rstd))


def statistics(model: Model, fit: RowFit) -> list[Term]:
    """The mean and the sum of squares that y was made with."""
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
    """The tiles that a mean sums."""
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
            # what x - mean and the sum with beta lose in their alignment has one sign
            limit = 4 * ALIGNMENT * float(np.nanmedian(np.sqrt(square)))
            bias = float(np.clip(np.nanmedian(mean - rows.mean), -limit, limit))
            term = clearer(
                term,
                explain(output, noun, partial, mean - bias, sigma, extras, why_not(seed, partial)),
            )
    return replace(term, words=_padded(term, "mean", features))


def subtracted(model: Model, mean: Array, error: Array) -> Term:
    """Of a kernel that has no mean: whether one was subtracted, as a multiple of the rows' own."""
    with np.errstate(all="ignore"):
        own = model.x.astype(np.float64).mean(axis=1)
        good = np.isfinite(mean) & np.isfinite(error) & (error > 0)
        weight = np.where(good, 1.0 / error**2, 0.0)
        power = float((weight * own**2).sum())
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
        value = float((weight * own * np.where(good, mean, 0.0)).sum()) / power
        left = np.where(good, (mean - value * own) ** 2 * weight, 0.0).sum() / max(
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
    """The tiles whose squares an rstd sums, epsilon and the divisor."""
    term = explain_variance(model.seed, model.rows, output, rstd, error, mean)
    features = model.x.shape[1]
    return replace(
        term,
        name=model.noun,
        words=_padded(term, "variance", features).replace("variance", model.noun),
    )


def _padded(term: Term, noun: str, features: int) -> str:
    """The words of a sum that is too small in all tiles by what its padding would make a divisor
    too large.
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


def vectors_of(model: Model, found: Fitted, gamma: Array, beta: Array | None) -> list[Term]:
    """Gamma and beta channel by channel, from what is left of y beside the used statistics."""
    assert model.y is not None
    y_of = model.y
    channels = len(gamma)

    def block(start: int, stop: int) -> Array:
        with np.errstate(all="ignore"):
            z = used_normal(model, found.fit, start, stop)
            rest = y_of[start:stop].astype(np.float64) - model.spread(gamma, start, stop) * z
            if beta is not None:
                rest -= model.spread(beta, start, stop)
            keep = outliers.counted(rest, model.outliers, start)
            ones = np.ones_like(z)
            if keep is not None:
                rest, z, ones = (np.where(keep, each, 0.0) for each in (rest, z, ones))
            total = np.zeros((6, model.groups, channels // model.groups))
            for k, each in enumerate((ones, z, z * z, rest, rest * z, rest * rest)):
                sums = each.reshape(stop - start, -1, model.width).sum(axis=2)
                np.add.at(total[k], np.arange(start, stop) % model.groups, sums)
            return total.reshape(6, -1)

    rows, step = model.blocks()
    n, z, zz, e, ez, ee = np.sum(over_rows(block, rows, step), axis=0)
    terms = []
    with np.errstate(all="ignore"):
        apart = zz - z * z / n
        told = (n >= 8) & (apart > 0.05 * zz) if beta is not None else (n >= 4) & (zz > 0)
        slope = (ez - z * e / n) / apart if beta is not None else ez / zz
        left = np.maximum(ee - slope * ez, 0.0)
        sigma = np.sqrt(
            np.maximum(left, model.precision.rounding**2 * gamma**2 * zz) / np.maximum(n - 2, 1.0)
        )
        error = sigma / np.sqrt(np.where(beta is not None, apart, zz))
        terms.append(_vector(model, "gamma", gamma, slope, error, told))
        if beta is not None:
            terms.append(
                _vector(model, "beta", beta, (e - slope * z) / n, sigma / np.sqrt(n), told)
            )
    return terms


def _vector(
    model: Model, name: str, used: Array, off: Array, error: Array, told: NDArray[np.bool_]
) -> Term:
    """Whether some channels of a vector are off by more than their errors."""
    told = told & np.isfinite(off) & np.isfinite(error)
    if not told.any():
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
    # a kernel may lose one factor, or one shift, of all channels alike: that is the scale's and the
    # mean's affair
    some = told & (used != 0)
    common = float(np.median(off[some] / used[some])) if name == "gamma" and some.any() else 0.0
    apart = np.abs(off - common * used)
    wrong = told & (apart > CHANNEL * error) & (apart > CHANNEL_PART * size)
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
        numbers([float(np.median(error[told])) / size]),
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
    """What is wrong with y, mean and rstd (any subset), flat arrays; always answers."""
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
        found, residuals["y"] = explained(model, regroup)
        terms.extend(found)
    if any(
        term.name == "groups" for term in terms
    ):  # the outputs mean and rstd are those of other groups, too
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
