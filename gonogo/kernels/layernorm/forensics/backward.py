"""Forensics of dx: the scale, s1, s2 and gamma that a layernorm_bw used.

dx = r (a P - s1 - x^ s2) with P = dy g. In each row, R = P - dx / (r a) is fitted on {1, x^}. Its
coefficients are the s1 and s2 that the kernel used. These are fitted, over the rows, on the partial
sums of every tile, sum_j P / N and sum_j P x^ / N. The scale a comes from what {1, x^} leave of P,
pooled over the rows. The gamma that was used comes from dx / (r a) + s1 + x^ s2 on dy, per column.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gonogo.kernels.layernorm.forensics.backward_sums import (
    Backward,
    Rows,
    Scale,
    fit_sums,
    scale_of,
)
from gonogo.kernels.layernorm.forensics.columns import Factor, fit_factor
from gonogo.kernels.layernorm.forensics.fit import GOOD_SCATTER
from gonogo.kernels.layernorm.forensics.outliers import Places
from gonogo.kernels.layernorm.forensics.outliers import term as outlier_term
from gonogo.kernels.layernorm.forensics.precision import ALIGNMENT
from gonogo.kernels.layernorm.forensics.reductions import Extra, explain, stored_error
from gonogo.kernels.layernorm.forensics.sums import Array, RowFit
from gonogo.kernels.layernorm.forensics.words import SIGMAS, Noun, odd_rows, ordinal
from gonogo.numerics.diagnosis import Term, numbers

Residuals = dict[str, float | None]

S1 = Noun("s1", twice="is subtracted twice")
S2 = Noun("s2", twice="is subtracted twice")
ROW_SCALE = 2.0**-9
"""Deviation of a single row's factor beyond that of all rows: its rstd may be stored as bf16."""
NOT_SUBTRACTED = "the mean is not subtracted from x"
SUBTRACTED = "the mean is subtracted from x, which this kernel must not"
S1_SUBTRACTED = "s1 is subtracted, which this kernel must not"
NEAR_ONE = 0.25
"""The distance from 1 up to which a coefficient means that a sum was subtracted once."""


@dataclass(frozen=True)
class _State:
    """The knowledge of dx after one round: the used gamma, the factor, and the sums per row."""

    gamma: Array
    rows: Rows
    scale: Scale
    factor: float
    fit: RowFit


def explain_dx(seed: Backward) -> tuple[list[Term], Residuals]:
    """Return the terms of dx that can be determined, and the residuals."""
    state = _round(seed, seed.gamma)
    floor = seed.floor(state.rows)
    # a wrong gamma looks like a factor of dx, too: first fit gamma without one
    factor, outliers = _gamma(
        seed, replace(state, factor=1.0, fit=fit_sums(state.rows, 1.0, floor))
    )
    if not factor.term.wrong and state.factor != 1.0:
        factor, outliers = _gamma(seed, state)
    notes: list[Term] = []
    if outliers:
        notes.append(_outliers(seed, state, outliers))
        seed.outliers = outliers
        state = _round(seed, seed.gamma)
        factor, _ = _gamma(seed, state)
    if factor.term.wrong:
        state = _round(seed, factor.used)
        if factor.differs:
            # a free gamma absorbs any factor: then there is none to tell
            state = replace(
                state,
                scale=replace(state.scale, value=np.nan),
                factor=1.0,
                fit=fit_sums(state.rows, 1.0, floor),
            )
    why = _why(seed)
    first, second = _reductions(seed, state, why)
    if factor.term.wrong and (first.wrong or second.wrong):
        # gamma may be wrong in the last product only: then the sums use the given one
        given = _reductions(
            seed,
            _State(seed.gamma, seed.sums(seed.gamma), state.scale, state.factor, state.fit),
            why,
        )
        if sum(term.wrong for term in given) < first.wrong + second.wrong:
            first, second = given
    sums = [first, second] if seed.centered or first.wrong else [second]
    terms = [_scale(seed, state), *sums, factor.term, *notes]
    return terms, _residuals(seed, state, floor)


def _round(seed: Backward, gamma: Array) -> _State:
    rows = seed.sums(gamma)
    floor = seed.floor(rows)
    scale = scale_of(rows, floor)
    factor = scale.value if _scale_is_off(seed, scale) else 1.0
    return _State(gamma, rows, scale, factor, fit_sums(rows, factor, floor))


