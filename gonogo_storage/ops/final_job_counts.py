"""Counts of jobs and seeds for /metrics: what is over is counted once and remembered, so that a
look reads the latest jobs only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, Integer, cast, func, select, true
from sqlalchemy.orm import Session

from gonogo_storage.db.engine import is_postgres
from gonogo_storage.db.ids import floor
from gonogo_storage.db.states import TOLD_KINDS, JobState
from gonogo_storage.tables import JobRow

GRACE = timedelta(minutes=10)
"""A job gets its id before its transaction commits: those younger than this are never taken for
settled."""
RECOUNT = timedelta(hours=1)
"""Jobs that are over don't change; those that someone deleted by hand are noticed after so long."""


@dataclass
class Memory:
    """What was counted of the jobs below `upto`, all of them over. One process's; a new one counts
    everything once.
    """

    upto: str = field(default_factory=lambda: floor(datetime.fromtimestamp(0).astimezone()))
    counted_at: datetime | None = None
    jobs: Counter[str] = field(default_factory=Counter)
    seeds: Counter[str] = field(default_factory=Counter)


def count(
    session: Session, memory: Memory, *, now: datetime
) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """(jobs by state, stored (seed, repeat) by verdict); gauges are no jobs, and their runs no
    seeds. Brings `memory` up to date.
    """
    if memory.counted_at is None or now - memory.counted_at > RECOUNT:
        fresh = Memory(counted_at=now)
        memory.upto, memory.counted_at, memory.jobs, memory.seeds = (
            fresh.upto,
            now,
            fresh.jobs,
            fresh.seeds,
        )
    upto = max(memory.upto, _settled(session, now))
    if upto > memory.upto:
        jobs, seeds = _counted(session, JobRow.id >= memory.upto, JobRow.id < upto)
        memory.jobs, memory.seeds, memory.upto = memory.jobs + jobs, memory.seeds + seeds, upto
    jobs, seeds = _counted(session, JobRow.id >= upto)
    return memory.jobs + jobs, memory.seeds + seeds


def _settled(session: Session, now: datetime) -> str:
    """The id below which every job is over."""
    bound = floor(now - GRACE)
    for state in JobState:
        first = (
            None
            if state.final
            else session.scalar(
                select(JobRow.id).where(JobRow.state == state).order_by(JobRow.id).limit(1)
            )
        )
        bound = bound if first is None else min(bound, first)
    return bound


def _counted(session: Session, *which: ColumnElement[bool]) -> tuple[Counter[str], Counter[str]]:
    of_jobs = (JobRow.kind.in_(TOLD_KINDS), *which)
    jobs = session.execute(
        select(JobRow.state, func.count()).where(*of_jobs).group_by(JobRow.state)
    ).all()
    # postgresql: json_each_text(json), sqlite: json_each(text); both give the columns key and value
    each = (func.json_each_text if is_postgres(session) else func.json_each)(
        JobRow.counts
    ).table_valued("key", "value")
    verdict, total = each.c.key, func.sum(cast(each.c.value, Integer))
    seeds = session.execute(
        select(verdict, total)
        .select_from(JobRow)
        .join(each, true())
        .where(*of_jobs)
        .group_by(verdict)
    ).all()
    return Counter({str(state): int(n) for state, n in jobs}), Counter(
        {str(name): int(n) for name, n in seeds}
    )
