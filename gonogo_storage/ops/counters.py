"""The few numbers that an overview, a metrics page and a health check show."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from gonogo_storage.db.encoding import utcnow
from gonogo_storage.db.ids import floor
from gonogo_storage.db.states import CLOSED_CHUNK, TOLD_KINDS, ChunkState, JobState
from gonogo_storage.devices import workers
from gonogo_storage.flags import flags
from gonogo_storage.tables import ChunkRow, JobRow


def overview(
    session: Session, *, now: datetime | None = None, timeout_s: float = workers.TIMEOUT_S
) -> dict[str, Any]:
    """The counters of now and of the last 24 hours.

    {"jobs": {state: n}, "chunks": {open state: n}, "workers": {state: n}, "flags_open": n,
    "last_day": {"jobs", "seeds", "counts"}}
    """
    now = now or utcnow()
    of_seeds = JobRow.kind.in_(TOLD_KINDS)
    jobs = {state.value: 0 for state in JobState}
    jobs |= dict(
        session.execute(
            select(JobRow.state, func.count()).where(of_seeds).group_by(JobRow.state)
        ).all()
    )
    chunks = {state.value: 0 for state in ChunkState if state not in CLOSED_CHUNK}
    open_chunks = (
        select(ChunkRow.state, func.count())
        .where(ChunkRow.state.in_(list(chunks)))
        .group_by(ChunkRow.state)
    )
    chunks |= dict(session.execute(open_chunks).all())
    people = Counter(
        worker["state"] for worker in workers.list_(session, now=now, timeout_s=timeout_s)
    )
    recent = session.execute(
        select(JobRow.done, JobRow.counts).where(
            of_seeds, JobRow.id >= floor(now - timedelta(days=1))
        )
    ).all()
    verdicts: Counter[str] = Counter()
    for _, counts in recent:
        verdicts.update(counts)
    return {
        "jobs": jobs,
        "chunks": chunks,
        "workers": {state: people.get(state, 0) for state in ("idle", "busy", "offline")},
        "flags_open": flags.count_open(session),
        "last_day": {
            "jobs": len(recent),
            "seeds": sum(done for done, _ in recent),
            "counts": dict(verdicts),
        },
    }
