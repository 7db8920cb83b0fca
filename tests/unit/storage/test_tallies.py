"""Sums of result rows are the same in any cut, and keep the kinds of non-finite numbers."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gonogo_storage.rollups.tallies import Tally, tallies, value_of

VERDICTS = ("pass", "fail", "pass_by_tolerance", "hang", "not_judged", "skipped")
NUMBERS = st.one_of(st.none(), st.floats(0, 1e6), st.sampled_from([0.0, 0.0265, 5e-324]))


def part(seed: int, output: str = "dx", **changes: Any) -> dict[str, Any]:
    """A row as `seed_results` holds it."""
    usual = {
        "seed": seed,
        "repeat": 0,
        "output": output,
        "device": "emulator:0",
        "seed_verdict": "pass",
        "seed_explanation": "explained",
        "duration_ms": 2.5,
        "verdict": "pass",
        "explanation": "explained",
        "outcome": None,
        "tolerance_ratio": 0.0265,
        "budget_ratio": 0.99,
        "rms": 0.0017,
        "nonfinite": None,
        "statistics": None,
    }
    return usual | changes


@st.composite
def histories(draw: st.DrawFn) -> list[list[dict[str, Any]]]:
    """Draw seeds, each with its rows."""
    seeds = []
    for seed in range(draw(st.integers(0, 12))):
        verdict, device = draw(st.sampled_from(VERDICTS)), draw(st.sampled_from(["a", None]))
        shared = {
            "seed_verdict": verdict,
            "verdict": verdict,
            "device": device,
            "duration_ms": draw(NUMBERS),
        }
        names = draw(st.lists(st.sampled_from(["dx", "dgamma"]), unique=True))
        rows = [
            part(seed, name, **shared, rms=draw(NUMBERS), tolerance_ratio=draw(NUMBERS))
            for name in names
        ]
        missing = {"rms": None, "tolerance_ratio": None, "budget_ratio": None}
        seeds.append(rows or [part(seed, "", **shared, **missing)])
    return seeds


@given(histories(), st.integers(0, 12))
def test_the_sums_of_the_parts_are_the_sums_of_all_and_survive_the_database(
    seeds: list[list[dict[str, Any]]], cut: int
) -> None:
    whole = tallies(row for rows in seeds for row in rows)
    parts = [tallies(row for rows in half for row in rows) for half in (seeds[cut:], seeds[:cut])]
    for place, tally in whole.items():
        again = parts[0].get(place, Tally()) + parts[1].get(place, Tally())
        assert again == tally
        columns = json.loads(json.dumps(again.columns()))
        assert Tally.stored(SimpleNamespace(**columns)) == tally
        assert Tally.stored(SimpleNamespace(**columns)).columns() == tally.columns()
    assert sum(tally.seeds for (_, output), tally in whole.items() if output == "") == len(seeds)


def test_a_null_is_what_its_kind_says() -> None:
    nulls = {"tolerance_ratio": None, "rms": None, "budget_ratio": None}
    row = part(
        0,
        **nulls,
        nonfinite={"rms": "nan", "nan": 3},
        statistics={"nonfinite_statistics": {"tolerance_ratio": "inf"}},
    )
    assert value_of(row, "tolerance_ratio") == math.inf
    assert math.isnan(value_of(row, "rms") or 0.0)
    assert value_of(row, "budget_ratio") is None


@pytest.mark.parametrize(
    ("outcomes", "counted"),
    [("passed failed", "failed"), ("passed skipped", "passed"), ("skipped", "silent")],
)
def test_an_iteration_of_tests_counts_as_what_they_say_and_its_tests_have_no_sums(
    outcomes: str, counted: str
) -> None:
    rows = [
        part(0, f"Suite.{n}", outcome=outcome, seed_verdict="not_judged")
        for n, outcome in enumerate(outcomes.split())
    ]
    sums = tallies([*rows, part(0, "Suite.0/dx", seed_verdict="not_judged")])
    assert set(sums) == {("emulator:0", ""), ("emulator:0", "Suite.0/dx")}
    assert sums["emulator:0", ""].outcomes == {counted: 1}


def test_the_ratio_of_a_seed_is_that_of_its_worst_output() -> None:
    rows = [
        part(0),
        part(0, "dgamma", tolerance_ratio=0.5),
        part(1),
        part(1, "dgamma", tolerance_ratio=None),
    ]
    rows += [
        part(2),
        part(2, "dgamma", tolerance_ratio=None, nonfinite={"tolerance_ratio": "nan"}),
        part(3, tolerance_ratio=None),
    ]
    sketch = tallies(rows)["emulator:0", ""].sketches["tolerance_ratio"]
    assert (sketch.count, sketch.least, sketch.most, sketch.nan, sketch.missing) == (
        2,
        0.0265,
        0.5,
        1,
        1,
    )


def test_times_that_cannot_be_add_nothing() -> None:
    whole = tallies(
        [part(n, duration_ms=value) for n, value in enumerate([0.25, None, -3.0, 1e300])]
    )["emulator:0", ""]
    assert whole.duration_us == 250
