"""The report of several seeds: suspect ones that miss too many rows together are no chance."""

from __future__ import annotations

from typing import Any

import pytest

from gonogo_cli.local import options


def row(seed: int, missed: int, verdict: str = "suspect") -> options.Row:
    """A seed of which a program misses some of 32 rows."""
    explanation = "suspect" if missed else "explained"
    counted = {"arithmetic": "bf16: rstd stored", "missed": missed, "rows": 32}
    outputs: dict[str, Any] = {"y": {"explanation": explanation, "missed_rows": counted}}
    seed_verdict = verdict if missed else "pass"
    return {"seed": seed, "verdict": seed_verdict, "explanation": explanation, "outputs": outputs}


@pytest.mark.parametrize(
    ("rows", "verdict"),
    [
        ([row(0, 1), row(1, 0), row(2, 0)], "suspect"),
        ([row(0, 1), row(1, 1), row(2, 0)], "pass_by_tolerance"),
        ([row(0, 3), row(1, 0), row(2, 0)], "pass_by_tolerance"),
        ([row(0, 1, "fail"), row(1, 1), row(2, 0)], "fail"),
        ([row(0, 3)], "suspect"),
    ],
    ids=["one row", "one row in two seeds", "three rows in a seed", "red", "one seed"],
)
def test_missed_rows_of_several_seeds_decide_a_suspect_test(
    rows: list[options.Row], verdict: str
) -> None:
    report = options.summary(rows, None)
    assert report["verdict"] == verdict
    assert report["counts"].get("suspect", 0) == sum(item["verdict"] == "suspect" for item in rows)


def test_missed_rows_of_explained_seeds_decide_nothing() -> None:
    explained = row(0, 3)
    explained["outputs"]["y"]["explanation"] = "explained"
    beside = {**row(1, 0), "verdict": "suspect", "outputs": {"mean": {"explanation": "suspect"}}}
    assert options.summary([explained, beside], None)["verdict"] == "suspect"
