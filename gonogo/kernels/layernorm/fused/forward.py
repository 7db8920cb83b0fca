"""layernorm_fw by the fused path.

Blocks of rows run on the thread pool; their totals are merged in block order into the statistics.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo.kernels.layernorm import reference
from gonogo.kernels.layernorm.arithmetic import forward as definition
from gonogo.kernels.layernorm.arithmetic.terms import ForwardTerms
from gonogo.kernels.layernorm.fused import columns as down
from gonogo.kernels.layernorm.fused import finish
from gonogo.kernels.layernorm.fused import forward_rows as block_rows
from gonogo.numerics import compare, directions
from gonogo.numerics.blocks import ROWS_PER_BLOCK, over_rows
from gonogo.numerics.compiled.rows import SCORES
from gonogo.numerics.expectation import Array, Mask, binade, coherence
from gonogo.numerics.totals import Totals, finished

Inputs = Mapping[str, NDArray[Any]]
Tolerances = Mapping[str, tuple[float, float] | None]


def numbers(t: ForwardTerms) -> Array:
    """Return the terms in the order in which forward_rows reads them."""
    return np.array(
        [
            t.out,
            t.stored,
            t.align,
            t.read,
            t.product,
            t.product_mean,
            t.reciprocal,
            t.accumulate,
            t.additions,
            t.half_grid,
            t.epsilon_error,
            t.scale,
            float(t.first_order),
            float(t.running),
            t.cut,
        ]
    )


def statistics(
    raw: Inputs,
    given: Inputs,
    epsilon: float,
    outputs: Mapping[str, NDArray[np.float32]],
    terms: ForwardTerms,
    allclose: Tolerances,
) -> dict[str, compare.Statistics]:
    """Return the statistics of the outputs that are present, by name.

    All outputs are finite (see statistics.statistics_fused).
    """
    x = given["x"]
    count, n = x.shape
    y = outputs.get("y")
    tolerance = allclose.get("y")
    rtol, atol = tolerance or (0.0, 0.0)
    gamma, beta, gamma_raw, beta_raw = (
        np.asarray(side[name], np.float64) for side in (given, raw) for name in ("gamma", "beta")
    )
    t = numbers(terms)
    scores, facts = np.zeros((count, SCORES)), np.zeros((count, block_rows.FACTS))
    origin = float(reference.forward(raw["x"][:1], gamma_raw, beta_raw, epsilon)["y"][0, 0])

    means, rstds = np.empty(count), np.empty(count)
    over_rows(
        lambda start, stop: block_rows.moments_block(start, stop, x, epsilon, means, rstds),
        count,
        ROWS_PER_BLOCK,
        elements=x.size,
    )
    together = coherence(means, terms.stored), coherence(rstds, terms.stored)

    def block(start: int, stop: int) -> tuple[Totals, Array]:
        block_totals, columns = Totals.empty(), np.zeros((2, down.COLUMNS, n))
        block_rows.forward_block(
            start,
            stop,
            x,
            gamma,
            beta,
            raw["x"],
            gamma_raw,
            beta_raw,
            epsilon,
            y is not None,
            x if y is None else y,
            t,
            *together,
            rtol,
            atol,
            tolerance is not None,
            origin,
            block_totals.sums,
            block_totals.bins,
            scores,
            columns,
            facts,
        )
        return block_totals, columns

    totals, columns = Totals.empty(), np.zeros((2, down.COLUMNS, n))
    for block_totals, block_columns in over_rows(block, count, finish.ROWS, elements=x.size):
        totals.add(block_totals)
        columns += block_columns
    informative = facts[:, block_rows.INFORMATIVE] > 0
    result = {}
    if y is not None:
        result["y"] = _of_y(
            totals,
            columns,
            facts,
            scores,
            informative,
            given,
            epsilon,
            y,
            terms,
            declared=tolerance is not None,
        )
    for name, raw_place, parts in (
        (
            "mean",
            block_rows.MU_RAW,
            (
                block_rows.MU,
                block_rows.BEFORE_MEAN,
                block_rows.ROW_VARIANCE_MEAN,
                block_rows.TREND_MEAN,
                block_rows.LANE_BIAS,
            ),
        ),
        (
            "rstd",
            block_rows.R_RAW,
            (
                block_rows.R,
                block_rows.BEFORE_RSTD,
                block_rows.ROW_VARIANCE_RSTD,
                block_rows.TREND_RSTD,
            ),
        ),
    ):
        if name not in outputs:
            continue
        value, before, row_variance, *systematic = (facts[:, place, None] for place in parts)
        systematic.append(coherence(value[:, 0], terms.stored) * terms.stored * binade(value))
        expected = definition.per_row(
            value,
            before,
            row_variance,
            tuple(systematic),
            terms,
            None if name == "mean" else informative,
        )
        result[name] = compare.statistics(
            outputs[name],
            expected,
            facts[None, :, raw_place],
            allclose=allclose.get(name),
            shape=outputs[name].shape[1:],
        )
    return result


def _of_y(
    totals: Totals,
    columns: Array,
    facts: Array,
    scores: Array,
    informative: Mask,
    given: Inputs,
    epsilon: float,
    y: NDArray[np.float32],
    terms: ForwardTerms,
    *,
    declared: bool,
) -> compare.Statistics:
    for place, name in enumerate(("mean", "rstd", "scale")):
        totals.add_scores(name, scores, place, 0.0, informative)
    means, rstds = facts[:, block_rows.MU], facts[:, block_rows.R]
    coherent = coherence(means, terms.stored), 1.0, coherence(rstds, terms.stored), 1.0
    for name, sums in zip(("gamma", "beta"), columns, strict=True):
        totals.columns[name] = finish.column(sums, coherent)
    result = finished(totals, y.size, declared, ("mean", "rstd", "scale", "gamma", "beta"))
    result |= {"count": int(y.size), "nonfinite": 0, "nonfinite_kinds": None}
    if informative.any() and finish.may_repeat(scores, informative):
        expected = compare.restrict(
            definition.expectations(given, epsilon, terms)["y"], informative
        )
        error = y.astype(np.float64)[informative] - expected.reference
        golden_errors = compare.golden_of(expected)
        for direction in definition.expectations(given, epsilon, terms)["y"].directions[3:]:
            chosen = compare.restrict_direction(direction, informative)
            result |= directions.scores_of(
                direction.name, directions.scores(expected, chosen, error, golden_errors)
            )
    return result
