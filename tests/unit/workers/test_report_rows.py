"""The row of an iteration's reports: verdicts of tests with and without arrays, in a form that a
database can hold."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from gonogo.errors import FieldError, JobError
from gonogo.judging.inputs import generate, quantise
from gonogo.judging.judging import judge
from gonogo.reports.texts import MAX_NAME_CHARS
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.verdicts import JUDGE
from gonogo.workloads import exact_outputs
from gonogo_service.results.batch import Batch
from gonogo_workers.messages.rows import Place
from gonogo_workers.reports.rows import Judged, Report, iteration_row, reports_of

PLACE = Place("host/gtest:0", "a" * 32, 3)


def report(name: str = "A.B", outcome: str = "passed", **more: Any) -> dict[str, Any]:
    """Return a report as a child process sends it."""
    return {"name": name, "outcome": outcome, **more}


def row_of(
    *reports: dict[str, Any], judged: dict[str, list[Judged]] | None = None
) -> dict[str, Any]:
    """Return the row of these reports, which must be plain JSON."""
    row = iteration_row((4, 0), PLACE, 12.5, reports_of(list(reports)), judged or {})
    json.dumps(row, allow_nan=False)
    return row


def arrays(*, right: bool = True, tolerance: dict[str, float] | None = None) -> Judged:
    """Judge arrays of a backward kernel that is right, or that leaves s1 out."""
    test = TestSpec.parse(
        {"kernel": "layernorm_bw", "shape": [64, 256], "tolerance": tolerance or {}}
    )
    raw = generate(test, 1)
    given = quantise(test, raw)
    dx = np.asarray(exact_outputs(test, given)["dx"], np.float64)
    if not right:
        s1 = np.mean(np.asarray(given["dy"], np.float64) * given["gamma"], -1, keepdims=True)
        dx = dx + np.asarray(given["rstd"], np.float64)[:, None] * s1
    rounded = quantise(test, {"dy": np.asarray(dx, np.float32)})[
        "dy"
    ]  # to bf16, as any other tensor
    judgement = judge(test, raw, given, {"dx": rounded}, arithmetic="fused", produced=("dx",))
    return Judged(test, judgement, "", "A.B")


LOOSE, TIGHT = {"rtol": 1e-3, "atol": 0.5}, {"rtol": 0.0, "atol": 1e-9}


@pytest.mark.parametrize(
    ("outcome", "verdict"),
    [
        ("passed", "not_judged"),
        ("failed", "not_judged"),
        ("skipped", "skipped"),
        ("not_run", "not_run"),
        ("crash", "crash"),
        ("hang", "hang"),
        ("error", "error"),
    ],
)
def test_without_arrays_green_and_red_are_not_judged_and_the_outcome_is_kept(
    outcome: str, verdict: str
) -> None:
    row = row_of(report(outcome=outcome))
    assert (row["verdict"], row["explanation"]) == (verdict, "not_judged")
    assert (row["outputs"]["A.B"]["verdict"], row["outputs"]["A.B"]["outcome"]) == (
        verdict,
        outcome,
    )


def test_no_report_is_absent() -> None:
    row = row_of()
    assert (row["verdict"], row["outputs"], row["message"]) == (
        "not_run",
        {},
        "no test was selected",
    )


def test_the_worst_test_is_the_iteration_s_verdict() -> None:
    assert (
        row_of(report("A.B"), report("A.C", "skipped"), report("A.D", "crash"))["verdict"]
        == "crash"
    )
    assert row_of(report("A.B"), report("A.C", "skipped"))["verdict"] == "not_judged"


@pytest.mark.parametrize(
    ("outcome", "right", "tolerance", "verdict"),
    [
        ("passed", True, LOOSE, "pass"),
        ("passed", False, LOOSE, "pass_by_tolerance"),
        ("passed", True, TIGHT, "fail_by_tolerance"),
        ("passed", False, TIGHT, "fail"),
        ("passed", True, None, "pass"),
        ("passed", False, None, "pass_by_tolerance"),
        # red, and no other gate declared: the test's own is the gate
        ("failed", True, None, "fail_by_tolerance"),
        ("failed", False, None, "fail"),
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
    outcome: str, right: bool, tolerance: dict[str, float] | None, verdict: str
) -> None:
    row = row_of(
        report(outcome=outcome), judged={"A.B": [arrays(right=right, tolerance=tolerance)]}
    )
    assert (row["verdict"], row["outputs"]["A.B"]["verdict"]) == (verdict, verdict)
    assert row["outputs"]["A.B"]["explanation"] == ("explained" if right else "unexplained")
    assert set(row["outputs"]) == {"A.B", "A.B/dx"}
    assert row["outputs"]["A.B/dx"]["rounding_ratio"] > 0
    assert "outcome" not in row["outputs"]["A.B/dx"]
    assert row["judge"] == JUDGE
    assert row["arithmetic"] == row["outputs"]["A.B/dx"]["arithmetic"]


def test_a_red_test_beside_explained_arrays_says_that_they_do_not_show_why() -> None:
    row = row_of(
        report(outcome="failed", message="cache missed"), judged={"A.B": [arrays(tolerance=LOOSE)]}
    )
    assert "a reason that they don't show" in row["outputs"]["A.B"]["message"]
    assert row["outputs"]["A.B"]["message"].startswith("cache missed")


def test_arrays_that_cannot_be_judged_are_an_error_with_the_reason() -> None:
    row = row_of(
        report(),
        judged={
            "A.B": [Judged(None, None, "x.npy is cut off"), arrays(right=False, tolerance=LOOSE)]
        },
    )
    assert row["verdict"] == "error"
    assert row["outputs"]["A.B"]["message"] == "x.npy is cut off"
    assert row["outputs"]["A.B/dx"]["verdict"] == "pass_by_tolerance"


def test_an_explained_test_does_not_explain_one_without_arrays() -> None:
    row = row_of(report("A.B"), report("A.C"), judged={"A.B": [arrays(tolerance=LOOSE)]})
    assert (row["verdict"], row["explanation"]) == ("not_judged", "not_judged")


def test_what_no_database_holds_is_made_storable() -> None:
    strange = report(
        "A." + "x" * 5000,
        "failed",
        message="bad\0text\ud800",
        failures=[
            {"expression": "a\0b", "count": 3, "message": "m" * 9000, "line": 7},
            "no failure",
        ],
        measurements={
            "max_diff": float("nan"),
            "big": float("inf"),
            "n": 2,
            "words": "x",
            "flag": True,
        },
        properties={"kernel": "k\0"},
        deep={"a": ["b"]},
    )
    row = row_of(strange)
    ((name, entry),) = row["outputs"].items()
    assert len(name) <= MAX_NAME_CHARS
    assert "\0" not in json.dumps(row)
    assert entry["measurements"] == {"max_diff": None, "big": None, "n": 2.0}
    assert entry["nonfinite_kinds"] == {"max_diff": "nan", "big": "inf"}
    assert entry["failures"][0]["count"] == 3
    assert len(entry["failures"]) == 1
    json.dumps(row).encode("utf-8")


def test_long_names_stay_distinct() -> None:
    row = row_of(
        report("A." + "x" * 5000 + "1" + "y" * 100), report("A." + "x" * 5000 + "2" + "y" * 100)
    )
    assert len(row["outputs"]) == 2


def test_a_name_told_twice_is_kept_twice() -> None:
    assert list(row_of(report(), report(outcome="failed"))["outputs"]) == ["A.B", "A.B (2)"]


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


HUGE = 10**400
WRONG_FIELDS: tuple[tuple[str, Any], ...] = (
    ("measurements", {"x": HUGE}),
    ("measurements", "abc"),
    ("measurements", [1]),
    ("failures", {"a": 1}),
    ("failures", "abc"),
    ("dumps", 7),
    ("dumps", {"a": 1}),
    ("duration_ms", HUGE),
    ("outcome", ["passed"]),
)


@pytest.mark.parametrize(("field", "value"), WRONG_FIELDS)
def test_a_wrong_field_of_a_report_is_named(field: str, value: Any) -> None:
    """Any other error is held for a bug of the worker, and ends the attempt of all seeds."""
    with pytest.raises(FieldError, match=f"test A.B: {field}") as refused:
        reports_of([report(**{field: value})])
    assert len(str(refused.value)) < 400


def test_reports_deeper_than_python_can_write_are_refused() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(JobError, match="in one another"):
        reports_of([report(more=[deep])])


UNUSUAL: tuple[dict[str, Any], ...] = (
    {"x": 10**30},
    {"x": HUGE},
    {"x": [10**30, HUGE]},
    {"x": float("inf")},
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
    assert entry["outcome"] == "passed"
    assert entry["nonfinite_kinds"] == {}


def test_what_an_executor_says_beyond_the_contract_is_shown() -> None:
    parsed = Report.parse(report(position=3, file="a.cpp", line=12, verdict="pass"))
    assert parsed.more == {"position": 3, "file": "a.cpp", "line": 12, "verdict": "pass"}
    assert (
        row_of(report(verdict="pass", explanation="explained"))["outputs"]["A.B"]["verdict"]
        == "not_judged"
    )