def _gamma(seed: Backward, state: _State) -> tuple[Factor, Places]:
    """Return the gamma that was used, per tile, and the isolated outliers."""
    columns, outliers = seed.columns(state.gamma, state.factor, state.fit)
    with np.errstate(all="ignore"):
        floor, power = seed.floor(state.rows), state.rows.pp / state.rows.count
        noise = float(np.nanmedian(floor)) ** 2 if np.isfinite(floor).any() else 0.0
        energy = float(np.nanmedian(power)) if np.isfinite(power).any() else 0.0
    tolerance = seed.precision.scale + 2.0**-9
    return fit_factor(
        "dx",
        "gamma",
        seed.gamma,
        columns,
        noise,
        tolerance,
        coherent=noise + seed.precision.column**2 * energy,
    ), outliers


def _scale_is_off(seed: Backward, scale: Scale) -> bool:
    off = abs(scale.value - 1.0)
    return bool(
        np.isfinite(off)
        and off > seed.precision.scale + SIGMAS * scale.error
        and abs(scale.value) > 0.05
    )


def _scale(seed: Backward, state: _State) -> Term:
    """Return the term of the factor of the whole of dx, with the rows whose factor differs."""
    scale = state.scale
    known = np.isfinite(scale.value)
    words, rows = "", tuple[int, ...]()
    if known:
        if _scale_is_off(seed, scale):
            words = f"dx is {scale.value:.5g} times what it should be (rstd or gamma)"
        with np.errstate(all="ignore"):
            off = (
                np.abs(scale.rows - scale.value)
                > seed.precision.scale + ROW_SCALE + 2 * SIGMAS * scale.errors
            )
        odd = np.flatnonzero(off)
        if 0 < len(odd) <= 0.4 * len(off):
            rows = tuple((odd + 1).tolist())
            words = "; ".join(
                filter(
                    None, [words, f"dx is scaled differently in {odd_rows(odd.tolist(), len(off))}"]
                )
            )
    value = numbers([scale.value])
    return Term(
        "dx",
        "scale",
        1,
        value,
        numbers([scale.error]),
        words,
        wrong=bool(words),
        can_tell=bool(known),
        rows=rows,
    )


