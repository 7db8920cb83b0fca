"""The attempts that a job's page shows, and the readings of their devices.

Reads only, bounded.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo_storage.db.encoding import timestamp
from gonogo_storage.db.ids import is_id
from gonogo_storage.db.states import OPEN_ATTEMPT, AttemptState
from gonogo_storage.tables import AttemptRow

MAX_OPEN = 20
MAX_WRONG = 5
MAX_READINGS = 200
WRONG = (AttemptState.error, AttemptState.lost, AttemptState.handed_back)
_FIELDS = (
    "id",
    "number",
    "state",
    "worker",
    "device",
    "host",
    "seed",
    "stage",
    "error",
    "log_tail",
    "telemetry",
)
_TIMES = ("created_at", "started_at", "heard_at", "finished_at")


def for_page(session: Session, job_id: str) -> list[dict[str, Any]]:
    """Return the open attempts and the last few failed ones, oldest first.

    The others say nothing to a reader.
    """
    if not is_id(job_id):
        return []
    attempts: dict[str, dict[str, Any]] = {}
    for states, limit in ((OPEN_ATTEMPT, MAX_OPEN), (WRONG, MAX_WRONG)):
        # not the work: of a large job it is thousands of pairs
        query = select(*(getattr(AttemptRow, name) for name in (*_FIELDS, *_TIMES)))
        query = (
            query.where(AttemptRow.job_id == job_id, AttemptRow.state.in_(states))
            .order_by(AttemptRow.id.desc())
            .limit(limit)
        )
        for row in session.execute(query).mappings():
            times = {name: timestamp(row[name]) for name in _TIMES}
            attempts[row["id"]] = {**row, **times, "open": row["state"] in OPEN_ATTEMPT}
    return [attempts[key] for key in sorted(attempts)]


def readings(session: Session, job_id: str) -> list[dict[str, Any]]:
    """Return the devices' readings at the ends of attempts, oldest first, the latest 200.

    Each is {"device", "at", "telemetry"}.
    """
    if not is_id(job_id):
        return []
    table = AttemptRow
    query = select(table.device, table.finished_at, table.telemetry).where(
        table.job_id == job_id, table.telemetry.is_not(None)
    )
    rows = session.execute(query.order_by(table.id.desc()).limit(MAX_READINGS)).all()
    return [
        {"device": device, "at": timestamp(at), "telemetry": telemetry}
        for device, at, telemetry in reversed(rows)
        if telemetry
    ]
