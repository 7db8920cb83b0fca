"""What a job's page reads of its attempts: those that run, the last that went wrong, and what their
devices told. Reads only, bounded.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo_storage.db.encoding import timestamp
from gonogo_storage.db.ids import is_id
from gonogo_storage.db.states import OPEN_ATTEMPT, AttemptState
from gonogo_storage.tables import AttemptRow

MOST_OPEN = 20
MOST_WRONG = 5
MOST_READINGS = 200
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


def shown(session: Session, job_id: str) -> list[dict[str, Any]]:
    """The attempts that are open, and the last few that went wrong, oldest first: the others say
    nothing to a reader.
    """
    if not is_id(job_id):
        return []
    found: dict[str, dict[str, Any]] = {}
    for states, most in ((OPEN_ATTEMPT, MOST_OPEN), (WRONG, MOST_WRONG)):
        # not the work: of a large job it is thousands of pairs
        query = select(*(getattr(AttemptRow, name) for name in (*_FIELDS, *_TIMES)))
        query = (
            query.where(AttemptRow.job_id == job_id, AttemptRow.state.in_(states))
            .order_by(AttemptRow.id.desc())
            .limit(most)
        )
        for row in session.execute(query).mappings():
            times = {name: timestamp(row[name]) for name in _TIMES}
            found[row["id"]] = {**row, **times, "open": row["state"] in OPEN_ATTEMPT}
    return [found[key] for key in sorted(found)]


def readings(session: Session, job_id: str) -> list[dict[str, Any]]:
    """What devices told of themselves at the ends of attempts, oldest first, the latest 200:
    {"device", "at", "telemetry"}.
    """
    if not is_id(job_id):
        return []
    table = AttemptRow
    query = select(table.device, table.finished_at, table.telemetry).where(
        table.job_id == job_id, table.telemetry.is_not(None)
    )
    rows = session.execute(query.order_by(table.id.desc()).limit(MOST_READINGS)).all()
    return [
        {"device": device, "at": timestamp(at), "telemetry": told}
        for device, at, told in reversed(rows)
        if told
    ]
