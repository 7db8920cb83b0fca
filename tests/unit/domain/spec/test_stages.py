"""Stages: which status each gets, which one blocks, and what has gone backwards. The example is a
public report on a staged operation."""

from __future__ import annotations

from typing import Any

import pytest

from gonogo.errors import FieldError
from gonogo.spec.stages import (
    Regression,
    StageStatus,
    StageTable,
    combined,
    regression_words,
    regressions,
    table,
)

REPORTED = [
    "API exists", "Parameter validation", "TTNN registration", "Device operation",
    "Program factory", "Stub kernels", "Full kernels",
]  # fmt: skip
"""The stages of layernorm_fused_rm in its implementation report of 2026-01-16: 1-5 pass, 6 and 7
are partial; a file of 6 is missing, and the kernel of 7 hangs for 60 s."""
LOG = "agent_logs/ttnn-factory-builder_breadcrumbs.jsonl"
HANG = "no end within 60 s; it hung at tests/test_stage7_kernel_correctness.py:31 in run"


def report_of(
    stage: str, outcome: str = "passed", message: str = "", name: str = "test"
) -> dict[str, Any]:
    return {
        "stage": stage,
        "name": f"{name} of {stage}",
        "outcome": outcome,
        "message": message,
        "duration_ms": 2.0,
    }


def missing(stage: str, file: str) -> dict[str, Any]:
    return {
        "stage": stage,
        "name": f"{stage}: requires {file}",
        "outcome": "not_run",
        "message": "is missing",
        "requires": file,
    }


def blocked(stage: str, by: str) -> dict[str, Any]:
    return {
        "stage": stage,
        "name": f"{stage}: blocked",
        "outcome": "skipped",
        "message": f"not run: blocked by {by}",
        "blocked_by": by,
    }


def statuses(stage_table: StageTable) -> list[str]:
    return [stage.status.value for stage in stage_table.stages]


def reported() -> list[dict[str, Any]]:
    return [
        *map(report_of, REPORTED[:6]),
        missing(REPORTED[5], LOG),
        report_of(REPORTED[6], "hang", HANG),
    ]


def test_the_report_s_seven_stages() -> None:
    stage_table = table(reported(), {"stages": [{"name": name} for name in REPORTED]})
    assert statuses(stage_table) == ["passed"] * 5 + ["partial", "hung"]
    assert stage_table.stages[5].reason == f"missing: {LOG}"
    assert stage_table.blocker is not None
    assert stage_table.blocker.name == "Full kernels"
    assert stage_table.words == (
        "Of 7 stages 5 passed, 6 (Stub kernels) partial, 7 (Full kernels) hung; "
        f"the blocker is 'Full kernels': test of Full kernels hung: {HANG}."
    )


@pytest.mark.parametrize(
    ("reports", "status", "reason"),
    [
        ([report_of("s"), report_of("s", "skipped", "no card", "other")], "passed", ""),
        ([report_of("s"), report_of("s", "failed", "assert 0\nx.py:3", "bad")], "partial",
         "1 of 2 tests failed, first bad of s: assert 0"),
        ([report_of("s"), report_of("s", "crash", "died", "bad")], "partial",
         "1 of 2 tests failed, first bad of s: died"),
        ([report_of("s"), missing("s", "a.json"), missing("s", "b.json")], "partial",
         "missing: a.json, b.json"),
        ([report_of("s", "failed", "no"), report_of("s", "error", "no device", "b")], "failed",
         "no test passed, first test of s: no"),
        ([report_of("s", "skipped", "no card")], "failed", "all 1 tests were skipped: no card"),
        ([report_of("s", "not_run", "no test was found")], "failed", "no test was found"),
        ([report_of("s", "not_run"), missing("s", "test_s.py")], "failed",
         "no test was found; missing: test_s.py"),
        ([report_of("s"), report_of("s", "hang", "no end within 3 s", "slow")], "hung",
         "slow of s hung: no end within 3 s"),
        ([report_of("s"), report_of("s", "hang", "stuck", "slow"), missing("s", "f")], "hung",
         "slow of s hung: stuck; missing: f"),
        ([blocked("s", "before")], "blocked", "blocked by 'before'"),
    ],
)  # fmt: skip
def test_the_status_of_a_stage(reports: list[dict[str, Any]], status: str, reason: str) -> None:
    (stage,) = table(reports).stages
    assert (stage.status.value, stage.reason) == (status, reason)
    assert stage.iterations_passed == (status == "passed")


