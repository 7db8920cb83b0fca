"""Edges: the smallest tolerances that a right kernel stays within.

They follow from the replay of the arithmetic that explains the kernel's output.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gonogo.arithmetic.formats import Doubles, round_to, step
from gonogo.judging.judging import SeedJudgement, matrix
from gonogo.judging.questions import questions
from gonogo.judgment.advice import HEADROOM, red_rate
from gonogo.judgment.cells import LIMIT, Cells
from gonogo.judgment.fits import Candidate, Output, TracedKernel
from gonogo.judgment.tolerance import Tolerance
from gonogo.spec.verdicts import Explanation
from gonogo.workloads import exact_outputs

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

Arrays = Mapping[str, NDArray[Any]]
DEVIATIONS = 5.0
"""How far the sum of squared errors may be from that of another seed, in deviations."""
RARE = 1e-3
"""The share of other seeds in which an error may be larger than allowed for."""


def edges(
    test: TestSpec,
    raw: Arrays,
    given: Arrays,
    outputs: Arrays,
    judgement: SeedJudgement,
    rtols: Sequence[float],
    arithmetic: str | None = None,
) -> dict[str, dict[str, Any]]:
    """Return the edges of each output that an arithmetic explains, in plain JSON types.

    The numbers have the names of the statistics: `needed_atol` by rtol, `rel_frobenius`,
    `pcc_deficit`, `ulp_max`, and `tolerance_ratio` of the declared allclose; None where nothing is
    bounded. `alarm` is the chance that the declared
    allclose fails a right kernel on such a seed; None where the test declares none.

    raw: the inputs as gonogo.judging.inputs draws them; given: as the device got them; judgement:
    that of the outputs; rtols: for which the smallest atol is needed; arithmetic: the declared one.
    """
    all_questions = questions(test, given, arithmetic)
    references = exact_outputs(test, raw)
    by_output = {}
    for name, judged in judgement.outputs.items():
        if judged.answer is None or judged.explanation is not Explanation.explained:
            continue
        question = next(one for one in all_questions if name in one.graphs[0].outputs)
        graph = question.every[judged.answer.way]
        shape = graph.outputs[name].shape
        values = np.asarray(matrix(test, name, outputs), np.float64).reshape(shape)
        output = Output(
            TracedKernel([graph], question.inputs), name, values, question.formats[name]
        )
        cells = output.cells(Candidate(graph, judged.answer.program))
        today = question.tolerances.get(name)
        by_output[name] = edges_of(cells, references[name].reshape(shape), rtols, today)
    return by_output


def edges_of(
    cells: Cells, raw: Doubles, rtols: Sequence[float], today: Tolerance | None
) -> dict[str, Any]:
    """Return the edges of an output.

    An error is at most half a cell, 8 deviations of the noise, and the shift by what the arithmetic
    stores and by the rounding of the inputs. Sizes, shifts and sums are this seed's, with headroom
    for others. raw: the exact function of the data before they were rounded to the inputs' formats.
    """
    size, deviation = np.abs(raw), cells.deviation
    with np.errstate(all="ignore"):
        half = np.maximum(cells.half, step(HEADROOM * cells.values, cells.form) / 2)
        shift = np.abs(cells.replay.values - raw) + cells.replay.slack
        moved = LIMIT * deviation + headroom(raw.size) * shift
        most, golden = half + moved, round_to(raw, cells.form)
        steps = (cells.half + moved + np.abs(golden - raw)) / step(golden, cells.form)
        squares = _largest_sum(np.square(cells.values - raw))
        error = math.sqrt(min(squares, float((most**2).sum())))
        norm, spread = float(np.linalg.norm(raw)), float(np.linalg.norm(raw - raw.mean()))
        numbers = {
            "rel_frobenius": error / norm if norm else math.inf if error else 0.0,
            "pcc_deficit": _pcc_deficit(error / spread) if spread > error else math.inf,
            "ulp_max": float(steps.max()),
            "tolerance_ratio": math.nan if today is None else _ratio(most, today.allowed(raw)),
        }
        needed = {repr(rtol): max(float((most - rtol * size).max()), 0.0) for rtol in rtols}
        alarm = None if today is None else _plain(red_rate(cells, shift, today.allowed(raw)))
    return {
        "needed_atol": {rtol: _plain(atol) for rtol, atol in needed.items()},
        **{name: _plain(number) for name, number in numbers.items()},
        "alarm": alarm,
    }


def headroom(count: int) -> float:
    """Return by how much the largest of `count` normal errors may exceed that of another seed.

    It is 1.3 for 32 x 1024 elements, and 1.65 for 160.
    """
    usual, rare = (NormalDist().inv_cdf(1 - p / 2) for p in (1 / (count + 1), RARE / count))
    return rare / usual


def _largest_sum(squares: Doubles) -> float:
    """Return the largest sum of squared errors that other seeds may have, from those of one.

    Values of a row may share errors, and those of a column: their sums say how much they vary.
    """
    spreads = [0.0]
    for axis in range(squares.ndim):
        sums = np.moveaxis(squares, axis, 0).reshape(squares.shape[axis], -1).sum(axis=1)
        spreads.append(math.sqrt(sums.size) * float(sums.std()))
    return float(squares.sum()) + DEVIATIONS * max(spreads)


def _ratio(most: Doubles, allowed: Doubles) -> float:
    """Return the largest error divided by its tolerance; 0 where there is no error."""
    return float(np.where(most > 0, most / allowed, 0.0).max(initial=0.0))


def _pcc_deficit(relative: float) -> float:
    """Return the largest 1 - PCC of an error with that norm, relative to the centered reference's.

    For a = b + d of fixed |d| < |b| the angle is largest where d is at right angles to a: sin =
    |d|/|b|.
    """
    return 1.0 - math.sqrt(1.0 - relative**2) if relative > 1e-4 else relative**2 / 2


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None
