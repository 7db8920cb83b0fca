"""The jobs that something open still needs: retention leaves them as they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo_service.bisections.model import BisectionRow, ProbeRow
from gonogo_service.flags.model import FlagRow, FlagState
from gonogo_service.kit.database.ids import is_id
from gonogo_service.kit.database.states import BisectionState, RunState
from gonogo_service.suites.model import RunJobRow, RunRow
from gonogo_service.tests.model import AssessmentRow


def of(session: Session) -> frozenset[str]:
    """Return the jobs that are evidence of an open flag, or part of an open run or bisection.

    The jobs that the grades of tests were computed from are among them, too.
    """
    needed: set[str] = set()
    flags = select(FlagRow.first_job, FlagRow.last_job, FlagRow.quiet_after, FlagRow.evidence)
    for *jobs, evidence in session.execute(flags.where(FlagRow.state != FlagState.resolved)):
        needed.update(job for job in jobs if job is not None)
        needed.update(ids_in(evidence))
    probes = select(ProbeRow.job_id).join(BisectionRow, BisectionRow.id == ProbeRow.bisection_id)
    needed.update(session.scalars(probes.where(BisectionRow.state == BisectionState.running)))
    members = select(RunJobRow.job_id).join(RunRow, RunRow.id == RunJobRow.run_id)
    needed.update(
        session.scalars(members.where(RunRow.state.in_([s for s in RunState if not s.final])))
    )
    needed.update(session.scalars(select(AssessmentRow.job_id)))
    return frozenset(needed)


def ids_in(value: Any) -> Iterator[str]:
    """Yield every text within a JSON value that is an id."""
    if isinstance(value, str):
        if is_id(value):
            yield value
    elif isinstance(value, dict):
        for member in value.values():
            yield from ids_in(member)
    elif isinstance(value, list):
        for member in value:
            yield from ids_in(member)
