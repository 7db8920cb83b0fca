"""Counts of jobs and seeds for /metrics.

Final jobs are counted once and remembered, so that a read counts only the latest jobs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, Integer, cast, func, select, true
from sqlalchemy.orm import Session

from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.engine import is_postgres
from gonogo_service.kit.database.ids import floor
from gonogo_service.kit.database.states import LISTED_KINDS, JobState

GRACE = timedelta(minutes=10)
"""Jobs younger than this never count as final.

A job gets its id before its transaction commits.
"""
RECOUNT = timedelta(hours=1)
"""Interval of a full recount: final jobs don't change, but someone may delete them."""


@dataclass
class Memory:
    """The counts of the jobs below `upto`, all of them final.

    Each process has its own; a new one counts everything once.
    """

    upto: str = field(default_factory=lambda: floor(datetime.fromtimestamp(0).astimezone()))
    counted_at: datetime | None = None
    jobs: Counter[str] = field(default_factory=Counter)
    seeds: Counter[str] = field(default_factory=Counter)


def count(
    session: Session, memory: Memory, *, now: datetime
) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """Return (jobs by state, stored (seed, repeat) by verdict), and update `memory`.

    Gauges and their runs don't count.
    """
    if memory.counted_at is None or now - memory.counted_at > RECOUNT:
        empty = Memory(counted_at=now)
        memory.upto, memory.counted_at, memory.jobs, memory.seeds = (
            empty.upto,
            now,
            empty.jobs,
            empty.seeds,
        )
    upto = max(memory.upto, _all_final_below(session, now))
    if upto > memory.upto:
        jobs, seeds = _counted(session, JobRow.id >= memory.upto, JobRow.id < upto)
        memory.jobs, memory.seeds, memory.upto = memory.jobs + jobs, memory.seeds + seeds, upto
    jobs, seeds = _counted(session, JobRow.id >= upto)
    return memory.jobs + jobs, memory.seeds + seeds


def _all_final_below(session: Session, now: datetime) -> str:
    """Return the id below which every job is final."""
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


def _counted(
    session: Session, *conditions: ColumnElement[bool]
) -> tuple[Counter[str], Counter[str]]:
    job_conditions = (JobRow.kind.in_(LISTED_KINDS), *conditions)
    jobs = session.execute(
        select(JobRow.state, func.count()).where(*job_conditions).group_by(JobRow.state)
    ).all()
    # postgresql: json_each_text(json), sqlite: json_each(text); both give the columns key and value
    entries = (func.json_each_text if is_postgres(session) else func.json_each)(
        JobRow.counts
    ).table_valued("key", "value")
    verdict, total = entries.c.key, func.sum(cast(entries.c.value, Integer))
    seeds = session.execute(
        select(verdict, total)
        .select_from(JobRow)
        .join(entries, true())
        .where(*job_conditions)
        .group_by(verdict)
    ).all()
    return Counter({str(state): int(n) for state, n in jobs}), Counter(
        {str(name): int(n) for name, n in seeds}
    )
