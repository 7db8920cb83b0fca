"""The comparison of one output with its expectation: every stored statistic.

This is the definition, in plain NumPy. gonogo.numerics.compiled computes the same statistics of
rows; tests hold it to this one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo.numerics import directions
from gonogo.numerics.distances import NEEDED_RTOLS as NEEDED_RTOLS
from gonogo.numerics.distances import coarse as coarse
from gonogo.numerics.distances import pcc_deficit as pcc_deficit
from gonogo.numerics.distances import pcc_from_sums as pcc_from_sums
from gonogo.numerics.distances import percentile_99 as percentile_99
from gonogo.numerics.distances import storable as storable
from gonogo.numerics.expectation import (
    Array,
    Direction,
    Expectation,
    Mask,
    beyond_truncation,
    binade,
    output_step,
    round_away,
    round_even,
)

OUTLIER_BUDGETS = 3.0
"""An outlier is beyond this many budgets."""
OUTLIER_RATIO = 2.0**-6
"""An outlier is within this part of a power of two times the reference.

That is the Wormhole HiFi4 + fp32-accumulate erratum.
"""

SMALLEST_NORMAL = 2.0**-126

Statistics = dict[str, Any]


def digest(output: NDArray[np.float32], shape: tuple[int, ...]) -> str:
    """Return 16 hex digits: XXH3-64 over the shape and the float32 bytes.

    The shape is int64, the bytes are in C order and little-endian. All NaNs have one pattern; -0
    stays. It says whether two runs gave the same bits. It is no proof against people who want two
    outputs to look the same.
    """
    array = np.ascontiguousarray(output, dtype="<f4")
    if np.isnan(array).any():
        array = array.copy()
        array[np.isnan(array)] = np.frombuffer(b"\x00\x00\xc0\x7f", dtype="<f4")[0]
    import xxhash  # not in the interpreters of builds, where the conformance suite runs

    hasher = xxhash.xxh3_64(np.asarray(shape, dtype="<i8").tobytes())
    hasher.update(array.reshape(-1).view(np.uint8).data)
    return hasher.hexdigest()


def rounded(reference: Array, unit: float, block: bool) -> Array:
    """Return the golden value: the reference rounded to nearest even in the output's format."""
    if not block:
        return round_even(reference, unit)
    grid = 2 * output_step(reference, unit, block)
    safe = np.where(grid > 0, grid, 1.0)
    return np.asarray(np.where(grid > 0, np.rint(reference / safe) * safe, reference))


def golden_of(expected: Expectation) -> directions.Golden:
    """Return the errors of perfectly rounded outputs.

    They are those of the reference, ties to even and ties away, and of the reference with the
    stored intermediates' predicted rounding.
    """
    even = rounded(expected.reference, expected.out, expected.out_block)
    goldens = [even, ties_away(expected.reference, even, expected)]
    if expected.bias is not None and expected.bias.any():
        predicted = expected.reference + expected.bias
        even = rounded(predicted, expected.out, expected.out_block)
        goldens += [even, ties_away(predicted, even, expected)]
    return tuple(golden - expected.reference for golden in goldens)


def ties_away(values: Array, even: Array, expected: Expectation) -> Array:
    """Return the values rounded with ties away from zero, from those rounded to even."""
    if not expected.out_block:
        return round_away(values, expected.out)
    step = output_step(values, expected.out, expected.out_block)
    return np.asarray(
        np.where(
            (np.abs(even - values) == step) & (step > 0), values + np.copysign(step, values), even
        )
    )


