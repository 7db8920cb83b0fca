"""A job's diagnosis for its page: the words, the fault of each output, the stages of a suite."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy.orm import Session

from gonogo.spec.diagnoses import JobDiagnosis
from gonogo.spec.stages import JobStages, StageResult, StageStatus
from gonogo.spec.verdicts import Verdict
from gonogo_service.flags import evidence
from gonogo_service.jobs.model import JobRow

MAX_FAULTS = 24
LOOKS: Mapping[StageStatus, str] = {
    StageStatus.hung: Verdict.hang.value,
    StageStatus.failed: Verdict.fail.value,
    StageStatus.blocked: Verdict.skipped.value,
    StageStatus.partial: Verdict.suspect.value,
    StageStatus.passed: Verdict.pass_.value,
}
"""The verdict whose shape and color a status takes."""


@dataclass(frozen=True)
class FaultLine:
    """An output that rounding doesn't explain, and the fault that is named."""

    output: str
    sentence: str


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


@dataclass(frozen=True)
class DiagnosisView:
    """The diagnosis of a job, from its worst seed that has one."""

    words: str
    can_tell: bool
    seed: int | None
    repeat: int | None
    faults: tuple[FaultLine, ...]
    stages: StagesView | None = None


def read(session: Session, job: JobRow) -> DiagnosisView | None:
    """Return the job's stored diagnosis, or that of its worst seed so far; None without any."""
    stored = job.diagnosis or (evidence.diagnosis(session, job.id) if job.done else None)
    return None if stored is None else view(stored)


def view(diagnosis: JobDiagnosis) -> DiagnosisView:
    """Return a diagnosis for the page."""
    faults = list(diagnosis.faults.items())[:MAX_FAULTS]
    return DiagnosisView(
        diagnosis.words or "",
        diagnosis.can_tell is not False,
        diagnosis.seed,
        diagnosis.repeat,
        tuple(FaultLine(output, sentence) for output, sentence in faults),
        None if diagnosis.stages is None else stages(diagnosis.stages),
    )


def stages(table: JobStages) -> StagesView:
    """Return the stages of a job for its page."""
    since = {regression.stage: regression.since for regression in table.regressions}
    lines = (
        StageLine(
            number=number,
            name=stage.name,
            status=stage.status.value,
            looks=LOOKS[stage.status],
            sentence=stage.status.sentence,
            reason=stage.reason,
            tests=_tests(stage),
            blocker=stage.name == table.blocker,
            passed_on=since.get(stage.name),
            duration_ms=stage.duration_ms,
        )
        for number, stage in enumerate(table.stages, 1)
    )
    return StagesView(table.words, tuple(lines))


def _tests(stage: StageResult) -> str:
    counts = (("passed", stage.passed), ("failed", stage.failed), ("skipped", stage.skipped))
    tests = [f"{count:,}\N{NO-BREAK SPACE}{name}" for name, count in counts if count]
    return ", ".join(tests) or "none"
