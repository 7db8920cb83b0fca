"""The variance that a used rstd implies.

The forensics tell which tiles' squares it sums, about which mean, its divisor and its epsilon.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gonogo.kernels.layernorm.forensics.fit import GOOD_SCATTER
from gonogo.kernels.layernorm.forensics.forward_sums import Forward, Rows
from gonogo.kernels.layernorm.forensics.reductions import Extra, explain, with_extra
from gonogo.kernels.layernorm.forensics.sums import TILE, Array, tile_starts
from gonogo.kernels.layernorm.forensics.words import BELOW, Noun, ordinal
from gonogo.numerics.diagnosis import Term

VARIANCE = Noun("variance", below=2 * BELOW, above=BELOW)
"""1/N truncated, and rstd stored as bf16, which counts twice: 2^-7 + 2^-8, rounded up."""


def tile_sizes(seed: Forward) -> Array:
    """Return the share of a row's features that each tile holds: (tiles,)."""
    features = seed.x.shape[1]
    return np.asarray(np.diff(np.append(tile_starts(features), features)) / features, np.float64)


def padding_extras(seed: Forward, name: str, values: Array) -> list[Extra]:
    """Return the unmasked padding as an addend of the sum `name`, where there is padding."""
    features = seed.x.shape[1]
    if not features % TILE:
        return []
    where = f"{TILE - features % TILE} columns of the {ordinal(-(-features // TILE))} tile"
    return [Extra(values, f"{name} counts the padding of the last tile ({where})")]


def why_not(seed: Forward, partial: Array) -> str:
    """Return why the tiles can't be determined, where x says so."""
    if len(seed.x) > 1 and bool(np.all(seed.x == seed.x.flat[0])):
        return "x is constant"
    return (
        "x is the same in every row"
        if len(seed.x) > 1 and bool(np.all(partial == partial[0]))
        else ""
    )


def explain_variance(
    seed: Forward, rows: Rows, output: str, rstd: Array, error: Array, mean: Array | None
) -> Term:
    """Return the term of the variance that a used rstd implies.

    It is about the used mean or, where that explains it no better, about the right one.
    """
    features = seed.x.shape[1]
    with np.errstate(all="ignore"):
        whole = 1.0 / rstd**2
        used = whole - seed.epsilon
        sigma = 2 * whole * np.hypot(error / rstd, seed.precision.stored(rows.second.shape[1]))
        # a row whose variance is below what rstd resolves can't tell it
        plain = rows.second
        about = plain
        if mean is not None:
            away = (rows.mean - mean)[:, None]
            about = plain + 2 * away * rows.first + away**2 * tile_sizes(seed)
        epsilon = Extra(
            np.ones_like(used), f"epsilon is {{value}} instead of {seed.epsilon:g}", seed.epsilon
        )
        extras = [*padding_extras(seed, "variance", rows.padding[:, 1]), epsilon]
        noun = seed.precision.noun(VARIANCE, plain.shape[1])
        why = why_not(seed, plain)
        if not np.any(np.isfinite(plain) & (plain > 0)):
            return explain(
                output,
                noun,
                plain,
                used,
                np.full_like(used, np.nan),
                [],
                why or "x has no variance",
            )
        term = explain(output, noun, plain, used, sigma, extras, why)
        if mean is not None and term.wrong:
            pad = min(-features % TILE, features) / features
            repeated = (
                rows.padding[:, 1] + 2 * away[:, 0] * rows.padding[:, 0] + away[:, 0] ** 2 * pad
            )
            extras = [*padding_extras(seed, "variance", repeated), epsilon]
            again = explain(output, noun, about, used, sigma, extras, why)
            if clearer(term, again) is again:
                term, plain = again, about
        if not term.wrong:
            return term
        return _reworded(seed, term, plain.sum(axis=1), used, sigma, epsilon, features)


def clearer(first: Term, second: Term) -> Term:
    """Return the better of two explanations.

    It is right, says what else was summed, or leaves much less.
    """
    if not second.wrong or (second.named and not first.named):
        return second
    return (
        second
        if not first.named and (second.scatter or np.inf) < 0.8 * (first.scatter or np.inf)
        else first
    )


def _reworded(
    seed: Forward,
    term: Term,
    whole: Array,
    used: Array,
    sigma: Array,
    epsilon: Extra,
    features: int,
) -> Term:
    """Reword a variance that is wrong in all tiles by the same factor.

    It is unbiased, or has another epsilon; or either, where that can't be determined.
    """
    if all(value is None for value in term.coefficients) or term.named:
        return term
    with np.errstate(all="ignore"):
        usable = (
            np.isfinite(whole) & np.isfinite(used) & (sigma > 0) & np.isfinite(sigma) & (whole > 0)
        )
        weight = np.where(usable, 1.0 / sigma, 0.0)
        common = float(
            np.sum(np.where(usable, weight**2 * whole * used, 0.0))
            / np.sum(np.where(usable, (weight * whole) ** 2, 0.0))
        )
        left = np.where(usable, (used - common * whole) * weight, 0.0)
        spare = max(1, int(usable.sum()) - 1)
        alike = bool(np.sqrt(left @ left / spare) <= GOOD_SCATTER)
        shift = float(np.sum(np.where(usable, weight**2 * (used - whole), 0.0)) / np.sum(weight**2))
        left = np.where(usable, (used - whole - shift) * weight, 0.0)
        another = bool(np.sqrt(left @ left / spare) <= GOOD_SCATTER)
    unbiased = features / (features - 1) if features > 1 else np.inf
    words = term.words
    if alike and abs(common - unbiased) <= BELOW * common:
        words = "variance is unbiased (divides by N-1)"
    elif another and shift + seed.epsilon >= 0:
        other = f"epsilon is {shift + seed.epsilon:.2g} instead of {seed.epsilon:g}"
        distinct = not alike or with_extra(whole, used, sigma, [epsilon], VARIANCE) is not None
        words = (
            other
            if distinct
            else f"variance is {common:.4g} times what it should be, or {other}: cannot tell which"
        )
        return replace(term, words=words, can_tell=distinct)
    return replace(term, words=words)
