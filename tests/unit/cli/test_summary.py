"""The report of several seeds: all of a test's seeds decide together."""

from __future__ import annotations

from typing import Any

import pytest

from gonogo_workers.cli import options


def row(seed: int, explanation: str, verdict: str, estimate: float = 0.0) -> options.Row:
    """A seed with one output, and a factor of its rstd that it doesn't show alone."""
    factor = {"source": "rstd", "estimate": estimate, "deviation": 3e-7, "limit": 2.0**-22}
    entry: dict[str, Any] = {
        "verdict": verdict,
        "explanation": explanation,
        "common": [{**factor, "is_certain": False}],
    }
    return {
        "seed": seed,
        "repeat": 0,
        "verdict": verdict,
        "explanation": explanation,
        "outputs": {"y": entry},
    }


RIGHT, EDGE = ("explained", "pass"), ("suspect", "suspect")


@pytest.mark.parametrize(
    ("rows", "verdict"),
    [
        ([row(0, *EDGE), row(1, *RIGHT)], "suspect"),
        ([row(0, *EDGE), row(0, *EDGE)], "suspect"),
        ([row(0, *EDGE), row(1, *EDGE), row(2, *RIGHT)], "pass_by_tolerance"),
        ([row(0, "suspect", "fail"), row(1, *EDGE)], "fail"),
        ([row(seed, *RIGHT, 1e-6) for seed in range(2)], "pass"),
        ([row(seed, *RIGHT, 1e-6) for seed in range(4)], "pass_by_tolerance"),
        ([row(seed, "explained", "fail_by_tolerance", 1e-6) for seed in range(4)], "fail"),
    ],
    ids=["one of two", "a seed twice", "two", "red", "a factor", "that adds up", "and is red"],
)
def test_several_seeds_decide_a_test(rows: list[options.Row], verdict: str) -> None:
    report = options.summary(rows)
    assert report["verdict"] == verdict
    assert sum(report["counts"].values()) == len(rows)
    assert ("together" in report) is (verdict in ("pass_by_tolerance", "fail"))
