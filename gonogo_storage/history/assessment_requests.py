"""Ask for an assessment: the statistics of a variant take their time, so the background makes them after the job is closed."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Session

from gonogo_storage.messages import outbox
from gonogo_storage.rollups.variants import Variant, graded_job

ASSESS = "assess"
"""The topic of the letter that has a closed job's variant assessed, outside of this transaction:
statistics take their time."""


def assess_anew(session: Session, variant: Variant, reason: str, *, now: datetime) -> bool:
    """Have a variant assessed anew, by the job that its grade is of; False where it has none that
    is over.

    reason: makes the letter unique, as `gauge:<id>`; a second one with the same reason is none.
    """
    newest = graded_job(session, variant)
    if newest is not None:
        outbox.add(session, ASSESS, f"{ASSESS}:{newest.id}:{reason}", {"job": newest.id}, now=now)
    return newest is not None
