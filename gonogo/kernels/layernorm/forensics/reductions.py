"""The explanation of one reduction of a kernel.

It says which tiles were used, which rows don't follow, or what else went into the sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gonogo.kernels.layernorm.forensics.fit import (
    GOOD_SCATTER,
    SPARE_ROWS,
    TileFit,
    fit_tiles,
    solve,
)
from gonogo.kernels.layernorm.forensics.precision import Precision
from gonogo.kernels.layernorm.forensics.sums import Array
from gonogo.kernels.layernorm.forensics.words import (
    SIGMAS,
    Finding,
    Noun,
    close,
    describe,
    odd_rows,
)
from gonogo.numerics.diagnosis import Term, numbers

MATTERS = 6.0
"""An extra addend is named when its coefficient is this many standard errors from 0."""


SAME = 3.0
"""Two used sums are the same when most differ by less than this many of their standard errors."""


@dataclass(frozen=True)
class Extra:
    """An addend that may have gone into every sum: (rows,) values.

    Its coefficient is 1 where the kernel added it. `words` describe it. With {value} in them any
    coefficient is a finding and is filled in (plus `base`); else only 1 is.
    """

    values: Array
    words: str
    base: float = 0.0


def stored_error(
    error: Array, used: Array, partial: Array, square: Array, features: int, precision: Precision
) -> Array:
    """Return the standard error of a used mean (rows,) that may have been stored as bf16.

    Its partial sums may have been stored, too: per tile, `partial` (rows, tiles), or per lane. The
    latter have about the size of a sum of unrelated terms with mean `square` (rows,).
    """
    with np.errstate(all="ignore"):
        parts = np.maximum(np.vecdot(partial, partial), square / features)
        return np.asarray(
            np.sqrt(error**2 + precision.stored(partial.shape[1]) ** 2 * (used**2 + parts))
        )


def explain(
    output: str,
    noun: Noun,
    partial: Array,
    used: Array,
    sigma: Array,
    extras: Sequence[Extra] = (),
    why: str = "",
    lane: str = "row",
) -> Term:
    """Return the term of a reduction.

    It comes from each row's partial sums (rows, tiles), the sum that was used and its error
    (rows,). lane: what has one sum, a row or, for sums down the rows, a column. A common
    coefficient and one extra addend are preferred to one coefficient per tile where they leave as
    little.
    """
    fit = fit_tiles(partial, used, sigma)
    finding = describe(fit, noun, why)
    if fit.method == "none":
        finding = _from_nothing(noun, used, sigma, finding, why or fit.reason)
    if finding.wrong and _is_loss(fit, noun, partial, used, sigma):
        words = (
            f"cannot tell {noun.name}: "
            "its error is of the size that the test's fidelity and formats may lose"
        )
        return replace(_term(output, noun, fit, Finding(False, words, False), why), coarse=True)
    if (
        finding.wrong
        and not (fit.uniform and fit.scatter <= GOOD_SCATTER)
        and fit.method != "total"
    ):
        extra = with_extra(partial.sum(axis=1), used, sigma, extras, noun)
        if extra is not None:
            return replace(_term(output, noun, fit, extra, why), named=True)
    if len(fit.odd):
        words = _odd_rows_words(fit, noun, used, sigma, lane)
        words = f"{finding.words}; {words}" if finding.words else words
        finding = Finding(True, words, finding.can_tell)
    return _term(output, noun, fit, finding, why)


def _is_loss(fit: TileFit, noun: Noun, partial: Array, used: Array, sigma: Array) -> bool:
    """Return whether the test's own arithmetic may lose as much as the sums are off.

    The sums follow no pattern.
    """
    if not noun.allowed or not (np.isfinite(fit.scatter) and fit.scatter > GOOD_SCATTER):
        return False
    with np.errstate(all="ignore"):
        whole = partial.sum(axis=1)
        size = np.sqrt(whole**2 + np.vecdot(partial, partial))
        usable = np.isfinite(used) & np.isfinite(size) & (sigma > 0) & np.isfinite(sigma)
        off = used[usable] - whole[usable]
        return bool(
            usable.any()
            and float(off @ off) <= noun.allowed**2 * float(size[usable] @ size[usable])
        )


def _term(output: str, noun: Noun, fit: TileFit, finding: Finding, why: str) -> Term:
    hidden = bool(why) and fit.method in ("total", "none")
    return Term(
        output=output,
        name=noun.name,
        tiles=fit.tiles,
        coefficients=numbers(fit.coefficients),
        errors=numbers(fit.errors),
        words=finding.words,
        group=fit.tiles if fit.method == "total" else fit.group,
        unit=noun.unit,
        wrong=finding.wrong,
        can_tell=finding.can_tell,
        hidden=hidden,
        scatter=float(fit.scatter) if np.isfinite(fit.scatter) else None,
        rows=tuple((fit.odd + 1).tolist()),
    )


def with_extra(
    whole: Array, used: Array, sigma: Array, extras: Sequence[Extra], noun: Noun
) -> Finding | None:
    """Return a common coefficient and one of the extras.

    None where no extra describes the sums to their rounding.
    """
    best: tuple[float, Finding] | None = None
    for extra in extras:
        usable = (
            np.isfinite(whole)
            & np.isfinite(used)
            & np.isfinite(sigma)
            & (sigma > 0)
            & np.isfinite(extra.values)
        )
        if usable.sum() < SPARE_ROWS + 2 or not np.any(extra.values[usable]):
            continue
        both = np.column_stack([whole, extra.values])[usable] / sigma[usable, None]
        with np.errstate(all="ignore"):
            target = used[usable] / sigma[usable]
            if not np.isfinite(np.square(both).sum()) or not np.isfinite(target @ target):
                continue
        solution = solve(both, target)
        if (
            not solution.determined
            or solution.scatter > GOOD_SCATTER
            or not np.isfinite(solution.coefficients).all()
        ):
            continue
        (common, value), (common_error, error) = (
            solution.coefficients.tolist(),
            solution.errors.tolist(),
        )
        named = "{value}" in extra.words
        if (
            abs(value) < MATTERS * error
            or not close(common, common_error, 1.0, noun)
            or SIGMAS * common_error > 0.5
        ):
            continue
        if not named and not (close(value, error, 1.0, noun) and SIGMAS * error < 0.5):
            continue
        finding = Finding(True, extra.words.format(value=f"{value + extra.base:.2g}"), True)
        if best is None or solution.scatter < 0.9 * best[0]:
            best = (solution.scatter, finding)
    return best[1] if best else None


def _from_nothing(
    noun: Noun, used: Array, sigma: Array, otherwise: Finding, reason: str
) -> Finding:
    """Return the finding of sums that should be zero and are not, in most rows."""
    usable = np.isfinite(used) & np.isfinite(sigma) & (sigma > 0)
    if not usable.any() or float(np.median(np.abs(used[usable]) / sigma[usable])) <= MATTERS:
        return otherwise
    words = (
        f"{noun.name} is {float(np.median(used[usable])):.3g} where it should be 0; "
        f"cannot tell which {noun.unit}s: {reason}"
    )
    return Finding(True, words, False)


def _odd_rows_words(fit: TileFit, noun: Noun, used: Array, sigma: Array, lane: str) -> str:
    """Return what the rows (or columns: `lane`) that don't follow the others have instead."""
    rows = odd_rows(fit.odd.tolist(), len(used), lane)
    with np.errstate(all="ignore"):
        if float(np.median(np.abs(used[fit.odd]) / sigma[fit.odd])) < SAME:
            return f"{noun.name} is missing in {rows}"
        # in a run of odd rows the source can't be determined
        alone = fit.odd[(fit.odd > 0) & ~np.isin(fit.odd - 1, fit.odd)]
        apart = np.abs(used[alone] - used[alone - 1]) / np.hypot(sigma[alone], sigma[alone - 1])
        if 2 * len(alone) > len(fit.odd) and float(np.median(apart)) < SAME:
            return f"{noun.name} of {rows} is that of the {lane} before"
    return f"{noun.name} differs in {rows}"
