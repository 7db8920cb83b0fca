"""Ties of an output that a small common factor would round as it does acquit of no factor."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.corpus.judging import ask
from benchmarks.corpus.sources.libraries import question
from benchmarks.libraries import mutants
from benchmarks.libraries.cases import case_named
from gonogo.judging.limits.ties import FACTOR, hides_factor
from gonogo.kernels.normalization.forward import NormalizedRows
from gonogo.kernels.normalization.moments import Rows
from gonogo.numerics.expectation import Array
from gonogo.numerics.formats import Mode, round_to
from gonogo.numerics.replay.program import Program

STORED = Program(stored=dict.fromkeys(("mean", "x - mean", "rstd", "x^", "gamma x^"), "bf16"))
DRAWN = np.random.default_rng(5)
ROWS = Rows(
    round_to(DRAWN.standard_normal((8, 64)), "bf16").astype(np.float64),
    np.ones((1, 64)),
    round_to(DRAWN.standard_normal((1, 64)), "bf16").astype(np.float64),
    1e-5,
)
GRAPH = NormalizedRows(ROWS)
VALUES = GRAPH.replay(STORED).values
LARGE, SMALL = 3e-3, 3e-5


def rounded(mode: Mode) -> Array:
    return round_to(VALUES, "bf16", mode).astype(np.float64)


def with_ties_toward_zero() -> Array:
    away, toward = rounded("away"), rounded("zero")
    is_tie = np.abs(VALUES - toward) == np.abs(away - VALUES)
    return np.where(is_tie, toward, away)


def with_one_tie_away() -> Array:
    even = rounded("even").ravel()
    place = np.flatnonzero(even != rounded("away").ravel())[0]
    even[place] = rounded("away").ravel()[place]
    return even.reshape(VALUES.shape)


def test_these_inputs_have_ties_whose_even_neighbors_lie_on_both_sides() -> None:
    even, away, toward = rounded("even"), rounded("away"), with_ties_toward_zero()
    assert (even != away).any()
    assert (even != toward).any()


@pytest.mark.parametrize(
    ("output", "unseen", "hides"),
    [
        (rounded("even"), LARGE, False),  # a factor would have moved half of the ties
        (rounded("away"), LARGE, True),
        (with_ties_toward_zero(), LARGE, True),
        (with_one_tie_away(), LARGE, False),  # no factor moves one tie alone
        (rounded("away"), SMALL, False),  # too small for any output to be red by it
        (rounded("away"), 0.0, False),
    ],
    ids=["even", "away", "toward zero", "one of them", "a small factor", "no factor"],
)
def test_ties_that_all_lie_on_one_side_may_be_a_factor(
    output: Array, unseen: float, hides: bool
) -> None:
    assert hides_factor(GRAPH, output, STORED, "bf16", unseen) is hides


@pytest.mark.parametrize(
    "program",
    [Program(), replace(STORED, output_rounding="away")],
    ids=["nothing stored", "named with ties away from zero"],
)
def test_ties_say_nothing_of_noisy_values_and_of_kernels_that_round_so(program: Program) -> None:
    away = round_to(GRAPH.replay(program).values, "bf16", "away").astype(np.float64)
    assert not hides_factor(GRAPH, away, program, "bf16", LARGE)


def test_a_red_output_that_a_factor_of_a_thousandth_explains_is_no_false_alarm() -> None:
    # all rows of a ramp are alike, and six of their 33 columns are ties
    case = case_named("layernorm_fw-33x33-ramp-bf16")
    mutant = mutants.mutant_named("composite: y-off-0.1%", case.kind)
    judged = ask(question(case, 0), mutants.run(mutant.source, case, 0, mutant.edit.name))
    assert judged.outputs["y"]["tolerance_ratio"] > 1
    assert judged.verdict == "inconclusive"
    assert FACTOR in judged.outputs["y"]["unseen_terms"]
    # said once, with its size
    limits = judged.outputs["y"]["detection_limits"]
    assert [limit for limit in limits if FACTOR in limit] == ["a common factor below 0.1 %"]
    right = ask(question(case, 0), mutants.run(mutant.source, case, 0))
    assert right.verdict == "fail_by_tolerance"
