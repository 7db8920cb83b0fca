"""The reaper: silent attempts, jobs past a deadline, and the hourly cleanup."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

from sqlalchemy.orm import Session

from gonogo.devices import suspicion
from gonogo_service.ci import incoming
from gonogo_service.devices import changes, goldens, heartbeats, outcomes, periods, workers
from gonogo_service.jobs import attempts, queues
from gonogo_service.kit.background_context import BackgroundContext, log
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.states import AttemptState
from gonogo_service.kit.outbox import leases, outbox
from gonogo_service.operate import presence
from gonogo_service.webhooks import store as webhooks

HOURLY_S = 3600.0
LOOK_BACK = timedelta(days=1)
"""Outcomes by which devices are suspected."""
SUSPECT_EVERY_S = 60.0
# A live worker that ignores a cancel request keeps the job for at most this many heartbeat
# timeouts.
CANCEL_TIMEOUTS = 2


class Reaper:
    """Finds and closes lost attempts and late jobs.

    Silence counts only while a process of the API was there to be told.
    """

    def __init__(self, context: BackgroundContext) -> None:
        self.context = context
        self.api_since: float | None = None
        """The monotonic time since when an API has been present without a break."""
        self._swept_at = -HOURLY_S
        self._suspected_at = self._checked_devices_at = time.monotonic()

    def reset(self) -> None:
        """Forget the observations of earlier passes.

        They prove nothing after the database was unavailable, or after another process had the
        lease.
        """
        self.api_since = None

    def run_once(self) -> None:
        """Run one pass. Raises the AWAY errors."""
        context, now, tick = self.context, utcnow(), time.monotonic()
        timeout_s = context.settings.heartbeat_timeout_s
        before = now - timedelta(seconds=timeout_s)
        seen = context.reading(partial(_look, now=now, before=before, timeout_s=timeout_s))
        if not seen.has_api:
            self.api_since = None
        elif self.api_since is None:
            self.api_since = tick
        if self.api_since is not None and tick - self.api_since >= timeout_s:
            for attempt, why in seen.silent:
                self._mark_lost(attempt, why, before)
            if tick - self._checked_devices_at >= timeout_s:
                if context.reading(partial(heartbeats.silent, now=now, timeout_s=timeout_s)):
                    context.session(partial(heartbeats.went_offline, now=now, timeout_s=timeout_s))
                self._checked_devices_at = tick
        self._deadlines(seen, now)
        if tick - self._suspected_at >= SUSPECT_EVERY_S:
            mark_suspects(context, now)
            self._suspected_at = tick
        if tick - self._swept_at >= HOURLY_S:
            self._sweep(now)
            self._swept_at = tick

    def _mark_lost(self, attempt: str, why: str, before: datetime) -> None:
        mark = partial(
            attempts.mark_lost, attempt_id=attempt, reason=why, before=before, now=utcnow()
        )
        if self.context.session(mark) is not None:
            log.warning("attempt lost", attempt=attempt, reason=why)
            self.context.notify()

    def _deadlines(self, seen: _Seen, now: datetime) -> None:
        context = self.context
        if seen.unexplained:
            context.session(partial(queues.explain, served=seen.served, now=now))
        for job in seen.expired:
            if context.session(partial(queues.expire, job_id=job, now=now)):
                log.warning("job failed at its queue deadline", job=job)
        for job in seen.overdue_cancels:
            if context.session(partial(queues.close_unresponsive, job_id=job, now=now)):
                log.warning("job canceled without an answer from its workers", job=job)

    def _sweep(self, now: datetime) -> None:
        context = self.context
        context.session(leases.forget)
        context.session(goldens.forget)
        for forget in _FORGET:
            context.session(partial(forget, now=now))


def mark_suspects(context: BackgroundContext, now: datetime) -> int:
    """Run one pass; return the number of devices that became suspect. Raises the AWAY errors."""
    by_device = context.reading(lambda session: outcomes.by_device(session, since=now - LOOK_BACK))
    count = 0
    for suspected in suspicion.suspects(by_device):
        mark = partial(
            changes.suspect,
            device=suspected.device,
            reason=suspected.words,
            evidence=asdict(suspected),
            now=now,
        )
        if context.session(mark):
            log.warning("device suspected", device=suspected.device, reason=suspected.words)
            count += 1
    return count


class _Seen(NamedTuple):
    """The findings of a pass; hardly ever anything."""

    has_api: bool
    silent: list[tuple[str, str]]
    """Attempts, and why they are lost"""
    served: list[str]
    """Queues with a live worker"""
    unexplained: list[str]
    expired: list[str]
    overdue_cancels: list[str]


def _look(session: Session, *, now: datetime, before: datetime, timeout_s: float) -> _Seen:
    live = workers.live(session, now=now, timeout_s=timeout_s)
    served = [queue for queue, count in live.items() if count]
    reasons = {
        AttemptState.running: f"no heartbeat for {timeout_s:g} s",
        AttemptState.reported: "some of its results never arrived",
    }
    canceled_before = now - timedelta(seconds=CANCEL_TIMEOUTS * timeout_s)
    return _Seen(
        bool(leases.holders(session, presence.API)),
        [
            (attempt.id, why)
            for state, why in reasons.items()
            for attempt in attempts.silent_attempts(session, state, before=before)
        ],
        served,
        queues.unexplained(session, served),
        queues.expired(session, served, now=now),
        queues.overdue_cancels(session, before=canceled_before),
    )


_FORGET: tuple[Callable[..., object], ...] = (
    outbox.purge,
    webhooks.purge,
    incoming.purge,
    workers.forget,
    periods.forget,
)
"""The functions that delete rows which nobody needs; each has a transaction of its own."""
