"""Rows that a program misses, over seeds: two are no chance, unless there are very many rows."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
from scipy.stats import poisson

from gonogo.spec.missed_rows import (
    CHANCE,
    MIN_UNEXPLAINED,
    RATE,
    MissedRows,
    is_unexplained,
    least_unexplained,
    pooled,
)
from gonogo.spec.verdicts import Explanation

STORED = "bf16: mean, rstd stored"


def row(missed: int, rows: int = 32, name: str = STORED) -> dict[str, Any]:
    return {"missed_rows": {"arithmetic": name, "missed": missed, "rows": rows}}


@pytest.mark.parametrize(
    ("rows", "least"),
    [
        (0, 2),
        (32, 2),
        (646, 2),
        (647, 3),
        (2432, 3),
        (2433, 4),
        (6552, 5),
        (10_000, 6),
        (50_000, 14),
    ],
)
def test_the_number_of_rows_that_is_no_chance_grows_with_all_rows(rows: int, least: int) -> None:
    assert least_unexplained(rows) == least
    assert poisson.sf(least - 1, RATE * rows) <= CHANCE
    assert least == MIN_UNEXPLAINED or poisson.sf(least - 2, RATE * rows) > CHANCE


def test_a_thousand_seeds_of_many_rows_have_a_limit_too() -> None:
    rows = 1000 * 32_768
    assert least_unexplained(rows) == pytest.approx(poisson.isf(CHANCE, RATE * rows), abs=2)


@pytest.mark.parametrize(
    ("seeds", "explanation"),
    [
        ([row(0)] * 8, Explanation.explained),
        ([row(1), *[row(0)] * 7], Explanation.suspect),
        ([row(1), row(1), *[row(0)] * 6], Explanation.unexplained),
        ([row(2), *[row(0)] * 7], Explanation.unexplained),
        ([row(1, 819), row(1, 819), *[row(0, 819)] * 6], Explanation.suspect),
    ],
    ids=["no row", "one row", "one row in each of two seeds", "two in a seed", "of 6,552 rows"],
)
def test_rows_count_together_over_seeds(
    seeds: list[dict[str, Any]], explanation: Explanation
) -> None:
    together = pooled(seeds)
    assert together is not None
    assert together.explanation is explanation
    assert is_unexplained(seeds) is (explanation is Explanation.unexplained)


def test_seeds_of_one_program_count_and_others_say_nothing() -> None:
    hidden = "bf16: mean, variance, rstd stored"  # a stored rstd hides most of the variance's step
    other = row(3, 8, "bf16: x^ stored")
    together = pooled([row(1), row(1, 32, hidden), other, {}, {"missed_rows": None}])
    assert together == MissedRows(STORED, 2, 64, 2)
    assert pooled([{}]) is None
    assert not is_unexplained([{}])
    again = pooled([{"missed_rows": asdict(together)}, row(0)])
    assert again == MissedRows(STORED, 2, 96, 3)


def test_the_words_say_of_how_many_rows_and_seeds() -> None:
    assert MissedRows(STORED, 36, 2560, 8).words == (
        "all but 36 of 2,560 rows in 8 seeds are those of bf16: mean, rstd stored"
    )
    assert MissedRows(STORED, 1, 32).words == f"all but 1 of 32 rows are those of {STORED}"
    assert MissedRows(STORED, 0, 32).words == ""
