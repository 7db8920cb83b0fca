"""The stages of a staged suite for a job's page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gonogo.errors import FieldError
from gonogo.spec.stages import StageResult, StageStatus, StageTable
from gonogo.spec.verdicts import Verdict

LOOKS: Mapping[StageStatus, str] = {
    StageStatus.hung: Verdict.hang.value,
    StageStatus.failed: Verdict.fail.value,
    StageStatus.blocked: Verdict.skipped.value,
    StageStatus.partial: Verdict.suspect.value,
    StageStatus.passed: Verdict.pass_.value,
}
"""The verdict whose shape and color a status takes."""


@dataclass(frozen=True)
class StageLine:
    """One stage: its number from 1, its status, its tests, and its regression.

    `passed_on` is the build on which it passed before.
    """

    number: int
    name: str
    status: str
    looks: str
    sentence: str
    reason: str
    tests: str
    blocker: bool
    passed_on: str | None
    duration_ms: float | None


@dataclass(frozen=True)
class StagesView:
    """The table of stages, and its sentence."""

    words: str
    lines: tuple[StageLine, ...]


def view(content: Any) -> StagesView | None:
    """Return the stages from the JSON of gonogo_storage.seeds.stages.of_job.

    None without any, or where the JSON is of a version that this one can't read.
    """
    if not isinstance(content, Mapping):
        return None
    try:
        table = StageTable.parse(content)
    except FieldError:
        return None
    since = {
        str(regression.get("stage")): str(regression.get("since"))
        for regression in content.get("regressions") or ()
    }
    lines = tuple(
        _line(number, stage, table, since.get(stage.name))
        for number, stage in enumerate(table.stages, 1)
    )
    return StagesView(str(content.get("words") or table.words), lines)


def _line(number: int, stage: StageResult, table: StageTable, passed_on: str | None) -> StageLine:
    counts = (("passed", stage.passed), ("failed", stage.failed), ("skipped", stage.skipped))
    tests = [f"{count:,}\N{NO-BREAK SPACE}{name}" for name, count in counts if count]
    return StageLine(
        number,
        stage.name,
        stage.status.value,
        LOOKS[stage.status],
        stage.status.sentence,
        stage.reason,
        ", ".join(tests) or "none",
        table.blocker is not None and table.blocker.name == stage.name,
        passed_on,
        stage.duration_ms,
    )
