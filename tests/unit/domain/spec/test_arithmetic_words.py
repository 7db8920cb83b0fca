"""The words of arithmetic models follow the programs' names, and the limits of a job are those that
none of its seeds could have seen."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from gonogo.numerics.replay.program import ColumnOrder, Order, Program
from gonogo.spec import arithmetic_words
from gonogo.spec.arithmetic_names import ALIASES, BUDGETS
from gonogo.spec.arithmetic_words import ProgramCount, counted, difference, meaning, of_output
from gonogo.spec.program_name import ProgramName, same

INSIDE = Program()
STORING = Program(stored={"mean": "bf16", "x^": "bf16"})


@pytest.mark.parametrize("base", [INSIDE, STORING])
@pytest.mark.parametrize("variance", ["x - mean", "E[x^2] - mean^2"])
def test_every_program_s_name_is_read_back(base: Program, variance: str) -> None:
    for order, column_order in product(Order, ColumnOrder):
        program = replace(base, variance=variance, order=order, column_order=column_order)
        parts = ProgramName.parse(program.name)
        assert parts is not None
        assert parts.stored == program.stored
        traits = (order is not Order.blocked, column_order is not ColumnOrder.blocked)
        assert len(parts.traits) == sum(traits) + (variance != "x - mean")
        sentences = meaning(program.name)
        assert sentences.count(".") == 1 + len(parts.traits), sentences


def test_names_that_are_no_program_s_are_not_read_as_one() -> None:
    assert all(ProgramName.parse(name) is None for name in (*BUDGETS, *ALIASES, "unknown", ""))
    assert "tt-train" in meaning("tt-train")
    assert meaning(None) == meaning("unknown") != ""
    assert meaning("of a newer version") == ""


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("fp32-inside", "bf16: x^ stored", "x^ is now stored in bf16"),
        ("fp32-inside", "fp16: mean, rstd stored", "mean and rstd are now stored in fp16"),
        ("bf16: x^, gamma x^ stored", "bf16: gamma x^ stored", "x^ is no longer stored in bf16"),
        ("bf16: x^ stored", "fp16: x^ stored", "x^ is now stored in fp16"),
        ("fp32-inside", "fp32-inside, running sums", "now with running sums"),
        (
            "fp32-inside, column sums: rows in order, in 2 parts",
            "bf16: x^ stored, running means",
            "x^ is now stored in bf16; now with running means;"
            " no longer with column sums: rows in order, in 2 parts",
        ),
        ("generic", "fp32-inside", 'was "generic", is "fp32-inside"'),
    ],
)
def test_a_change_names_what_is_stored_and_added_in_another_way(
    before: str, after: str, words: str
) -> None:
    assert difference(before, after) == words


@pytest.mark.parametrize(
    ("first", "second", "alike"),
    [
        ("bf16: x^, rstd stored", "bf16: rstd, x^ stored", True),
        ("bf16: variance, rstd stored", "bf16: rstd stored", True),
        ("bf16: sum of x, x^ stored", "bf16: mean, x^ stored", True),
        ("bf16: variance, x^ stored", "bf16: x^ stored", False),
        ("bf16: x^ stored", "fp16: x^ stored", False),
        ("bf16: x^ stored", "bf16: x^ stored, running sums", False),
        ("fp32-inside", "bf16: rstd stored", False),
        ("tt-train", "generic", False),
    ],
)
def test_names_are_the_same_where_an_output_can_t_tell_them_apart(
    first: str, second: str, alike: bool
) -> None:
    assert same(first, second) is same(second, first) is alike


def test_equal_models_count_together_under_the_most_frequent_name() -> None:
    names = {"bf16: x^, rstd stored": 2, "bf16: rstd, x^ stored": 3, None: 4, "fp32-inside": 1}
    assert counted(names) == {"bf16: rstd, x^ stored": 5, None: 4, "fp32-inside": 1}
    assert list(counted(names)) == ["bf16: rstd, x^ stored", None, "fp32-inside"]


def test_a_job_s_limits_are_those_of_all_seeds_with_the_smallest_size() -> None:
    seeds = [
        ["gamma", "rstd", "a common factor below 0.3 %"],
        ["gamma (these inputs don't use it)", "a common factor below 0.03 %"],
        ["a common factor below 1 %", "gamma"],
    ]
    assert arithmetic_words.shared_limits(seeds) == ("gamma", "a common factor below 0.03 %")
    assert arithmetic_words.shared_limits([["gamma"], []]) == ()
    assert arithmetic_words.shared_limits([]) == ()


def test_the_model_of_an_output_that_a_budget_explains_is_its_name() -> None:
    explained = {"budget_ratio": 0.9, "detection_limits": ["mean", "a common factor below 1 %"]}
    rows: list[dict[str, Any]] = [
        {"arithmetic": "tt-train", "outputs": {"dx": explained, "dgamma": {"budget_ratio": 90.0}}},
        {"arithmetic": "tt-train", "outputs": {"dx": explained}},
    ]
    (model,) = arithmetic_words.of_results(rows)
    assert model.words == (
        "arithmetic model of dx: tt-train; couldn't have seen: mean; a common factor below 1 %"
    )
    assert (model.seeds, model.nearest) == (2, None)
    assert "detection_limits" in explained
    assert "arithmetic" not in explained


def test_the_models_of_results_leave_out_builds_that_name_theirs() -> None:
    replayed = {
        "arithmetic": "fp32-inside",
        "nearest_arithmetic": "fp32-inside",
        "detection_limits": ["beta"],
    }
    unknown = {"arithmetic": None, "nearest_arithmetic": "bf16: x^ stored"}
    rows: list[dict[str, Any]] = [
        {"outputs": {"y": replayed, "mean": {"budget_ratio": 1.0}}},
        {"outputs": {"y": replayed}},
        {"outputs": {"y": unknown}},
        {"outputs": {}},
    ]
    (model,) = arithmetic_words.of_results(rows)
    assert model.words == (
        "arithmetic model of y: fp32-inside in 2 of 3 seeds; none reproduces it in 1 of 3 seeds"
        " (nearest: bf16: x^ stored); couldn't have seen: beta"
    )
    (alone,) = arithmetic_words.of_results(rows[:1])
    assert alone.words == "arithmetic model of y: fp32-inside; couldn't have seen: beta"
    assert alone.summary.programs == [ProgramCount("fp32-inside", 1)]


def test_a_program_that_nobody_named_is_told_from_none_at_all() -> None:
    row = {"arithmetic": None, "nearest_arithmetic": "fp32-inside"}
    assert of_output("y", [row]).words == (
        "arithmetic model of y: none reproduces it in 1 of 1 seeds (nearest: fp32-inside)"
    )
    other = of_output("y", [row, {**row, "reproduced_by": "bf16: x^ stored"}])
    assert other.summary.reproduced_by == "bf16: x^ stored"
    assert other.words == (
        "arithmetic model of y: none that is named reproduces it in 2 of 2 seeds (nearest:"
        " fp32-inside); bf16: x^ stored reproduces it, which is not named"
    )


def test_the_rows_that_the_nearest_storing_program_misses_stand_beside_the_models() -> None:
    counted = {"arithmetic": "bf16: rstd stored", "missed": 3, "rows": 32}
    wrong = {"arithmetic": None, "nearest_arithmetic": "fp32-inside", "missed_rows": counted}
    output = of_output("y", [wrong, wrong])
    assert output.words == (
        "arithmetic model of y: none reproduces it in 2 of 2 seeds (nearest: fp32-inside); "
        "all but 6 of 64 rows in 2 seeds are those of bf16: rstd stored"
    )
    assert vars(output.missed) == {**counted, "missed": 6, "rows": 64, "seeds": 2}
    right = {**wrong, "arithmetic": "bf16: rstd stored", "missed_rows": {**counted, "missed": 0}}
    assert of_output("y", [right]).words == "arithmetic model of y: bf16: rstd stored"
