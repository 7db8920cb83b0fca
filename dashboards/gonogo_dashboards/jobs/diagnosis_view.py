"""A job's diagnosis for its page: the words, the fault of each output, the stages of a suite."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.orm import Session

from gonogo.spec.diagnoses import JobDiagnosis
from gonogo_dashboards.jobs import stages
from gonogo_dashboards.jobs.stages import StagesView
from gonogo_service.flags import evidence
from gonogo_service.jobs.model import JobRow

MAX_FAULTS = 24


@dataclass(frozen=True)
class FaultLine:
    """An output that rounding doesn't explain, and the fault that is named."""

    output: str
    sentence: str


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
        None if diagnosis.stages is None else stages.view(diagnosis.stages),
    )
