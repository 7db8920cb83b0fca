"""The reaper: attempts whose worker fell silent, messages that vanished, jobs past a deadline, and
the hourly sweeping.
"""

from __future__ import annotations

import json
import time
from datetime import datetime, timedelta
from functools import partial

from gonogo_service.background import sickness
from gonogo_service.background.dispatcher import CANCEL_KEY_S
from gonogo_service.kit.background_context import Core, log
from gonogo_storage.db import partitions
from gonogo_storage.db.encoding import utcnow
from gonogo_storage.db.states import AttemptState
from gonogo_storage.devices import devices, periods, workers
from gonogo_storage.jobs import attempts, queues
from gonogo_storage.messages import leases, outbox
from gonogo_workers.queue import BACKGROUND_QUEUE, HEARTBEAT_QUEUE, cancel_key, device_key

HOURLY_S = 3600.0
SUSPECT_EVERY_S = 60.0
NOTHING_TO_SAY = {"order": "work", "asked": 0}
# A queue that is emptied at least this often is keeping up, even if a look finds something in it.
EMPTY_WITHIN_S = 5.0
# A worker that lives but doesn't obey a cancel keeps the job no longer than this many heartbeat
# timeouts.
CANCEL_TIMEOUTS = 2


class Reaper:
    """Keeps what it has seen between passes: how long this process has been keeping up, and which
    messages it misses since when.
    """

    def __init__(self, core: Core) -> None:
        self.core = core
        self.caught_up = {BACKGROUND_QUEUE: CaughtUp(), HEARTBEAT_QUEUE: CaughtUp()}
        self.missing: dict[
            str, float
        ] = {}  # attempt -> monotonic time since when its message is not in its queue
        self._swept = -HOURLY_S
        self._suspected = self._devices = time.monotonic()

    def reset(self) -> None:
        """The database or the broker was away, or another process had the lease: what was seen
        before proves nothing.
        """
        for queue in self.caught_up.values():
            queue.since = None
        self.missing.clear()

    def run_once(self) -> None:
        """One pass. Raises core.AWAY errors."""
        core, now, tick = self.core, utcnow(), time.monotonic()
        timeout_s = core.settings.heartbeat_timeout_s
        self._told(core)
        for queue, seen in self.caught_up.items():
            seen.observe(tick, int(core.redis.llen(queue)))
        before = now - timedelta(seconds=timeout_s)
        if self.caught_up[HEARTBEAT_QUEUE].for_s(tick) >= timeout_s:
            self._silent(AttemptState.running, f"no heartbeat for {timeout_s:g} s", before)
            self._vanished(tick, before)
            if self.caught_up[BACKGROUND_QUEUE].for_s(tick) >= timeout_s:
                self._silent(AttemptState.reported, "some of its results never arrived", before)
        self._deadlines(now)
        if tick - self._devices >= timeout_s:
            if core.reading(partial(devices.silent, now=now, timeout_s=timeout_s)):
                core.session(partial(devices.went_offline, now=now, timeout_s=timeout_s))
            self._devices = tick
        if tick - self._suspected >= SUSPECT_EVERY_S:
            sickness.run_once(core, now)
            self._suspected = tick
        if tick - self._swept >= HOURLY_S:
            self._sweep(now)
            self._swept = tick

    def _told(self, core: Core) -> None:
        """The cancel keys of running attempts, and what is wanted of devices, are in Redis, even
        after a flush.
        """
        for attempt in core.reading(attempts.to_cancel):
            core.redis.set(cancel_key(attempt), "1", ex=CANCEL_KEY_S)
        if wanted := core.reading(devices.orders):
            with core.redis.pipeline(transaction=False) as pipe:
                for device, order in wanted.items():
                    if order == NOTHING_TO_SAY:
                        pipe.delete(device_key(device))
                    else:
                        pipe.set(device_key(device), json.dumps(order), ex=CANCEL_KEY_S)
                pipe.execute()

    def _silent(self, state: AttemptState, why: str, before: datetime) -> None:
        core = self.core
        for silent in core.reading(lambda session: attempts.overdue(session, state, before=before)):
            self._lose(silent.attempt, why, before)

    def _vanished(self, tick: float, before: datetime) -> None:
        """Unstarted attempts whose message is neither in the queue nor in a worker that says so: it
        died with it in hand.

        A queue is first in, first out: if it is shorter than the list of unstarted attempts, the
        oldest ones have left it.
        """
        core = self.core
        sent = core.reading(
            lambda session: attempts.overdue(session, AttemptState.sent, before=utcnow())
        )
        by_queue: dict[str, list[attempts.Silent]] = {}
        for item in sent:
            by_queue.setdefault(item.queue, []).append(item)
        gone: list[str] = []
        for queue, items in by_queue.items():
            left = items[: max(0, len(items) - int(core.redis.llen(queue)))]
            gone += [
                item.attempt
                for item in left
                if item.heard_at is not None and item.heard_at < before
            ]
        self.missing = {attempt: self.missing.get(attempt, tick) for attempt in gone}
        for attempt, since in list(self.missing.items()):
            if tick - since >= core.settings.heartbeat_timeout_s:
                self._lose(attempt, "its message left the queue, and no worker started it", before)
                del self.missing[attempt]

    def _lose(self, attempt: str, why: str, before: datetime) -> None:
        if (
            self.core.session(
                lambda session: attempts.lose(session, attempt, why, before=before, now=utcnow())
            )
            is not None
        ):
            log.warning("attempt given up", attempt=attempt, reason=why)
            self.core.ring()

    def _deadlines(self, now: datetime) -> None:
        core, timeout_s = self.core, self.core.settings.heartbeat_timeout_s
        live = core.reading(partial(workers.live, now=now, timeout_s=timeout_s))
        served = [queue for queue, count in live.items() if count]
        if core.reading(partial(queues.unexplained, served=served)):
            core.session(partial(queues.explain, served=served, now=now))
        for job in core.reading(partial(queues.expired, served=served, now=now)):
            if core.session(partial(queues.expire, job_id=job, now=now)):
                log.warning("job failed at its queue deadline", job=job)
        before = now - timedelta(seconds=CANCEL_TIMEOUTS * timeout_s)
        for job in core.reading(partial(queues.overdue_cancels, before=before)):
            if core.session(partial(queues.abandon, job_id=job, now=now)):
                log.warning("job cancelled without an answer of its workers", job=job)

    def _sweep(self, now: datetime) -> None:
        core = self.core
        core.session(lambda session: partitions.ensure(session.connection(), now=now))
        core.session(partial(outbox.purge, now=now))
        core.session(partial(workers.forget, now=now))
        core.session(partial(periods.forget, now=now))
        core.session(leases.forget)


class CaughtUp:
    """Since when a queue has been emptied again and again; None while it isn't."""

    def __init__(self) -> None:
        self.since: float | None = None
        self._empty: float | None = None

    def observe(self, tick: float, length: int) -> None:
        """Note the queue's length at a monotonic time."""
        if length == 0:
            self._empty = tick
            if self.since is None:
                self.since = tick
        elif self._empty is None or tick - self._empty > EMPTY_WITHIN_S:
            self.since = None

    def for_s(self, tick: float) -> float:
        """How long it has been keeping up, in seconds; -1 while it isn't."""
        return -1.0 if self.since is None else tick - self.since
