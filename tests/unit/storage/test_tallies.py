"""Sums of result rows are the same in any cut, and keep the kinds of non-finite numbers."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gonogo_service.results.rollups import counting
from gonogo_service.results.rollups.figures import figure, mean
from gonogo_service.results.rollups.tallies import Tally, value_of
from hypothesis import given
from hypothesis import strategies as st

from gonogo.flakiness.rates import rate
from gonogo_service.kit.database.records import from_object
from gonogo_service.results.batch import Batch
from rolled_up import Rollup

VERDICTS = ("pass", "fail", "pass_by_tolerance", "hang", "not_judged", "skipped")
NUMBERS = st.one_of(st.none(), st.floats(0, 1e6), st.sampled_from([0.0, 0.0265, 5e-324]))


def output(**changes: Any) -> dict[str, Any]:
    """An output as a worker sends it, and as it is read."""
    usual = {
        "verdict": "pass",
        "explanation": "explained",
        "tolerance_ratio": 0.0265,
        "rounding_ratio": 0.99,
        "rms": 0.0017,
    }
    return usual | changes


def part(seed: int, outputs: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """A seed as a worker sends it."""
    usual = {
        "seed": seed,
        "repeat": 0,
        "device": "emulator:0",
        "verdict": "pass",
        "explanation": "explained",
        "duration_ms": 2.5,
        "outputs": {"dx": output()} if outputs is None else outputs,
    }
    return usual | changes


def tallies(seeds: list[dict[str, Any]]) -> dict[tuple[str, str], Tally]:
    """The sums of seeds."""
    return counting.tallies(Batch.of(seeds))


@st.composite
def histories(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw seeds."""
    seeds = []
    for seed in range(draw(st.integers(0, 12))):
        verdict, device = draw(st.sampled_from(VERDICTS)), draw(st.sampled_from(["a", None]))
        shared = {"verdict": verdict, "device": device, "duration_ms": draw(NUMBERS)}
        names = draw(st.lists(st.sampled_from(["dx", "dgamma"]), unique=True))
        outputs = {
            name: output(verdict=verdict, rms=draw(NUMBERS), tolerance_ratio=draw(NUMBERS))
            for name in names
        }
        seeds.append(part(seed, outputs, **shared))
    return seeds


@given(histories(), st.integers(0, 12))
def test_the_sums_of_the_parts_are_the_sums_of_all_and_survive_the_database(
    seeds: list[dict[str, Any]], cut: int
) -> None:
    whole = tallies(seeds)
    parts = [tallies(half) for half in (seeds[cut:], seeds[:cut])]
    for place, tally in whole.items():
        again = parts[0].get(place, Tally()) + parts[1].get(place, Tally())
        assert again == tally
        columns = json.loads(json.dumps(again.columns()))
        assert Tally.stored(SimpleNamespace(**columns)) == tally
        assert Tally.stored(SimpleNamespace(**columns)).columns() == tally.columns()
    assert sum(tally.seeds for (_, output), tally in whole.items() if output == "") == len(seeds)


def test_a_null_is_what_its_kind_says() -> None:
    row = output(
        **dict.fromkeys(("tolerance_ratio", "rms", "rounding_ratio")),
        nonfinite_kinds={"rms": "nan", "nan": 3},
        nonfinite_statistics={"tolerance_ratio": "inf"},
    )
    assert value_of(row, "tolerance_ratio") == math.inf
    assert math.isnan(value_of(row, "rms") or 0.0)
    assert value_of(row, "rounding_ratio") is None
    assert value_of(row | {"rounding_ratio": 0.0}, "rounding_ratio") == 0.0


@pytest.mark.parametrize(
    ("outcomes", "counted"),
    [("passed failed", "failed"), ("passed skipped", "passed"), ("skipped", "silent")],
)
def test_an_iteration_of_tests_counts_as_what_they_say_and_its_tests_have_no_sums(
    outcomes: str, counted: str
) -> None:
    tests = {
        f"Suite.{n}": {"verdict": "not_judged", "outcome": outcome}
        for n, outcome in enumerate(outcomes.split())
    }
    sums = tallies([part(0, {**tests, "Suite.0/dx": output()}, verdict="not_judged")])
    assert set(sums) == {("emulator:0", ""), ("emulator:0", "Suite.0/dx")}
    assert sums["emulator:0", ""].outcomes == {counted: 1}


@pytest.mark.parametrize(
    ("verdicts", "failures", "trouble"),
    [
        (["pass"], (0, 1), (0, 1)),
        (["fail", "fail"], (2, 2), (0, 2)),
        (["hang", "pass"], (0, 1), (1, 2)),
        (["skipped"], (0, 0), (0, 0)),
    ],
)
def test_rates_count_what_there_is(
    verdicts: list[str], failures: tuple[int, int], trouble: tuple[int, int]
) -> None:
    seeds = [part(n, verdict=verdict) for n, verdict in enumerate(verdicts)]
    whole = from_object(Rollup, tallies(seeds)["emulator:0", ""], place={}, outputs={})
    assert whole.rates() == (rate(*failures), rate(*trouble))


def test_the_ratio_of_a_seed_is_that_of_its_worst_output() -> None:
    nan = output(tolerance_ratio=None, nonfinite_kinds={"tolerance_ratio": "nan"})
    rows = [
        part(0, {"dx": output(), "dgamma": output(tolerance_ratio=0.5)}),
        part(1, {"dx": output(), "dgamma": output(tolerance_ratio=None)}),
        part(2, {"dx": output(), "dgamma": nan}),
        part(3, {"dx": output(tolerance_ratio=None)}),
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


def test_an_output_has_its_largest_errors_and_what_its_means_are_made_of() -> None:
    rows = [
        part(n, {"dx": output(max_abs=worst, rms=rms)}, duration_ms=duration_ms)
        for n, (worst, rms, duration_ms) in enumerate(
            [(1.5, 0.25, 4.0), (None, 0.75, 6.0), (2.25, math.nan, None)]
        )
    ]
    sums = tallies([*rows, part(3, {}, verdict="hang", duration_ms=9e4)])
    figures = sums["emulator:0", "dx"].figures
    names = ("max_abs", "rms", "pcc_deficit")
    assert [figure(figures, name) for name in names] == [2.25, 0.5, None]
    assert figure(sums["emulator:0", ""].figures, "duration_ms") == 5.0
    numbers = [0.1, -1e-3, 2.0**-40, *(n / 7 for n in range(3000)), 5e-324, -1e300, 1e300]
    sums_of, count = mean(np.array(numbers)), len(numbers)
    assert figure({"rms": sums_of}, "rms") == float(sum(map(Fraction, numbers[:-3])) / count)
    means = [1e-300, 5e-324, 0.1, 1e300, 2e300]
    (huge,) = [tallies([part(n, {"dx": output(rms=rms)}) for n, rms in enumerate(means)])]
    assert figure(huge["emulator:0", "dx"].figures, "rms") == pytest.approx(6e299)
