"""A job's diagnosis for its page.

It has the words, a coefficient per tile for every term, and the stages of a staged suite.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy.orm import Session

from gonogo.spec.diagnoses import DiagnosedTerm, JobDiagnosis
from gonogo_dashboards.jobs import stages
from gonogo_dashboards.jobs.stages import StagesView
from gonogo_dashboards.kit import words
from gonogo_storage.flags import evidence
from gonogo_storage.jobs.job import Job

MAX_TERMS = 12
DIRECTIONS = {
    "along_1": "a constant in each row (s1, the mean)",
    "along_xhat": "x̂ in each row (s2, the variance)",
    "along_p": "dy·γ in each row (its scale)",
    "along_gamma": "γ in each row (the mean)",
}
"""The directions of an error, by the names of the forensics."""


@dataclass(frozen=True)
class ResidualView:
    """The error of an output with and without its wrong terms, in units of rounding (rms).

    None: not known. `along`: the directions of the error with the terms, and their share of its
    energy.
    """

    output: str
    before: float | None
    after: float | None
    along: tuple[tuple[str, float], ...]
    words: str


@dataclass(frozen=True)
class DiagnosisView:
    """The diagnosis of a job, from its worst seed that has one."""

    words: str
    can_tell: bool
    seed: int | None
    repeat: int | None
    terms: tuple[DiagnosedTerm, ...]
    residuals: tuple[ResidualView, ...]
    stages: StagesView | None = None


def read(session: Session, job: Job) -> DiagnosisView | None:
    """Return the job's stored diagnosis, or that of its worst seed so far; None without any."""
    stored = job.diagnosis or (evidence.diagnosis(session, job.id) if job.done else None)
    return None if stored is None else view(stored)


def view(diagnosis: JobDiagnosis) -> DiagnosisView:
    """Return a diagnosis for the page.

    Wrong terms come first; terms without any coefficient are left out.
    """
    terms = [
        term
        for term in diagnosis.terms
        if any(coefficient is not None for coefficient in term.coefficients)
    ]
    ordered = sorted(terms, key=lambda term: not term.wrong)
    return DiagnosisView(
        diagnosis.words or "",
        diagnosis.can_tell is not False,
        diagnosis.seed,
        diagnosis.repeat,
        tuple(ordered[:MAX_TERMS]),
        tuple(
            _residual(output, residual)
            for output, residual in list(diagnosis.residuals.items())[:MAX_TERMS]
        ),
        None if diagnosis.stages is None else stages.view(diagnosis.stages),
    )


def _residual(output: str, residual: Mapping[str, float | None]) -> ResidualView:
    before, after = residual.get("before"), residual.get("after")
    along = [
        (DIRECTIONS.get(name, name), share)
        for name, share in residual.items()
        if name.startswith("along_") and share is not None
    ]
    along.sort(key=lambda direction: -direction[1])
    text = ""
    if before is not None and after is not None:
        text = f"The error of {output} is {words.number(before)} times its rounding (rms), "
        text += f"and {words.number(after)} times without the wrong terms."
        if along and along[0][1] >= 0.01:
            text += f" {along[0][1]:.0%} of its energy lies along {along[0][0]}."
    return ResidualView(output, before, after, tuple(along), text)