def statistics(
    output: NDArray[np.float32],
    expected: Expectation,
    raw: Array,
    *,
    allclose: tuple[float, float] | None,
    shape: tuple[int, ...],
) -> Statistics:
    """Return every statistic of one output (docs/verdicts.md).

    output, raw: the shape of expected.reference (rows, N). Tolerances, errors, PCC and ULP compare
    with `raw`; budget_ratio, chi, mismatch, outliers and the directions compare with the quantized
    reference, over informative rows. shape: the output's own (for the digest). A metric is null
    where it is undefined or infinite. `nonfinite` counts values that are not finite where the
    reference is.
    """
    result: Statistics = {"count": int(output.size), "digest": digest(output, shape)}
    result.update(nonfinite(output))
    keep = finite_rows(output)
    if not keep.any() or not np.isfinite(output[keep]).any():
        return result | blank(direction.name for direction in expected.directions)
    out = np.asarray(output[keep], np.float64)
    expected = restrict(expected, keep)
    finite = np.isfinite(out)
    result = (
        _against_raw(out, raw[keep], finite, expected, allclose)
        | _against_budget(out, expected, finite)
        | result
    )
    return result


def finite_rows(output: NDArray[np.float32]) -> Mask:
    """Return a mask of the rows that are compared.

    Of a matrix they are those without NaN and Inf. An output of one row is compared where it is
    finite.
    """
    return np.asarray(np.isfinite(output).all(axis=1)) if output.shape[0] > 1 else np.ones(1, bool)


def nonfinite(out: NDArray[np.floating]) -> Statistics:
    """Return how many values are not finite, of which kinds, and where the first one is."""
    finite = np.isfinite(out)
    if finite.all():
        return {"nonfinite": 0, "nonfinite_kinds": None}
    kinds = {
        "nan": int(np.isnan(out).sum()),
        "+inf": int((out == np.inf).sum()),
        "-inf": int((out == -np.inf).sum()),
    }
    row, column = np.argwhere(~finite)[0]
    return {
        "nonfinite": int((~finite).sum()),
        "nonfinite_kinds": {k: v for k, v in kinds.items() if v},
        "worst_index": [int(row), int(column)],
    }


def _against_raw(
    out: Array,
    raw: Array,
    finite: Mask,
    expected: Expectation,
    allclose: tuple[float, float] | None,
) -> Statistics:
    error, reference = (out - raw)[finite], raw[finite]
    size = np.abs(error)
    norm = float(np.sqrt((reference**2).sum()))
    golden = rounded(raw, expected.out, expected.out_block)[finite]
    distance = np.abs(out[finite] - golden) / (
        2 * expected.out * np.maximum(binade(golden), SMALLEST_NORMAL)
    )
    needed = np.maximum(
        (size - np.multiply.outer(NEEDED_RTOLS, np.abs(reference))).max(axis=1), 0.0
    )
    result: Statistics = {
        "max_abs": float(size.max()),
        "mean_abs": float(size.mean()),
        "rms": float(np.sqrt((error**2).mean())),
        "rel_frobenius": _ratio(float(np.sqrt((error**2).sum())), norm),
        "pcc_deficit": pcc_deficit(reference, error),
        "ulp_max": float(distance.max()),
        "ulp_p99": percentile_99(distance),
        "needed_atol": dict(zip(map("{:g}".format, NEEDED_RTOLS), needed.tolist(), strict=True)),
        "tolerance_ratio": None,
        "tolerance_ratio_quantised": None,
    }
    if allclose is not None:
        rtol, atol = allclose
        result["tolerance_ratio"] = largest_ratio(size, atol + rtol * np.abs(reference))
        quantised = expected.reference[finite]
        result["tolerance_ratio_quantised"] = largest_ratio(
            np.abs(out[finite] - quantised), atol + rtol * np.abs(quantised)
        )
    return result


