"""Stages: which status each gets, and which one blocks, on the example of a public report."""

from __future__ import annotations

from typing import Any

import pytest

from gonogo.errors import FieldError
from gonogo.spec.stages import StageStatus, StageTable, combined, table

REPORTED = ["API", "validation", "registration", "operation", "factory", "stubs", "kernels"]
"""The stages of layernorm_fused_rm in its implementation report of 2026-01-16: 1-5 pass, 6 and 7
are partial; a file of 6 is missing, and the kernel of 7 hangs for 60 s."""
LOG = "agent_logs/ttnn-factory-builder_breadcrumbs.jsonl"
HANG = "no end within 60 s; it hung at tests/test_stage7_kernel_correctness.py:31 in run"


def ran(
    stage: str, outcome: str = "passed", message: str = "", name: str = "test"
) -> dict[str, Any]:
    about = {"outcome": outcome, "message": message, "duration_ms": 2.0}
    return {"stage": stage, "name": f"{name} of {stage}", **about}


def missing(stage: str, file: str) -> dict[str, Any]:
    about = {"outcome": "not_run", "message": "is missing", "requires": file}
    return {"stage": stage, "name": f"{stage}: requires {file}", **about}


def blocked(stage: str, by: str) -> dict[str, Any]:
    about = {"outcome": "skipped", "message": f"not run: blocked by {by}", "blocked_by": by}
    return {"stage": stage, "name": f"{stage}: blocked", **about}


def statuses(stage_table: StageTable) -> list[str]:
    return [stage.status.value for stage in stage_table.stages]


def reported() -> StageTable:
    reports = [*map(ran, REPORTED[:6]), missing("stubs", LOG), ran("kernels", "hang", HANG)]
    return table(reports, {"stages": [{"name": name} for name in REPORTED]})


def test_the_report_s_seven_stages() -> None:
    assert statuses(reported()) == ["passed"] * 5 + ["partial", "hung"]
    assert reported().stages[5].reason == f"missing: {LOG}"
    assert reported().words == (
        "Of 7 stages 5 passed, 6 (stubs) partial, 7 (kernels) hung; "
        f"the blocker is 'kernels': test of kernels hung: {HANG}."
    )


GOOD, UNRUN, NO_CARD = ran("s"), ran("s", "not_run", "not found"), ran("s", "skipped", "no card")
RED, STUCK = ran("s", "failed", "assert 0\nx.py:3", "bad"), ran("s", "hang", "stuck", "slow")
DIED, NO_DEVICE = ran("s", "crash", "died", "bad"), ran("s", "error", "no device")
A, B = missing("s", "a.json"), missing("s", "b.json")


@pytest.mark.parametrize(
    ("reports", "status", "reason"),
    [
        ([GOOD, NO_CARD], "passed", ""),
        ([GOOD, RED], "partial", "1 of 2 tests failed, first bad of s: assert 0"),
        ([GOOD, DIED], "partial", "1 of 2 tests failed, first bad of s: died"),
        ([GOOD, A, B], "partial", "missing: a.json, b.json"),
        ([RED, NO_DEVICE], "failed", "no test passed, first bad of s: assert 0"),
        ([NO_CARD], "failed", "all 1 tests were skipped: no card"),
        ([UNRUN], "failed", "no test was found"),
        ([UNRUN, A], "failed", "no test was found; missing: a.json"),
        ([GOOD, STUCK], "hung", "slow of s hung: stuck"),
        ([GOOD, STUCK, A], "hung", "slow of s hung: stuck; missing: a.json"),
        ([blocked("s", "before")], "blocked", "blocked by 'before'"),
    ],
)
def test_the_status_of_a_stage(reports: list[dict[str, Any]], status: str, reason: str) -> None:
    (stage,) = table(reports).stages
    assert (stage.status.value, stage.reason) == (status, reason)
    assert stage.iterations_passed == (status == "passed")


PARTIAL = [ran("one"), missing("one", "f")]


@pytest.mark.parametrize(
    ("reports", "blocker"),
    [
        ([*PARTIAL, ran("two", "failed"), blocked("three", "two")], "two"),
        ([*PARTIAL, ran("two")], "one"),
        ([ran("one"), ran("two")], None),
    ],
)
def test_the_blocker_is_the_first_stage_that_blocks_else_the_first_unfinished_one(
    reports: list[dict[str, Any]], blocker: str | None
) -> None:
    stage_table = table(reports).blocker
    assert (stage_table and stage_table.name) == blocker


def test_the_builds_file_gives_the_order_and_reports_without_a_stage_are_left_out() -> None:
    reports = [ran("b"), ran("extra"), ran("a"), {"name": "x", "outcome": "failed", "stage": None}]
    stage_table = table(reports, {"stages": [{"name": name} for name in "abc"]})
    assert [stage.name for stage in stage_table.stages] == ["a", "b", "extra"]
    assert stage_table.words == "All 3 stages passed."
    assert table([]).words == "No stage was run."


def test_a_table_comes_back_from_json_and_nonsense_is_refused() -> None:
    stage_table = combined([reported(), reported()])
    assert StageTable.parse(stage_table.to_json()) == stage_table
    with pytest.raises(FieldError, match=r"stages\.stages\.0\.status"):
        StageTable.parse({"stages": [{"name": "a", "status": "great"}]})


def test_the_worst_status_comes_first() -> None:
    worst_first = sorted(StageStatus, key=lambda status: status.rank)
    assert " ".join(worst_first) == "hung failed blocked partial passed"
