"""Attempts that the dispatcher has handed out, for tests without a broker."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Session

from gonogo_service.jobs import dispatching
from gonogo_service.jobs.dispatching import Sendable


def hand_out(session: Session, *, now: datetime) -> list[Sendable]:
    """Wake a worker for each attempt that woke none yet; return them."""
    waiting = dispatching.unclaimed(session)
    new = [item.attempt for item in waiting if item.published_at is None]
    dispatching.published(session, new, now=now)
    return [dispatching.described(session, attempt) for attempt in new]
