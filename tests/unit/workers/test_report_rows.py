"""The row of an iteration's reports: verdicts of tests with and without arrays, in a form that a
database can hold."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
import pytest

from gonogo.errors import FieldError, JobError
from gonogo.judging.inputs import generate, quantise
from gonogo.judging.judging import judge
from gonogo.reports.forms import is_text
from gonogo.reports.texts import MAX_NAME_CHARS
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.verdicts import JUDGE
from gonogo.workloads import exact_outputs
from gonogo_service.results.batch import Batch
from gonogo_workers.messages.rows import Place
from gonogo_workers.reports.rows import JudgedDump, Report, iteration_row, reports_of

PLACE = Place("host/gtest:0", "a" * 32, 3)


def report(name: str = "A.B", outcome: str = "passed", **more: Any) -> dict[str, Any]:
    """A report as a child process sends it."""
    return {"name": name, "outcome": outcome, **more}


def row_of(
    *reports: dict[str, Any], judged: dict[str, list[JudgedDump]] | None = None
) -> dict[str, Any]:
    """The row of these reports, which must be plain JSON."""
    row = iteration_row((4, 0), PLACE, 12.5, reports_of(list(reports)), judged or {})
    json.dumps(row, allow_nan=False)
    return row


LOOSE, TIGHT, NONE = "loose", "tight", "none"
TOLERANCES = {LOOSE: {"rtol": 1e-3, "atol": 0.5}, TIGHT: {"rtol": 0.0, "atol": 1e-9}, NONE: {}}


@cache
def arrays(right: bool, tolerance: str) -> JudgedDump:
    """Judge arrays of a backward kernel that is right, or that leaves s1 out."""
    fields = {"kernel": "layernorm_bw", "shape": [64, 256], "tolerance": TOLERANCES[tolerance]}
    test = TestSpec.parse(fields)
    raw = generate(test, 1)
    given = quantise(test, raw)
    dx = np.asarray(exact_outputs(test, given)["dx"], np.float64)
    if not right:
        s1 = np.mean(np.asarray(given["dy"], np.float64) * given["gamma"], -1, keepdims=True)
        dx = dx + np.asarray(given["rstd"], np.float64)[:, None] * s1
    rounded = quantise(test, {"dy": np.asarray(dx, np.float32)})["dy"]  # to bf16, as any tensor
    judgement = judge(test, raw, given, {"dx": rounded}, arithmetic="fused", produced=("dx",))
    return JudgedDump(test, judgement, "", "A.B")


@pytest.mark.parametrize(
    ("outcomes", "verdict"),
    [
        ("passed", "not_judged"),
        ("failed", "not_judged"),
        *((outcome, outcome) for outcome in ("skipped", "not_run", "crash", "hang", "error")),
        ("passed skipped crash", "crash"),  # the worst
        ("passed skipped", "not_judged"),
    ],
)
def test_without_arrays_green_and_red_are_not_judged_and_the_outcome_is_kept(
    outcomes: str, verdict: str
) -> None:
    row = row_of(*(report(f"A.{n}", outcome) for n, outcome in enumerate(outcomes.split())))
    assert (row["verdict"], row["explanation"]) == (verdict, "not_judged")
    assert " ".join(entry["outcome"] for entry in row["outputs"].values()) == outcomes


def test_no_report_is_absent() -> None:
    row = row_of()
    assert (row["verdict"], row["outputs"]) == ("not_run", {})
    assert row["message"] == "no test was selected"


@pytest.mark.parametrize(
    ("outcome", "right", "tolerance", "verdict"),
    [
        ("passed", True, LOOSE, "pass"),
        ("passed", False, LOOSE, "pass_by_tolerance"),
        ("passed", True, TIGHT, "fail_by_tolerance"),
        ("passed", False, TIGHT, "fail"),
        ("passed", True, NONE, "pass"),
        ("passed", False, NONE, "pass_by_tolerance"),
        # red, and no other gate declared: the test's own is the gate
        ("failed", True, NONE, "fail_by_tolerance"),
        ("failed", False, NONE, "fail"),
        ("failed", True, TIGHT, "fail_by_tolerance"),
        ("failed", False, LOOSE, "fail"),
        # red, though the arrays are fine by their own gate: never a pass, and no fault of the
        # tolerance
        ("failed", True, LOOSE, "not_judged"),
        ("skipped", True, LOOSE, "skipped"),
        ("crash", True, LOOSE, "crash"),
        ("hang", False, LOOSE, "hang"),
    ],
)
def test_with_arrays_a_test_is_judged_in_full(
    outcome: str, right: bool, tolerance: str, verdict: str
) -> None:
    reported = report(outcome=outcome, message="cache missed")
    row = row_of(reported, judged={"A.B": [arrays(right, tolerance)]})
    whole, dx = row["outputs"]["A.B"], row["outputs"]["A.B/dx"]
    assert len(row["outputs"]) == 2
    assert (row["verdict"], whole["verdict"], row["judge"]) == (verdict, verdict, JUDGE)
    assert whole["explanation"] == ("explained" if right else "unexplained")
    assert dx["rounding_ratio"] > 0
    assert "outcome" not in dx
    assert row["arithmetic"] == dx["arithmetic"]
    assert whole["message"].startswith("cache missed")
    assert ("a reason that they don't show" in whole["message"]) is (
        (outcome, right, tolerance) == ("failed", True, LOOSE)
    )


def test_arrays_that_cannot_be_judged_are_an_error_and_explained_ones_explain_no_other_test() -> (
    None
):
    cut = JudgedDump(None, None, "x.npy is cut off")
    row = row_of(report(), judged={"A.B": [cut, arrays(False, LOOSE)]})
    assert (row["verdict"], row["outputs"]["A.B"]["message"]) == ("error", "x.npy is cut off")
    assert row["outputs"]["A.B/dx"]["verdict"] == "pass_by_tolerance"
    row = row_of(report("A.B"), report("A.C"), judged={"A.B": [arrays(True, LOOSE)]})
    assert (row["verdict"], row["explanation"]) == ("not_judged", "not_judged")


def test_what_no_database_holds_is_made_storable() -> None:
    failure = {"expression": "a\0b", "count": 3, "message": "m" * 9000, "line": 7}
    numbers = {"max_diff": float("nan"), "big": float("inf"), "n": 2, "words": "x", "flag": True}
    strange = report(
        "A." + "x" * 5000,
        "failed",
        message="bad\0text\ud800",
        failures=[failure, "no failure"],
        measurements=numbers,
        properties={"kernel": "k\0"},
        deep={"a": ["b"]},
    )
    row = row_of(strange)
    ((name, entry),) = row["outputs"].items()
    assert len(name) <= MAX_NAME_CHARS
    assert "\0" not in json.dumps(row)
    json.dumps(row).encode("utf-8")
    unread = {"A.B": [JudgedDump(None, None, "the arrays of \0 \ud800 can't be judged")]}
    assert is_text(row_of(report(), judged=unread)["outputs"]["A.B"]["message"])
    assert entry["measurements"] == {"max_diff": None, "big": None, "n": 2.0}
    assert entry["nonfinite_kinds"] == {"max_diff": "nan", "big": "inf"}
    assert [failure["count"] for failure in entry["failures"]] == [3]


def test_long_names_stay_distinct_and_a_name_told_twice_is_kept_twice() -> None:
    long = [report("A." + "x" * 5000 + number + "y" * 100) for number in "12"]
    assert len(row_of(*long)["outputs"]) == 2
    assert list(row_of(report(), report(outcome="failed"))["outputs"]) == ["A.B", "A.B (2)"]
    same = [report(name) for name in ("A", "A", "A (2)", "A")]
    assert list(row_of(*same)["outputs"]) == ["A", "A (2)", "A (2) (2)", "A (3)"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "list"),
        (None, "list"),
        ([{}], "a report"),
        ([{"name": 3}], "a report"),
        ([[]], "a report"),
        ([report(outcome="green")], "green"),
    ],
)
def test_what_is_no_list_of_reports_is_refused(data: Any, message: str) -> None:
    with pytest.raises(JobError, match=message):
        reports_of(data)


def test_reports_deeper_than_python_can_write_are_refused() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(JobError, match="in one another"):
        reports_of([report(more=[deep])])


HUGE = 10**400
WRONG_FIELDS: tuple[tuple[str, Any], ...] = (
    *(("measurements", value) for value in ({"x": HUGE}, "abc", [1])),
    *(("failures", value) for value in ({"a": 1}, "abc")),
    *(("dumps", value) for value in (7, {"a": 1})),
    ("duration_ms", HUGE),
    ("outcome", ["passed"]),
)


@pytest.mark.parametrize(("field", "value"), WRONG_FIELDS)
def test_a_wrong_field_of_a_report_is_named(field: str, value: Any) -> None:
    """Any other error is held for a bug of the worker, and ends the attempt of all seeds."""
    with pytest.raises(FieldError, match=f"test A.B: {field}") as refused:
        reports_of([report(**{field: value})])
    assert len(str(refused.value)) < 400


UNUSUAL: tuple[dict[str, Any], ...] = (
    *({"x": value} for value in (10**30, HUGE, [10**30, HUGE], float("inf"))),
    {f"k{number}": 1 for number in range(1500)},
    {"failures": [{"count": 10**30, "line": 10**30}]},
    {"measurements": {"nul\0 and \ud800": 1.0, "n" * 1000: 2}},
    {"stage": "s" * 1000},
    {"name": "n" * 1000},
    {"nonfinite_kinds": 7, "verdict": "splendid"},
)


@pytest.mark.parametrize("fields", UNUSUAL, ids=[next(iter(case)) for case in UNUSUAL])
def test_what_reports_may_hold_is_cut_to_what_the_service_takes(fields: dict[str, Any]) -> None:
    """It refused the whole message, with all other seeds in it."""
    row = row_of(report(**fields))
    Batch.of([row]).check()
    (entry,) = row["outputs"].values()
    assert (entry["outcome"], entry["nonfinite_kinds"]) == ("passed", {})


def test_what_an_executor_says_beyond_the_contract_is_shown_and_no_verdict() -> None:
    more = {"position": 3, "file": "a.cpp", "line": 12, "verdict": "pass"}
    assert Report.parse(report(**more)).more == more
    assert row_of(report(**more))["outputs"]["A.B"]["verdict"] == "not_judged"
