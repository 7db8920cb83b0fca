"""The stages of a staged suite for a job's page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gonogo.spec.stages import JobStages, StageResult, StageStatus
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


def view(table: JobStages) -> StagesView:
    """Return the stages of a job for its page."""
    since = {regression.stage: regression.since for regression in table.regressions}
    lines = tuple(
        _line(number, stage, table, since.get(stage.name))
        for number, stage in enumerate(table.stages, 1)
    )
    return StagesView(table.words, lines)


def _line(number: int, stage: StageResult, table: JobStages, passed_on: str | None) -> StageLine:
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
        stage.name == table.blocker,
        passed_on,
        stage.duration_ms,
    )
