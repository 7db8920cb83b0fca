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
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gonogo.kernels.layernorm.forensics import concluded, flat_rows, forward, readable
from gonogo.kernels.layernorm.forensics.forward import MEAN, MEAN_OUT
from gonogo.kernels.layernorm.forensics.forward_sums import Forward
from gonogo.kernels.layernorm.forensics.precision import ALIGNMENT, Precision
from gonogo.kernels.layernorm.forensics.sums import TILE, Array, RowFit
from gonogo.kernels.layernorm.forensics.variance import clearer, explain_variance
from gonogo.kernels.layernorm.forensics.words import BELOW, SIGMAS
from gonogo.kernels.rows.model import Fitted, fitted, isolated, outlier_term, used_mean
from gonogo.kernels.rows.vectors import candidates, vectors_of
from gonogo.numerics.diagnosis import Diagnosis, Term, numbers

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

Arrays = Mapping[str, NDArray[Any]]
BETTER = 4.0
"""Another gamma or beta is named when it leaves this many times less of y's energy."""
NOISY = 2.0
"""Another gamma or beta is tried when the given one leaves this many times y's rounding."""
COUNT = 0.25
"""The largest distance of a wrong divisor's factor from that of a padded row.

The unit is the difference between the padded row's factor and 1.
"""


Regroup = Callable[["Forward", "Fitted", Array], str]
"""(seed, fit, the used means) -> in words, which other rows the statistics are of.

It returns "" where no other rows explain them.
"""


def explained(seed: Forward, regroup: Regroup | None) -> tuple[list[Term], dict[str, float | None]]:
    """Return the terms of y, and what is left of its error before and after them."""
    fit = first = fitted(seed, seed.gamma, seed.beta)
    words, wrong = "", ""
    if fit.noise > NOISY:
        tried = [(fitted(seed, g, b), name, text) for name, text, g, b in candidates(seed)]
        best = min(tried, key=lambda attempt: attempt[0].energy, default=None)
        if best is not None and best[0].energy * BETTER < fit.energy:
            fit, wrong, words = best
    places = isolated(seed, fit)
    notes: list[Term] = []
    if places:
        notes.append(outlier_term(seed, fit, places))
        seed.outliers = places
        fit = fitted(seed, fit.gamma, fit.beta)
    terms = statistics(seed, fit.fit)
    other = (
        regroup(seed, fit, used_mean(seed, fit.fit))
        if regroup is not None and any(term.wrong for term in terms)
        else ""
    )
    if other:
        terms = [Term("y", "groups", 1, (None,), (None,), other, wrong=True)]
    vectors = vectors_of(seed, fit)
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


def statistics(seed: Forward, fit: RowFit) -> list[Term]:
    """Return the terms of the mean and the sum of squares that y was computed with."""
    rows = seed.statistics
    with np.errstate(all="ignore"):
        slope = np.where(np.isfinite(fit.slope), fit.slope, 1.0)
        rstd = slope * rows.rstd
        mean = used_mean(seed, fit)
        spread = np.sqrt(rows.mean**2 + 1.0 / rows.rstd**2)
        error = np.sqrt((fit.constant_error / rstd) ** 2 + (ALIGNMENT * spread) ** 2)
    terms = [mean_term(seed, "y", mean, error) if seed.centred else subtracted(seed, mean, error)]
    about = mean if seed.centred or terms[0].wrong else None
    terms.append(squares_term(seed, "y", fit.slope * rows.rstd, fit.slope_error * rows.rstd, about))
    return terms


def mean_term(seed: Forward, output: str, mean: Array, error: Array) -> Term:
    """Return the term of a mean: which tiles it sums."""
    rows, noun = seed.statistics, MEAN if output == "y" else MEAN_OUT
    term = forward.mean_term(seed, rows, output, noun, mean, error)
    if term.wrong and output == "y" and len(mean) >= TILE:
        # the alignment losses of x - mean and of the sum with beta have one sign
        with np.errstate(all="ignore"):
            square = rows.mean**2 + rows.second.sum(axis=1)
            limit = 4 * ALIGNMENT * float(np.nanmedian(np.sqrt(square)))
            bias = float(np.clip(np.nanmedian(mean - rows.mean), -limit, limit))
        term = clearer(term, forward.mean_term(seed, rows, output, noun, mean - bias, error))
    return replace(term, words=_padded(term, "mean", seed.x.shape[1]))


def subtracted(seed: Forward, mean: Array, error: Array) -> Term:
    """Return the term of a mean that the kernel must not subtract.

    Its coefficient is a multiple of the rows' own means.
    """
    with np.errstate(all="ignore"):
        row_means = seed.x.astype(np.float64).mean(axis=1)
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


def squares_term(seed: Forward, output: str, rstd: Array, error: Array, mean: Array | None) -> Term:
    """Return the term of an rstd: the tiles whose squares it sums, epsilon and the divisor."""
    term = explain_variance(seed, seed.statistics, output, rstd, error, mean)
    features = seed.x.shape[1]
    return replace(
        term,
        name=seed.noun,
        words=_padded(term, "variance", features).replace("variance", seed.noun),
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
    good, terms = readable(outputs, test.flat_shape_of, flat_rows(x, centered=centred))
    gamma = np.asarray(given["gamma"], np.float64)
    seed = Forward(
        x,
        gamma,
        np.asarray(given["beta"], np.float64) if "beta" in given else None,
        test.epsilon,
        good.get("y"),
        Precision.of(test),
        groups,
        x.shape[1] * groups // len(gamma),
        centred,
        noun,
        channel,
    )
    residuals: dict[str, dict[str, float | None]] = {}
    if "y" in good:
        y_terms, residuals["y"] = explained(seed, regroup)
        terms.extend(y_terms)
    if any(term.name == "groups" for term in terms):
        # the outputs mean and rstd are those of other groups, too
        good = {name: value for name, value in good.items() if name == "y"}
    mean = np.asarray(good["mean"], np.float64) if "mean" in good else None
    rounding = seed.precision.rounding
    with np.errstate(all="ignore"):
        if mean is not None:
            terms.append(mean_term(seed, "mean", mean, np.abs(mean) * rounding))
        if "rstd" in good:
            rstd = np.asarray(good["rstd"], np.float64)
            about = mean if centred else None
            terms.append(squares_term(seed, "rstd", rstd, np.abs(rstd) * rounding, about))
    return concluded(terms, residuals)
