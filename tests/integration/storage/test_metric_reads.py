"""The numbers that /metrics reads from the database."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import Engine, update
from sqlalchemy.orm import Session

import stored_jobs
from gonogo_service.devices import workers
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.engine import session as writing
from gonogo_service.kit.outbox import leases
from gonogo_service.operate import metrics
from gonogo_service.webhooks import store as webhooks


def look(session: Session, *, later_s: float = 0.0) -> metrics.State:
    """Read the state as of `later_s` seconds from now."""
    now = utcnow() + timedelta(seconds=later_s)
    return metrics.read(session, heartbeat_timeout_s=30.0, now=now)


def test_devices_webhooks_queues_and_background_are_counted(engine: Engine) -> None:
    with writing(engine) as session:
        empty = look(session)
        assert (empty["device_drained"], empty["webhook_lag_seconds"]) == ({}, {(): 0.0})
        assert (empty["background_processes"], empty["queue_workers"]) == ({(): 0}, {})
        job = stored_jobs.submit(session)
        stored_jobs.fleet(session, job)
        device = "lab-2/emulator:0"
        workers.heard(session, "w-1", queues=[job.queue], device=device, attempt=None, now=utcnow())
        hook = webhooks.create(
            session,
            kind="standard",
            url="https://a.example",
            events=["job.finished"],
            description="",
            secret=None,
            actor="me",
        )
        webhooks.send(session, [hook.id], "job.finished:1:1", "job.finished", {}, now=utcnow())
        for name in ("dispatcher", "presence/host/1/a", "presence/host/2/b", "api/c"):
            leases.acquire(session, name, "host/1/a", 60)
        state = look(session)
        counted = {key: number for key, number in state["devices"].items() if number}
        expected = {("busy", "good"): 1, ("idle", "good"): 1}
        assert counted == expected | {("idle", "suspect"): 1, ("idle", "bad"): 1}
        assert state["device_health"]["lab-1/wormhole:2", "n150", "suspect"] == 1
        assert state["device_temperature_celsius"]["lab-1/wormhole:0"] == 45.2
        assert (state["webhooks"], state["webhook_pending"]) == ({"active": 1}, {(): 1})
        assert (state["background_processes"], state["duty_held"]) == ({(): 2}, {"dispatcher": 1})
        assert state["queue_workers"] == {job.queue: 1}
        later = look(session, later_s=100)
        assert 95 < later["webhook_lag_seconds"][()] < 160
        assert 95 < later["webhook_age_seconds"][()] < 160
        assert later["queue_workers"] == {job.queue: 0}
        assert {state for (state, _), number in later["devices"].items() if number} == {"offline"}
        assert later["device_temperature_celsius"] == {}


def test_a_queue_is_as_old_as_its_oldest_waiting_job(engine: Engine) -> None:
    with writing(engine) as session:
        first, _ = stored_jobs.submit(session), stored_jobs.submit(session)
        earlier = utcnow() - timedelta(seconds=500)
        session.execute(update(JobRow).where(JobRow.id == first.id).values(created_at=earlier))
        assert 500 <= look(session)["queue_age_seconds"][first.queue] < 560


def test_jobs_and_seeds_are_counted(engine: Engine) -> None:
    with writing(engine) as session:
        stored_jobs.finished(session, seeds=8)
        stored_jobs.finished(session, seeds=3)
        stored_jobs.submit(session, build="correct")
        totals = metrics.totals(session)
    assert totals["jobs"] == {"finished": 2, "queued": 1}
    assert totals["seeds"] == {"pass_by_tolerance": 11}
