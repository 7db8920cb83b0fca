"""A bisection stepped by hand: the role's own step, and a device that answers each probe at
once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

import stored_jobs
from api import Api
from gonogo_service.background import bisections as role
from gonogo_service.bisections.model import BisectionRow
from gonogo_service.devices import workers
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.encoding import utcnow

Answer = Callable[[int, int], Mapping[str, Any] | None]
"""From (place, seed) to a result row, as a worker sends it; None: the probe stays in flight."""


def serve(session: Session, count: int, queue: str = "emulator.wormhole.n150") -> None:
    """So many idle workers of a queue are alive."""
    for number in range(count):
        place = {"device": f"lab/{number}", "host": "lab", "queues": [queue]}
        workers.heard(session, f"lab/{number}/1", **place, attempt=None, now=utcnow())


def answer(session: Session, bisection_id: str, rows: Answer) -> int:
    """Give the probes in flight their results; how many ended."""
    bisection = session.get(BisectionRow, bisection_id)
    assert bisection is not None
    ended = 0
    for probe in bisection.probes:
        if probe.ended or session.get_one(JobRow, probe.job).state == "finished":
            continue
        row = rows(probe.place, probe.seed)
        if row is not None:
            wrong = row.get("explanation") == "unexplained"
            stored_jobs.report(session, probe.job, [dict(row)], diagnosed=wrong)
            stored_jobs.finish(session, probe.job)
            ended += 1
    return ended


def step(api: Api, bisection_id: str, *, later_s: float = 0.0) -> bool:
    """One step of the role, in a transaction of its own."""
    with api.context.session() as session:
        return role.step(session, bisection_id, api.settings, utcnow() + timedelta(seconds=later_s))


def run(api: Api, bisection_id: str, rows: Answer, *, most: int = 400) -> dict[str, Any]:
    """Steps and answers until it is over; the bisection as the API shows it."""
    for _ in range(most):
        step(api, bisection_id)
        bisection: dict[str, Any] = api.get(f"/bisections/{bisection_id}")
        if bisection["state"] != "running":
            return bisection
        with api.context.session() as session:
            answer(session, bisection_id, rows)
    raise AssertionError(f"not over after {most} steps: {bisection['tracks']}")


def jobs_in_flight(session: Session) -> int:
    return len(
        list(session.scalars(select(JobRow.id).where(JobRow.state.in_(("queued", "running")))))
    )
