"""The reaper: silent attempts, lost messages, jobs past a deadline, and the hourly cleanup."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from gonogo_service.background import sickness
from gonogo_service.background.dispatcher import CANCEL_KEY_S, request_cancel
from gonogo_service.ci import incoming
from gonogo_service.devices import goldens, heartbeats, periods, workers
from gonogo_service.devices import store as devices
from gonogo_service.hosts import invitations, message_numbers
from gonogo_service.hosts import store as hosts
from gonogo_service.jobs import attempts, dispatching, queues
from gonogo_service.jobs.model import AttemptRow
from gonogo_service.kit.background_context import BackgroundContext, log
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.states import AttemptState
from gonogo_service.kit.outbox import leases, outbox
from gonogo_service.webhooks import store as webhooks
from gonogo_workers.queue import BACKGROUND_QUEUE, HEARTBEAT_QUEUE, ORDER, device_key

HOURLY_S = 3600.0
SUSPECT_EVERY_S = 60.0
SIGN_EVERY_S = 60.0
"""An order is signed again after this time: a worker follows none that is two minutes old."""
# A queue that was empty this recently keeps up, even if it holds messages at the moment.
EMPTY_WITHIN_S = 5.0
# A live worker that ignores a cancel request keeps the job for at most this many heartbeat
# timeouts.
CANCEL_TIMEOUTS = 2


class Reaper:
    """Finds and closes lost attempts and late jobs.

    Between passes it remembers since when this process has kept up with its queues, and since when
    messages have been missing.
    """

    def __init__(self, context: BackgroundContext) -> None:
        self.context = context
        self.caught_up = {BACKGROUND_QUEUE: CaughtUp(), HEARTBEAT_QUEUE: CaughtUp()}
        # attempt -> monotonic time since when its message has been missing from its queue
        self.missing: dict[str, float] = {}
        # device -> its order, when it was signed, the text
        self._orders: dict[str, tuple[Mapping[str, Any], float, str]] = {}
        self._swept_at = -HOURLY_S
        self._suspected_at = self._checked_devices_at = time.monotonic()

    def reset(self) -> None:
        """Forget the observations of earlier passes.

        They prove nothing after the database or the broker was unavailable, or after another
        process had the lease.
        """
        for queue in self.caught_up.values():
            queue.since = None
        self.missing.clear()
        # another process may have signed later ones
        self._orders.clear()

    def run_once(self) -> None:
        """Run one pass. Raises the AWAY errors."""
        context, now, tick = self.context, utcnow(), time.monotonic()
        timeout_s = context.settings.heartbeat_timeout_s
        self._publish_orders(context)
        for queue, progress in self.caught_up.items():
            progress.observe(tick, int(context.redis.llen(queue)))
        before = now - timedelta(seconds=timeout_s)
        if self.caught_up[HEARTBEAT_QUEUE].for_s(tick) >= timeout_s:
            self._silent(AttemptState.running, f"no heartbeat for {timeout_s:g} s", before)
            self._vanished(tick, before)
            if self.caught_up[BACKGROUND_QUEUE].for_s(tick) >= timeout_s:
                self._silent(AttemptState.reported, "some of its results never arrived", before)
        self._deadlines(now)
        if tick - self._checked_devices_at >= timeout_s:
            if context.reading(partial(heartbeats.silent, now=now, timeout_s=timeout_s)):
                context.session(partial(heartbeats.went_offline, now=now, timeout_s=timeout_s))
            self._checked_devices_at = tick
        if tick - self._suspected_at >= SUSPECT_EVERY_S:
            sickness.run_once(context, now)
            self._suspected_at = tick
        if tick - self._swept_at >= HOURLY_S:
            self._sweep(now)
            self._swept_at = tick

    def _publish_orders(self, context: BackgroundContext) -> None:
        """Write running attempts' cancel keys and the devices' orders to Redis.

        Every pass writes them, so that they survive a flush.
        """
        for attempt in context.reading(dispatching.to_cancel):
            request_cancel(context, attempt)
        if by_device := context.reading(devices.orders):
            texts = {device: self._sealed(device, order) for device, order in by_device.items()}
            with context.redis.pipeline(transaction=False) as pipe:
                for device, text in texts.items():
                    pipe.set(device_key(device), text, ex=CANCEL_KEY_S)
                pipe.execute()

    def _sealed(self, device: str, order: Mapping[str, Any]) -> str:
        """Return a device's order, signed less than a minute ago."""
        tick = time.monotonic()
        known = self._orders.get(device)
        if known is None or known[0] != order or tick - known[1] > SIGN_EVERY_S:
            known = order, tick, self.context.sealed(ORDER, {"device": device, **order})
            self._orders[device] = known
        return known[2]

    def _silent(self, state: AttemptState, why: str, before: datetime) -> None:
        context = self.context
        for silent in context.reading(
            lambda session: attempts.silent_attempts(session, state, before=before)
        ):
            self._mark_lost(silent.id, why, before)

    def _vanished(self, tick: float, before: datetime) -> None:
        """Mark unstarted attempts lost when neither the queue nor a worker has their message.

        The worker that had received such a message died. A queue is first in, first out: if it is
        shorter than the list of unstarted attempts, the oldest ones have left it.
        """
        context = self.context
        sent = context.reading(
            lambda session: attempts.silent_attempts(session, AttemptState.sent, before=utcnow())
        )
        by_queue: dict[str, list[AttemptRow]] = {}
        for item in sent:
            by_queue.setdefault(item.queue, []).append(item)
        gone: list[str] = []
        for queue, items in by_queue.items():
            left = items[: max(0, len(items) - int(context.redis.llen(queue)))]
            gone += [
                item.id for item in left if item.heard_at is not None and item.heard_at < before
            ]
        self.missing = {attempt: self.missing.get(attempt, tick) for attempt in gone}
        for attempt, since in list(self.missing.items()):
            if tick - since >= context.settings.heartbeat_timeout_s:
                self._mark_lost(
                    attempt, "its message left the queue, and no worker started it", before
                )
                del self.missing[attempt]

    def _mark_lost(self, attempt: str, why: str, before: datetime) -> None:
        if (
            self.context.session(
                lambda session: attempts.mark_lost(
                    session, attempt, why, before=before, now=utcnow()
                )
            )
            is not None
        ):
            log.warning("attempt lost", attempt=attempt, reason=why)
            self.context.notify()

    def _deadlines(self, now: datetime) -> None:
        context, timeout_s = self.context, self.context.settings.heartbeat_timeout_s
        live = context.reading(partial(workers.live, now=now, timeout_s=timeout_s))
        served = [queue for queue, count in live.items() if count]
        if context.reading(partial(queues.unexplained, served=served)):
            context.session(partial(queues.explain, served=served, now=now))
        for job in context.reading(partial(queues.expired, served=served, now=now)):
            if context.session(partial(queues.expire, job_id=job, now=now)):
                log.warning("job failed at its queue deadline", job=job)
        before = now - timedelta(seconds=CANCEL_TIMEOUTS * timeout_s)
        for job in context.reading(partial(queues.overdue_cancels, before=before)):
            if context.session(partial(queues.close_unresponsive, job_id=job, now=now)):
                log.warning("job canceled without an answer from its workers", job=job)

    def _sweep(self, now: datetime) -> None:
        context = self.context
        context.session(leases.forget)
        context.session(goldens.forget)
        for forget in _FORGET:
            context.session(partial(forget, now=now))


_FORGET: tuple[Callable[..., object], ...] = (
    outbox.purge,
    webhooks.purge,
    incoming.purge,
    workers.forget,
    periods.forget,
    hosts.forget,
    invitations.forget,
    message_numbers.forget,
)
"""The functions that delete rows which nobody needs; each has a transaction of its own."""


class CaughtUp:
    """The monotonic time since when a queue is emptied regularly; None while it isn't."""

    def __init__(self) -> None:
        self.since: float | None = None
        self._empty_at: float | None = None

    def observe(self, tick: float, length: int) -> None:
        """Record the queue's length at a monotonic time."""
        if length == 0:
            self._empty_at = tick
            if self.since is None:
                self.since = tick
        elif self._empty_at is None or tick - self._empty_at > EMPTY_WITHIN_S:
            self.since = None

    def for_s(self, tick: float) -> float:
        """Return for how many seconds the queue has been emptied regularly; -1 while it isn't."""
        return -1.0 if self.since is None else tick - self.since
