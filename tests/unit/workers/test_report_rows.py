"""What an iteration's reports become: verdicts of tests with and without arrays, and rows that a
database can hold."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from gonogo.errors import JobError
from gonogo.judging.inputs import generate, quantise
from gonogo.judging.judging import judge
from gonogo.kernels.layernorm.reference import reference
from gonogo.reports.texts import MAX_NAME_CHARS
from gonogo.spec.test_spec import TestSpec
from gonogo_workers.messages.rows import Place
from gonogo_workers.reports.rows import Judged, Report, iteration_row, reports_of

PLACE = Place("host/gtest:0", "a" * 32, 3)


def told(name: str = "A.B", outcome: str = "passed", **more: Any) -> dict[str, Any]:
    """A report as a child tells it."""
    return {"name": name, "outcome": outcome, **more}


def row(*reports: dict[str, Any], judged: dict[str, list[Judged]] | None = None) -> dict[str, Any]:
    """The row of these reports; it must be plain JSON."""
    made = iteration_row((4, 0), PLACE, 12.5, reports_of(list(reports)), judged or {})
    json.dumps(made, allow_nan=False)
    return made


def arrays(*, right: bool = True, tolerance: dict[str, float] | None = None) -> Judged:
    """Arrays of a backward kernel: right, or with s1 left out, judged against a tolerance."""
    test = TestSpec.parse(
        {"kernel": "layernorm_bw", "shape": [64, 256], "tolerance": tolerance or {}}
    )
    raw = generate(test, 1)
    given = quantise(test, raw)
    dx = np.asarray(reference(test, given)["dx"], np.float64)
    if not right:
        s1 = np.mean(np.asarray(given["dy"], np.float64) * given["gamma"], -1, keepdims=True)
        dx = dx + np.asarray(given["rstd"], np.float64)[:, None] * s1
    rounded = quantise(test, {"dy": np.asarray(dx, np.float32)})[
        "dy"
    ]  # to bf16, as any other tensor
    judgement = judge(test, raw, given, {"dx": rounded}, arithmetic="fp32", produced=("dx",))
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
    made = row(told(outcome=outcome))
    assert (made["verdict"], made["explanation"]) == (verdict, "not_judged")
    assert (made["outputs"]["A.B"]["verdict"], made["outputs"]["A.B"]["outcome"]) == (
        verdict,
        outcome,
    )


def test_no_report_is_absent() -> None:
    made = row()
    assert (made["verdict"], made["outputs"], made["message"]) == (
        "not_run",
        {},
        "no test was selected",
    )


def test_the_worst_test_is_the_iteration_s_verdict() -> None:
    assert row(told("A.B"), told("A.C", "skipped"), told("A.D", "crash"))["verdict"] == "crash"
    assert row(told("A.B"), told("A.C", "skipped"))["verdict"] == "not_judged"


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
    made = row(told(outcome=outcome), judged={"A.B": [arrays(right=right, tolerance=tolerance)]})
    assert (made["verdict"], made["outputs"]["A.B"]["verdict"]) == (verdict, verdict)
    assert made["outputs"]["A.B"]["explanation"] == ("explained" if right else "unexplained")
    assert set(made["outputs"]) == {"A.B", "A.B/dx"}
    assert made["outputs"]["A.B/dx"]["budget_ratio"] > 0
    assert "outcome" not in made["outputs"]["A.B/dx"]
    assert (made["arithmetic"], made["policy"]) == ("fp32", "1")


def test_a_red_test_beside_explained_arrays_says_that_they_do_not_show_why() -> None:
    made = row(
        told(outcome="failed", message="cache missed"), judged={"A.B": [arrays(tolerance=LOOSE)]}
    )
    assert "a reason that they don't show" in made["outputs"]["A.B"]["message"]
    assert made["outputs"]["A.B"]["message"].startswith("cache missed")


def test_arrays_that_cannot_be_judged_are_an_error_with_the_reason() -> None:
    made = row(
        told(),
        judged={
            "A.B": [Judged(None, None, "x.npy is cut off"), arrays(right=False, tolerance=LOOSE)]
        },
    )
    assert made["verdict"] == "error"
    assert made["outputs"]["A.B"]["message"] == "x.npy is cut off"
    assert made["outputs"]["A.B/dx"]["verdict"] == "pass_by_tolerance"


def test_an_explained_test_does_not_explain_one_without_arrays() -> None:
    made = row(told("A.B"), told("A.C"), judged={"A.B": [arrays(tolerance=LOOSE)]})
    assert (made["verdict"], made["explanation"]) == ("not_judged", "not_judged")


def test_what_no_database_holds_is_made_storable() -> None:
    strange = told(
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
    made = row(strange)
    ((name, entry),) = made["outputs"].items()
    assert len(name) <= MAX_NAME_CHARS
    assert "\0" not in json.dumps(made)
    assert entry["measurements"] == {"max_diff": None, "big": None, "n": 2.0}
    assert entry["nonfinite_kinds"] == {"max_diff": "nan", "big": "inf"}
    assert entry["failures"][0]["count"] == 3
    assert len(entry["failures"]) == 1
    json.dumps(made).encode("utf-8")


def test_long_names_stay_distinct() -> None:
    made = row(told("A." + "x" * 5000 + "1" + "y" * 100), told("A." + "x" * 5000 + "2" + "y" * 100))
    assert len(made["outputs"]) == 2


def test_a_name_told_twice_is_kept_twice() -> None:
    assert list(row(told(), told(outcome="failed"))["outputs"]) == ["A.B", "A.B (2)"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({}, "list"),
        (None, "list"),
        ([{}], "a report"),
        ([{"name": 3}], "a report"),
        ([[]], "a report"),
        ([told(outcome="green")], "green"),
    ],
)
def test_what_is_no_list_of_reports_is_refused(data: Any, said: str) -> None:
    with pytest.raises(JobError, match=said):
        reports_of(data)


def test_what_an_executor_says_beyond_the_contract_is_shown() -> None:
    made = Report.parse(told(position=3, file="a.cpp", line=12, verdict="pass"))
    assert made.more == {"position": 3, "file": "a.cpp", "line": 12, "verdict": "pass"}
    assert (
        row(told(verdict="pass", explanation="explained"))["outputs"]["A.B"]["verdict"]
        == "not_judged"
    )