def _reductions(seed: Backward, state: _State, why: str) -> tuple[Term, Term]:
    """Return the terms of s1 and s2, tile by tile."""
    rows, fit = state.rows, state.fit
    with np.errstate(all="ignore"):
        s1 = rows.first.sum(axis=1)
        offset = seed.mean * seed.rstd if seed.centered else rows.z / rows.count
        slope = np.where(np.isfinite(fit.slope), fit.slope, 0.0)
        features = seed.x.shape[1]
        square = rows.pp / rows.count
        first_error = seed.precision.repeats * fit.constant_error
        # x^ may be off by a constant along a row, which s1 brings into s2
        # off by a constant along a row, where a mean is subtracted
        shift = np.hypot(ALIGNMENT * np.hypot(1.0, offset), seed.precision.own_mean * offset)
        shift = shift * float(seed.centered)
        weighted = square * rows.zz / rows.count
        first_error = np.hypot(first_error, shift * slope)
        first_error = stored_error(
            first_error, fit.constant, rows.first, square, features, seed.precision
        )
        second_error = np.hypot(seed.precision.repeats * fit.slope_error, shift * s1)
        second_error = stored_error(
            second_error, fit.slope, rows.second, weighted, features, seed.precision
        )
        sign, words = (1, NOT_SUBTRACTED) if seed.centered else (-1, SUBTRACTED)
        extras = [
            (Extra(sign * offset * slope, words), Extra(sign * offset * s1, words)),
            tuple(
                Extra(np.ones_like(s1), name + " starts from {value} in every row")
                for name in ("s1", "s2")
            ),
        ]
        if features % 32:
            last_tile = ordinal(-(-features // 32))
            text = (
                "counts the padding of the last tile "
                f"({32 - features % 32} columns of the {last_tile} tile)"
            )
            padding = (
                Extra(rows.padding[:, 0], f"s1 {text}"),
                Extra(rows.padding[:, 1], f"s2 {text}"),
            )
            extras.insert(0, padding)
        tiles = rows.first.shape[1]
        if seed.centered:
            first = explain(
                "dx",
                seed.precision.noun(S1, tiles),
                rows.first,
                fit.constant,
                first_error,
                [pair[0] for pair in extras],
                why,
            )
        else:
            candidates = {S1_SUBTRACTED: s1, SUBTRACTED: -offset * slope}
            first = _unwanted(candidates, fit.constant, first_error)
        second = explain(
            "dx",
            seed.precision.noun(S2, tiles),
            rows.second,
            fit.slope,
            second_error,
            [pair[1] for pair in extras],
            why,
        )
    return first, second


def _unwanted(candidates: dict[str, Array], used: Array, sigma: Array) -> Term:
    """Return the term of s1 in a kernel without one: what it subtracts all the same.

    candidates: by words, the constant of each row that the fault would leave in dx. used, sigma:
    the constant that was found, with its standard error, (rows,).
    """
    for words, values in candidates.items():
        usable = np.isfinite(values) & np.isfinite(used) & np.isfinite(sigma) & (sigma > 0)
        weight, target = values[usable] / sigma[usable], used[usable] / sigma[usable]
        norm = float(weight @ weight)
        if norm <= (SIGMAS / NEAR_ONE) ** 2:
            continue
        coefficient = float(weight @ target) / norm
        left = target - coefficient * weight
        is_whole = float(left @ left) <= GOOD_SCATTER**2 * len(left)
        if abs(coefficient - 1.0) <= NEAR_ONE and is_whole:
            error = numbers([norm**-0.5])
            return Term("dx", "s1", 1, numbers([coefficient]), error, words, wrong=True)
    return Term("dx", "s1", 0, (), ())


def _why(seed: Backward) -> str:
    """Return why the tiles can't be determined, where the inputs say so."""
    names = [name for name, values in (("x", seed.x), ("dy", seed.dy)) if constant(values)]
    if not names:
        return ""
    return f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} constant"


def constant(values: NDArray[np.floating]) -> bool:
    """Return whether all values are equal. The first row is compared first."""
    first = values.flat[0]
    if np.any(values[0] != first):
        return False
    return bool((values == first).all())


def _outliers(seed: Backward, state: _State, places: Places) -> Term:
    """Return the term of isolated wrong values, and whether they are off by powers of two."""

    def expected(row: int, columns: NDArray[np.int64]) -> Array:
        z, dy, _, _ = seed.block(row, row + 1)
        slope = state.fit.slope[row] if np.isfinite(state.fit.slope[row]) else 0.0
        with np.errstate(all="ignore"):
            left = dy[0] * state.gamma - state.fit.constant[row] - z[0] * slope
            return np.asarray(left[columns] * state.factor * seed.rstd[row])

    return outlier_term("dx", seed.dx, places, expected)


def _residuals(seed: Backward, state: _State, floor: Array) -> Residuals:
    """Return the rms error before and after the terms found, in units of rounding.

    Its shares along their directions are included.
    """
    rows, fit = state.rows, state.fit
    with np.errstate(all="ignore"):
        slope = np.where(np.isfinite(fit.slope), fit.slope, 0.0)
        s1 = rows.first.sum(axis=1) if seed.centered else 0.0
        off1 = state.factor * fit.constant - s1
        off2 = state.factor * slope - rows.second.sum(axis=1)
        off = state.factor - 1.0
        after = rows.count * (state.factor * fit.sigma) ** 2
        terms = off**2 * rows.pp + rows.count * off1**2 + off2**2 * rows.zz
        terms += 2 * off1 * off2 * rows.z - 2 * off * (off1 * rows.p + off2 * rows.pz)
        measurable = np.isfinite(after) & np.isfinite(terms) & (floor > 0)
        if not measurable.any():
            return {
                "before": None,
                "after": None,
                "along_1": None,
                "along_xhat": None,
                "along_p": None,
            }
        unit = float(np.sum(rows.count[measurable] * floor[measurable] ** 2))
        whole = float(np.sum(after[measurable] + np.maximum(terms[measurable], 0.0)))
        share = [
            float(np.sum(part[measurable])) / whole
            for part in (rows.count * off1**2, off2**2 * rows.zz, off**2 * rows.pp)
        ]
        return {
            "before": float(np.sqrt(whole / unit)),
            "after": float(np.sqrt(np.sum(after[measurable]) / unit)),
            "along_1": share[0],
            "along_xhat": share[1],
            "along_p": share[2],
        }
