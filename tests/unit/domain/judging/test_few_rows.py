"""A program that a search fitted to the statistics of few rows acquits of nothing."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.corpus.judging import ask
from benchmarks.corpus.sources.libraries import question
from benchmarks.libraries import mutants
from benchmarks.libraries.cases import case_named
from gonogo.judging.few_rows import STEP, hides_step
from gonogo.kernels.normalization.forward import NormalizedRows
from gonogo.kernels.normalization.moments import Rows
from gonogo.numerics.expectation import Array
from gonogo.numerics.replay.program import Program

DRAWN = np.random.default_rng(1).standard_normal((64, 48))
ALIKE = np.ldexp(DRAWN[:1], np.arange(64)[:, None] % 4)


@pytest.mark.parametrize(
    ("x", "stored", "hides"),
    [
        (DRAWN[:4], ("mean", "rstd"), True),
        (DRAWN, ("mean", "rstd"), False),
        (ALIKE, ("mean", "rstd"), True),
        (DRAWN[:4], ("x^",), False),  # every element tells
        (DRAWN[:4], ("x^", "gamma x^"), False),
        (DRAWN[:4], NormalizedRows(Rows(DRAWN, np.ones((1, 48)), None, 0.0)).known[2][1], False),
    ],
)
def test_a_stored_statistic_of_few_rows_may_hide_a_step(
    x: Array, stored: tuple[str, ...], hides: bool
) -> None:
    graph = NormalizedRows(Rows(x, np.ones((1, 48)), None, 1e-5))
    program = Program(stored=dict.fromkeys(stored, "bf16"))
    assert hides_step(graph, program, ["bf16"]) is hides


def test_the_variance_over_n_minus_1_of_four_rows_is_no_false_alarm() -> None:
    # it moves the stored rstd of one row, and so does another order of storing
    case = case_named("groupnorm_fw-1x12x300-normal-bf16")
    mutant = mutants.mutant_named("composite: variance-over-n-minus-1", case.kind)
    wrong = mutants.run(mutant.source, case, 0, mutant.edit.name)
    judged = ask(question(case, 0), wrong)
    assert judged.outputs["y"]["tolerance_ratio"] > 1
    assert judged.verdict == "inconclusive"
    assert STEP in judged.outputs["y"]["unseen_terms"]
    right = mutants.run(mutant.source, case, 0)
    assert ask(question(case, 0), right).verdict == "fail_by_tolerance"
