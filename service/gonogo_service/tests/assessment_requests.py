"""Request assessments: their statistics take time, so the background computes them later."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Session

from gonogo_service.kit.outbox import outbox
from gonogo_service.tests.variants import Variant, graded_job

ASSESS = "assess"
"""Topic of the message that requests the assessment of a closed job's variant."""


def request_assessment(session: Session, variant: Variant, reason: str, *, now: datetime) -> bool:
    """Request a new assessment of a variant, by the job that its grade is based on.

    Returns False where no job of it is over. reason: makes the message unique, for example
    `gauge:<id>`. A second request with the same reason is ignored.
    """
    newest = graded_job(session, variant)
    if newest is not None:
        outbox.add(session, ASSESS, f"{ASSESS}:{newest.id}:{reason}", {"job": newest.id}, now=now)
    return newest is not None
