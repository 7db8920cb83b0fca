"""The numbers that /metrics reads from the database: devices, webhooks, queues, background, and
jobs that are over, which are counted once."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import Engine, update
from sqlalchemy.orm import Session

import stored_jobs
from gonogo_service.devices import workers
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.engine import session as writing
from gonogo_service.kit.outbox import leases
from gonogo_service.operate import final_job_counts, metric_reads
from gonogo_service.operate.final_job_counts import Memory
from gonogo_service.operate.metric_reads import Numbers, numbers
from gonogo_service.webhooks import deliveries
from gonogo_service.webhooks import store as webhooks


def look(session: Session, memory: Memory | None = None, *, later_s: float = 0.0) -> Numbers:
    """Read the numbers as of `later_s` seconds from now."""
    return numbers(
        session, heartbeat_timeout_s=30.0, memory=memory, now=utcnow() + timedelta(seconds=later_s)
    )


def test_devices_webhooks_queues_and_background_are_counted(engine: Engine) -> None:
    with writing(engine) as session:
        empty = look(session)
        assert (
            empty.devices,
            empty.deliveries,
            empty.webhook_lag_s,
            empty.background,
            empty.queue_workers,
        ) == ((), 0, 0.0, 0, {})
        job = stored_jobs.submit(session)
        stored_jobs.fleet(session, job)
        workers.heard(
            session,
            "w-1",
            queues=[job.queue],
            device="lab-2/emulator:0",
            attempt=None,
            now=utcnow(),
        )
        events = ["job.finished"]
        hook = webhooks.create(
            session,
            kind="standard",
            url="https://a.example",
            events=events,
            description="",
            secret=None,
            actor="me",
        )
        deliveries.add(session, [hook.id], "job.finished:1:1", "job.finished", {}, now=utcnow())
        for name in ("dispatcher", "presence/host/1/a", "presence/host/2/b"):
            leases.acquire(session, name, "host/1/a", 60)
        metrics = look(session)
        assert [(device.device, device.state, device.health) for device in metrics.devices] == [
            ("lab-1/wormhole:0", "busy", "good"),
            ("lab-1/wormhole:1", "idle", "good"),
            ("lab-1/wormhole:2", "idle", "suspect"),
            ("lab-1/wormhole:3", "idle", "bad"),
        ]
        assert metrics.devices[0].temperature_c == 45.2
        assert (
            metrics.webhooks["active"],
            metrics.deliveries,
            metrics.background,
            metrics.duties,
        ) == (
            1,
            1,
            2,
            ("dispatcher",),
        )
        assert metrics.queue_workers == {job.queue: 1}
        later = look(session, later_s=100)
        assert 95 < later.webhook_lag_s < 160
        assert 95 < later.delivery_age_s < 160
        assert later.queue_workers == {job.queue: 0}
        assert {device.state for device in later.devices} == {"offline"}
        assert all(device.temperature_c is None for device in later.devices)


def test_a_queue_is_as_old_as_its_oldest_waiting_job(engine: Engine) -> None:
    with writing(engine) as session:
        first, _ = stored_jobs.submit(session), stored_jobs.submit(session)
        session.execute(
            update(JobRow)
            .where(JobRow.id == first.id)
            .values(created_at=utcnow() - timedelta(seconds=500))
        )
        assert 500 <= look(session).queue_age_s[first.queue] < 560


def test_jobs_that_are_over_are_read_once(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(final_job_counts, "GRACE", timedelta(0))
    memory = Memory()
    with writing(engine) as session:
        stored_jobs.finished(session, seeds=8)
        waiting = stored_jobs.submit(session, build="correct")
        stored_jobs.finished(session, seeds=3)
        metrics = look(session, memory)
        assert (
            metrics.jobs["finished"],
            metrics.jobs["queued"],
            metrics.seeds["pass_by_tolerance"],
        ) == (
            2,
            1,
            11,
        )
        assert (memory.upto, memory.jobs) == (
            waiting.id,
            {"finished": 1},
        )  # behind an open job nothing is settled
        stored_jobs.report(
            session, waiting.id, [stored_jobs.row(seed, wrong=False) for seed in range(8)]
        )
        stored_jobs.finish(session, waiting.id)
        metrics = look(session, memory)
        assert (metrics.jobs["finished"], metrics.jobs["queued"], metrics.seeds["pass"]) == (
            3,
            0,
            8,
        )
        assert memory.jobs == {"finished": 3}
        stored_jobs.submit(session, build="correct")
        assert look(session, memory).jobs == look(session).jobs
        session.execute(update(JobRow).where(JobRow.id == waiting.id).values(counts={}))
        assert look(session, memory).seeds["pass"] == 8  # not read again
        assert (
            look(session, memory, later_s=final_job_counts.RECOUNT.total_seconds() + 1).seeds[
                "pass"
            ]
            == 0
        )


def test_what_is_younger_than_a_transaction_may_last_is_never_settled(engine: Engine) -> None:
    memory = Memory()
    with writing(engine) as session:
        stored_jobs.finished(session, seeds=2)
        assert look(session, memory).jobs["finished"] == 1
        assert not memory.jobs
        assert (
            metric_reads.numbers(session, heartbeat_timeout_s=30.0, memory=memory).jobs["finished"]
            == 1
        )
