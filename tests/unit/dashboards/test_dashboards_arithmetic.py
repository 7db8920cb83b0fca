"""The arithmetic of an output on pages, with its detection limits and its fault."""

from __future__ import annotations

from typing import Any

import pytest

from gonogo.spec.arithmetic_words import of_output
from gonogo_dashboards import pages
from gonogo_dashboards.kit import arithmetic_view
from gonogo_dashboards.kit.arithmetic_view import ArithmeticLine

LIMIT = "a common factor below 0.3 %"


def entry(explanation: str = "explained", name: str = "tt-train", **notes: Any) -> dict[str, Any]:
    limits = [LIMIT] if explanation == "explained" else []
    return {
        "explanation": explanation,
        "arithmetic": name,
        "detection_limits": limits,
        "is_wide": False,
        **notes,
    }


def html(*lines: ArithmeticLine | None) -> str:
    template = pages.environment().from_string(
        '{% import "kit/parts.html" as parts with context %}{{ parts.arithmetic(lines, "limits") }}'
    )
    return template.render(lines=lines)


@pytest.mark.parametrize(
    ("explanation", "shown"),
    [
        ("explained", "explained by tt-train"),
        ("unexplained", "closest tt-train"),
        ("suspect", "closest tt-train"),
    ],
)
def test_the_arithmetic_explains_an_output_or_is_only_the_closest(
    explanation: str, shown: str
) -> None:
    line = arithmetic_view.of_seed("dx", entry(explanation))
    assert shown in html(line)
    assert "tt-train's dataflow on a Wormhole" in html(line).replace("&#39;", "'")


def test_an_output_without_an_arithmetic_has_no_line() -> None:
    assert arithmetic_view.of_seed("y", {"explanation": "not_judged"}) is None


def test_limits_are_folded_unless_only_an_unknown_order_explains_the_output() -> None:
    folded = html(arithmetic_view.of_seed("y", entry()))
    inside = folded.partition("<summary>1 limit</summary>")[2].partition("</details>")[0]
    assert LIMIT in inside
    wide = html(arithmetic_view.of_seed("y", entry(is_wide=True)))
    assert LIMIT in wide
    assert "<details" not in wide


def test_a_hundred_limits_are_few_phrases_the_sizes_first() -> None:
    limits = [
        "mean divides by N - 1",
        *(f"{value} is stored in {form}" for value in ("mean", "rstd") for form in ("bf16", "fp8")),
        "rstd is truncated to bf16",
        "mean is stored in bf16 where y takes it",
        LIMIT,
    ]
    line = arithmetic_view.of_seed("y", entry(is_wide=True, detection_limits=limits))
    assert line is not None
    assert line.detection_limits == (
        LIMIT,
        "mean divides by N - 1",
        "mean, rstd are stored in bf16, fp8",
        "mean is stored in bf16 where y takes it",
    )


def test_the_arithmetics_of_a_job_are_counted_the_most_frequent_first() -> None:
    names = ["fused", "fused", "eager"]
    output = of_output("y", [*(entry(name=name) for name in names), entry("unexplained", "fused")])
    [line] = arithmetic_view.of_job([output], "seed")
    assert (line.relation, line.arithmetic, line.seeds) == ("explained by", "fused", "2 of 4 seeds")
    assert sorted(line.others.split(", ")) == ["eager: 1", "none: 1"]
    wrong = of_output("y", [entry("unexplained", "fused")] * 3)
    [line] = arithmetic_view.of_job([wrong], "seed")
    assert (line.relation, line.arithmetic, line.others) == ("closest", "fused", "")
    assert line.detection_limits == ()