def test_the_blocker_is_the_first_stage_that_blocks_else_the_first_unfinished_one() -> None:
    partial = [report_of("one"), missing("one", "f")]
    stage_table = table([*partial, report_of("two", "failed"), blocked("three", "two")])
    assert statuses(stage_table) == ["partial", "failed", "blocked"]
    assert stage_table.blocker is not None
    assert stage_table.blocker.name == "two"
    stage_table = table([*partial, report_of("two")])
    assert stage_table.blocker is not None
    assert stage_table.blocker.name == "one"
    assert table([report_of("one"), report_of("two")]).blocker is None
    assert table([report_of("one"), report_of("two")]).words == "All 2 stages passed."


def test_the_builds_file_gives_the_order_and_reports_without_a_stage_are_left_out() -> None:
    reports = [
        report_of("b"),
        report_of("extra"),
        report_of("a"),
        {"name": "x", "outcome": "failed", "stage": None},
    ]
    assert [
        stage.name
        for stage in table(
            reports, {"stages": [{"name": "a"}, {"name": "b"}, {"name": "c"}]}
        ).stages
    ] == ["a", "b", "extra"]
    assert table([]).words == "No stage was run."


def test_of_several_iterations_a_stage_has_its_worst_status_and_how_often_it_passed() -> None:
    good, bad = (
        table([report_of("a"), report_of("b")]),
        table([report_of("a"), report_of("b", "failed", "no")]),
    )
    stage_table = combined([good, bad, good])
    assert statuses(stage_table) == ["passed", "failed"]
    assert [(stage.iterations, stage.iterations_passed) for stage in stage_table.stages] == [
        (3, 3),
        (3, 2),
    ]
    assert (
        stage_table.stages[1].reason == "in 1 of 3 iterations: no test passed, first test of b: no"
    )
    assert combined([bad, bad]).stages[1].reason == "no test passed, first test of b: no"


def test_a_table_comes_back_from_json_and_nonsense_is_refused() -> None:
    stage_table = combined([table(reported()), table(reported())])
    assert StageTable.parse(stage_table.to_json()) == stage_table
    with pytest.raises(FieldError, match=r"stages\.stages\.0\.status"):
        StageTable.parse({"stages": [{"name": "a", "status": "great"}]})


def test_what_passed_on_an_earlier_build_and_no_longer_does_is_a_regression() -> None:
    first = table([report_of("a"), report_of("b"), report_of("c")])
    second = table([report_of("a"), report_of("b", "failed", "no"), blocked("c", "b")])
    now = table([report_of("a"), report_of("b", "failed", "no"), blocked("c", "b")])
    regressed = regressions([("v1", first), ("v2", second)], now)
    assert regressed == (
        Regression("b", StageStatus.failed, "no test passed, first test of b: no", "v1"),
        Regression("c", StageStatus.blocked, "blocked by 'b'", "v1"),
    )
    assert regression_words(regressed) == "'b' and 'c' passed on v1 and no longer do."
    assert regressions([("v2", second)], now) == ()
    assert regressions([("v1", first)], table([report_of("a")])) == ()  # b and c weren't asked for
    assert regression_words(()) == ""


def test_every_status_has_a_sentence_and_the_worst_comes_first() -> None:
    assert all(status.sentence.endswith(".") for status in StageStatus)
    worst_first = sorted(StageStatus, key=lambda status: status.rank)
    assert [status.value for status in worst_first] == [
        "hung",
        "failed",
        "blocked",
        "partial",
        "passed",
    ]
