"""A job's diagnosis for its page, and how the stages of a suite look."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy.orm import Session

from gonogo.spec.diagnoses import JobDiagnosis
from gonogo.spec.stages import JobStages, StageResult, StageStatus
from gonogo.spec.verdicts import Verdict
from gonogo_service.flags import evidence
from gonogo_service.jobs.model import JobRow

MAX_FAULTS = 24
LOOKS: Mapping[StageStatus, Verdict] = {
    StageStatus.hung: Verdict.hang,
    StageStatus.failed: Verdict.fail,
    StageStatus.blocked: Verdict.skipped,
    StageStatus.partial: Verdict.suspect,
    StageStatus.passed: Verdict.pass_,
}
"""The verdict whose shape and color a status takes."""


def read(session: Session, job: JobRow) -> JobDiagnosis | None:
    """Return the job's stored diagnosis, or that of its worst seed so far; None without any."""
    return job.diagnosis or (evidence.diagnosis(session, job.id) if job.done else None)


def tests(stage: StageResult) -> str:
    """Return how many tests of a stage passed, failed and were skipped."""
    counts = (("passed", stage.passed), ("failed", stage.failed), ("skipped", stage.skipped))
    named = [f"{count:,}\N{NO-BREAK SPACE}{name}" for name, count in counts if count]
    return ", ".join(named) or "none"


def passed_on(stages: JobStages, stage: StageResult) -> str | None:
    """Return the build on which a stage passed before it no longer did; None for no regression."""
    return next((lost.since for lost in stages.regressions if lost.stage == stage.name), None)
