"""layernorm_bw by the fused path.

Blocks of rows run on the thread pool; their totals are merged in block order into the statistics.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo.kernels.layernorm import reference
from gonogo.kernels.layernorm.arithmetic import backward as definition
from gonogo.kernels.layernorm.arithmetic.columns import column_sum, with_own_statistics
from gonogo.kernels.layernorm.arithmetic.given import GivenMoments
from gonogo.kernels.layernorm.arithmetic.terms import BackwardTerms
from gonogo.kernels.layernorm.fused import backward_rows, finish
from gonogo.kernels.layernorm.fused import columns as down
from gonogo.numerics import compare, directions
from gonogo.numerics.blocks import ROWS_PER_BLOCK, over_rows
from gonogo.numerics.compiled.rows import SCORES
from gonogo.numerics.expectation import Array, coherence
from gonogo.numerics.totals import Totals, finished

Inputs = Mapping[str, NDArray[Any]]
Tolerances = Mapping[str, tuple[float, float] | None]


def numbers(t: BackwardTerms) -> Array:
    """Return the terms in the order in which backward_rows reads them."""
    return np.array(
        [
            t.out,
            t.xhat,
            t.align,
            t.read,
            t.product,
            t.stored_product,
            t.stored_weighted,
            t.stored_sum,
            t.read_sum,
            t.read_lane,
            t.reciprocal,
            t.accumulate,
            t.additions,
            t.difference,
            t.scale,
            t.stored_column,
            float(t.align >= 2.0**-12),
            t.scale + t.product_mean + t.read,
            t.additions * t.accumulate / 12**0.5 if t.in_order else 0.0,
            t.cut,
        ]
    )


def statistics(
    raw: Inputs,
    given: Inputs,
    known: GivenMoments,
    raw_moments: tuple[Array, Array],
    outputs: Mapping[str, NDArray[np.float32]],
    terms: BackwardTerms,
    allclose: Tolerances,
) -> dict[str, compare.Statistics]:
    """Return the statistics of the outputs that are present, by name.

    All outputs are finite (see statistics.statistics_fused).
    """
    x, dy = given["x"], given["dy"]
    count, n = x.shape
    dx = outputs.get("dx")
    tolerance = allclose.get("dx")
    rtol, atol = tolerance or (0.0, 0.0)
    gamma, gamma_raw = np.asarray(given["gamma"], np.float64), np.asarray(raw["gamma"], np.float64)
    mean_raw, rstd_raw = raw_moments
    columns_of = [
        np.ascontiguousarray(column[:, 0])
        for column in (
            known.mean,
            known.rstd,
            known.mean_error,
            known.rstd_error,
            known.var_mean,
            known.var_rstd,
        )
    ]
    mean, rstd, mean_error, rstd_error, var_mean, var_rstd = columns_of
    t = numbers(terms)
    scores, facts, floors = (
        np.zeros((count, SCORES)),
        np.zeros((count, backward_rows.ROW_FACTS)),
        np.zeros(count),
    )
    origin = _origin(raw, mean_raw, rstd_raw)

    def tile(start: int, stop: int, block_totals: Totals, columns: Array) -> Array:
        sums = np.zeros((backward_rows.SUMS, n))
        backward_rows.backward_block(
            start,
            stop,
            x,
            dy,
            gamma,
            mean,
            rstd,
            raw["x"],
            raw["dy"],
            gamma_raw,
            mean_raw,
            rstd_raw,
            dx is not None,
            x if dx is None else dx,
            t,
            rtol,
            atol,
            tolerance is not None,
            origin,
            block_totals.sums,
            block_totals.bins,
            scores,
            columns,
            sums,
            facts,
            floors,
            mean_error,
            rstd_error,
            var_mean,
            var_rstd,
            known.informative,
        )
        return sums

    def block(start: int, stop: int) -> tuple[Totals, Array, list[Array]]:
        block_totals, columns = Totals.empty(), np.zeros((down.COLUMNS, n))
        starts = range(start, stop, ROWS_PER_BLOCK)
        tiles = [tile(i, min(i + ROWS_PER_BLOCK, stop), block_totals, columns) for i in starts]
        return block_totals, columns, tiles

    blocks = over_rows(block, count, finish.ROWS, elements=x.size)
    parts = [part for _, _, tiles in blocks for part in tiles]
    result = {}
    if dx is not None:
        totals, columns = Totals.empty(), np.zeros((down.COLUMNS, n))
        for block_totals, block_columns, _ in blocks:
            totals.add(block_totals)
            columns += block_columns
        names = ("row", "xhat", "scale", "col")
        for place, name in enumerate(names[:3]):
            floor = floors if name == "scale" else 0.0
            totals.add_scores(name, scores, place, floor, known.informative)
        totals.columns["col"] = finish.column(columns, _coherent(facts, known, terms))
        result["dx"] = finished(totals, count * n, tolerance is not None, names)
        result["dx"] |= {"count": int(dx.size), "nonfinite": 0, "nonfinite_kinds": None}
        if known.informative.any() and finish.may_repeat(scores, known.informative):
            result["dx"] |= directions.scores_of("col", _down_columns(given, known, dx, terms))

    sums = np.zeros((backward_rows.SUMS, n))
    for part in parts:
        sums += part
    scale = terms.scale + terms.product_mean + terms.read
    if "dgamma" in outputs:
        tiles = np.array([part[backward_rows.C] for part in parts])
        expected = column_sum(
            tiles,
            sums[backward_rows.C_ABS],
            sums[backward_rows.C_BOUND],
            sums[backward_rows.C_VARIANCE],
            sums[backward_rows.C_PREDICTED],
            sums[backward_rows.C_CUT],
            scale,
            count,
            terms,
        )
        if terms.own_statistics is not None:
            wide = np.asarray(dy, np.float64)
            expected = with_own_statistics(
                expected, wide, (np.asarray(x, np.float64) - known.mean) * known.rstd, known
            )
        result["dgamma"] = compare.statistics(
            outputs["dgamma"],
            expected,
            sums[backward_rows.C_RAW][None, :],
            allclose=allclose.get("dgamma"),
            shape=(n,),
        )
    if "dbeta" in outputs:
        tiles = np.array([part[backward_rows.DY] for part in parts])
        read = terms.read + terms.product
        expected = column_sum(
            tiles,
            sums[backward_rows.DY_ABS],
            read * sums[backward_rows.DY_ABS],
            read**2 / 3 * sums[backward_rows.DY_SQUARED],
            np.zeros(n),
            np.zeros(n),
            terms.read + terms.product_mean + terms.scale,
            count,
            terms,
        )
        result["dbeta"] = compare.statistics(
            outputs["dbeta"],
            expected,
            sums[backward_rows.DY_RAW][None, :],
            allclose=allclose.get("dbeta"),
            shape=(n,),
        )
    return result


def _origin(raw: Inputs, mean: Array, rstd: Array) -> float:
    """Return the first element of the raw dx, about which the PCC's sums are centered."""
    return float(
        reference.backward(raw["x"][:1], raw["gamma"], mean[:1], rstd[:1], raw["dy"][:1])["dx"][
            0, 0
        ]
    )


def _coherent(
    facts: Array, known: GivenMoments, terms: BackwardTerms
) -> tuple[float, float, float, float]:
    """Return how coherent the spreads of a row's sums are: s1's, none, s2's, none."""
    used = facts[known.informative]
    if not terms.stored_sum or not len(used):
        return 0.0, 0.0, 0.0, 0.0
    s1, s2 = (coherence(used[:, k], terms.stored_sum) for k in (0, 1))
    return s1, 0.0, s2, 0.0


def _down_columns(
    given: Inputs,
    known: GivenMoments,
    dx: NDArray[np.float32],
    terms: BackwardTerms,
) -> directions.Scores:
    """Return the scores of dx's columns by their definition, which knows equal rows."""
    whole = definition.input_gradient(given, known, terms)
    expected = compare.restrict(whole, known.informative)
    error = dx.astype(np.float64)[known.informative] - expected.reference
    return directions.scores(
        expected,
        compare.restrict_direction(whole.directions[3], known.informative),
        error,
        compare.golden_of(expected),
    )
