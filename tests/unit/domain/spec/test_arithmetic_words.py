"""The arithmetics of a job's outputs, and the limits that none of its seeds could have passed."""

from __future__ import annotations

from typing import Any

import pytest

from gonogo.spec.arithmetic_words import (
    ArithmeticCount,
    of_output,
    of_results,
    shared_limits,
    unseen,
)


def entry(arithmetic: str, explanation: str = "explained", **more: Any) -> dict[str, Any]:
    return {"explanation": explanation, "arithmetic": arithmetic, **more}


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        (
            [entry("tt-train", detection_limits=["mean", "factors below 1 %"])] * 2,
            "arithmetic of y: tt-train; couldn't have seen: mean; factors below 1 %",
        ),
        (
            [entry("blocked sums")] * 2 + [entry("running sums"), entry("fused", "unexplained")],
            "arithmetic of y: blocked sums in 2 of 4 seeds; running sums in 1 of 4 seeds;"
            " none explains it in 1 of 4 seeds (closest: fused)",
        ),
        (
            [entry("fused", "suspect"), entry("fused", "inconclusive")],
            "arithmetic of y: none explains it in 2 of 2 seeds (closest: fused)",
        ),
    ],
    ids=["one for all seeds", "several, and one that none explains", "none explains any"],
)
def test_the_arithmetics_of_an_output_are_one_line(
    entries: list[dict[str, Any]], words: str
) -> None:
    assert of_output("y", entries).words == words


def test_an_output_names_the_arithmetic_of_most_seeds_and_what_explained_ones_hide() -> None:
    limits = {"detection_limits": ["gamma"]}
    wide = entry("bf16 operations in an unknown order", is_wide=True, **limits)
    wrong = entry("fused", "unexplained", is_wide=False)
    output = of_output("y", [wrong, wide, wide])
    assert (output.arithmetic, output.closest) == (wide["arithmetic"], "fused")
    assert output.counts == [ArithmeticCount(wide["arithmetic"], 2), ArithmeticCount(None, 1)]
    assert (output.seeds, output.is_wide, output.detection_limits) == (3, True, ["gamma"])
    assert not of_output("y", [wrong]).is_wide
    assert of_output("y", [wrong, wrong, wide]).arithmetic is None


def test_results_have_the_outputs_that_were_judged_in_their_order() -> None:
    rows: list[dict[str, Any]] = [
        {"outputs": {"y": entry("fused"), "mean": {"explanation": "not_judged"}}},
        {"outputs": {"x": entry("fused"), "y": entry("fused")}},
        {"outputs": {}},
        {"outputs": None},
    ]
    assert [(output.output, output.seeds) for output in of_results(rows)] == [("y", 2), ("x", 1)]


def test_a_job_s_limits_are_those_of_all_seeds_with_the_smallest_size() -> None:
    seeds = [
        ["gamma is missing", "rstd is truncated", "factors below 1.003"],
        ["gamma is missing", "factors below 1.0003"],
        ["factors below 1.01", "gamma is missing"],
    ]
    assert shared_limits(seeds) == ("gamma is missing", "factors below 1.0003")
    assert shared_limits([["gamma is missing"], []]) == ()
    assert shared_limits([]) == ()


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ([], ""),
        (["a", "factors below 3 %"], "couldn't have seen: a; factors below 3 %"),
        (["a", "b", "c", "d"], "couldn't have seen: a; b; c; d"),
        (
            [*"abcdef", "a common factor below 0.3 %"],
            "couldn't have seen: a; b; c; 3 more faults; a common factor below 0.3 %",
        ),
    ],
)
def test_a_phrase_of_limits_is_short(limits: list[str], words: str) -> None:
    assert unseen(limits) == words