def _against_budget(out: Array, expected: Expectation, finite: Mask) -> Statistics:
    informative = (
        np.ones(out.shape[0], bool) if expected.informative is None else expected.informative
    )
    result: Statistics = {"rows_left_out": int((~informative).sum())}
    usable = finite & informative[:, None]
    if not usable.any():
        return blank(direction.name for direction in expected.directions) | result
    error = np.where(finite, out, 0.0) - expected.reference
    ratio = np.where(usable, shares_of_budget(expected, error), -1.0)
    standard = standardized_squares(expected, error)[usable]
    outlier = usable & (ratio > OUTLIER_BUDGETS) & near_powers(out, expected.reference)
    worst = np.unravel_index(int(np.argmax(ratio)), ratio.shape)
    golden = rounded(expected.reference, expected.out, expected.out_block)
    result |= {
        "budget_ratio": float(ratio.max()),
        "over_budget_fraction": float((ratio > 1).sum() / usable.sum()),
        "chi": float(np.sqrt(standard.mean())),
        "mismatch_fraction": float((out != golden)[usable].sum() / usable.sum()),
        "outliers": int(outlier.sum()),
    }
    result["worst_index"] = [int(worst[0]), int(worst[1])]
    golden_errors = golden_of(expected)
    for direction in expected.directions:
        if not finite.all():  # one row with missing values has no projections
            result |= directions.scores_of(direction.name, None)
            continue
        used = tuple(errors[informative] for errors in golden_errors)
        scores = directions.scores(
            restrict(expected, informative),
            restrict_direction(direction, informative),
            error[informative],
            used,
        )
        result |= directions.scores_of(direction.name, scores)
    return result


def near_powers(out: Array, reference: Array) -> Mask:
    """Return where an output is nearly a power of two times its reference, other than 1."""
    with np.errstate(divide="ignore", invalid="ignore"):
        multiple = np.abs(out / reference)
        power = np.rint(np.log2(multiple))
        return np.asarray((power != 0) & (np.abs(multiple / 2.0**power - 1) < OUTLIER_RATIO))


def shares_of_budget(expected: Expectation, error: Array) -> Array:
    """Return |e|/B of each element: 0 where the error is 0, and inf where only the budget is."""
    size = np.abs(error)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(size == 0, 0.0, size / expected.bound))


def standardized_squares(expected: Expectation, error: Array) -> Array:
    """Return (e/s)^2 of each element, of the part of its error that chi counts."""
    beyond = beyond_truncation(expected, error)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(beyond == 0, 0.0, beyond**2 / expected.variance))


def restrict(expected: Expectation, keep: Mask) -> Expectation:
    """Return the expectation of some of its rows."""
    if keep.all():
        return expected

    def rows(a: Array) -> Array:
        return a[keep] if a.shape[0] == keep.size else a

    return replace(
        expected,
        reference=rows(expected.reference),
        bound=rows(expected.bound),
        noise=rows(expected.noise),
        shared=tuple(
            replace(s, variance=rows(s.variance), pattern=rows(s.pattern)) for s in expected.shared
        ),
        bias=None if expected.bias is None else rows(expected.bias),
        trend=tuple(rows(t) for t in expected.trend),
        spread=None if expected.spread is None else rows(expected.spread),
        allowance=tuple(rows(errors) for errors in expected.allowance),
        truncated=None if expected.truncated is None else rows(expected.truncated),
        keyed=tuple(
            replace(k, key=rows(k.key), amplitude=rows(k.amplitude)) for k in expected.keyed
        ),
        informative=None if expected.informative is None else expected.informative[keep],
        directions=tuple(restrict_direction(direction, keep) for direction in expected.directions),
    )


def restrict_direction(direction: Direction, keep: Mask) -> Direction:
    """Return the direction on some of the rows."""
    if direction.axis == "tiles" or direction.weights.shape[0] != keep.size or keep.all():
        return direction
    floor = direction.floor[keep] if isinstance(direction.floor, np.ndarray) else direction.floor
    return replace(direction, weights=direction.weights[keep], floor=floor)


def blank(names: Iterable[str]) -> Statistics:
    """Return the statistics of an output in which nothing could be compared with the budget.

    names: its directions.
    """
    result: Statistics = dict.fromkeys(
        ("budget_ratio", "over_budget_fraction", "chi", "mismatch_fraction")
    )
    result |= {"outliers": 0, "rows_left_out": 0}
    for name in names:
        result |= directions.scores_of(name, None)
    return result


def _ratio(numerator: float, denominator: float) -> float:
    if denominator == 0:
        return 0.0 if numerator == 0 else math.inf
    return numerator / denominator


def largest_ratio(numerator: Array, denominator: Array) -> float:
    """Return the largest quotient, at least 0; 0/0 is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(numerator == 0, 0.0, numerator / denominator)
    return float(ratios.max(initial=0.0))
