"""Messages of workers that go straight into the database: no host is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any

from sqlalchemy.orm import Session

from gonogo_service.hosts.senders import AttemptOver, OthersAttempt, Sender
from gonogo_service.jobs import attempts, batches
from gonogo_service.kit.database.ids import new_id

store = partial(batches.store, sender=None)
finished = partial(attempts.finished, sender=None)


def started(
    session: Session, attempt_id: str, body: Mapping[str, Any], *, now: datetime
) -> str | None:
    """Have a worker claim an attempt; return the job's id, or None where it can't."""
    with suppress(AttemptOver, OthersAttempt):
        attempt = attempts.claim(
            session, attempt_id, "h/w", "h/d", sender=Sender(new_id(), "h"), now=now
        )
        attempt.host_id = None
        for name in ("worker", "device", "host"):
            setattr(attempt, name, body.get(name))
        session.flush()
        return attempt.job_id
    return None
