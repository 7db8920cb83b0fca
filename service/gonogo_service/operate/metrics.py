"""Prometheus metrics: of this process's requests, and of the service's state in the database.

Requests are counted as they happen. The state is read at a scrape, and aggregated by the database.
Every API process reports the same state: aggregate by max, not by sum.
"""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from threading import Condition
from typing import Any, NamedTuple

from cachetools import TTLCache, cached
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from gonogo.flakiness.flag_kinds import FlagKind
from gonogo.spec.verdicts import Verdict
from gonogo_service.devices import workers
from gonogo_service.devices.model import DeviceRow, WorkerRow
from gonogo_service.flags.model import FlagRow
from gonogo_service.flags.noun import FlagState
from gonogo_service.hosts import refused_requests
from gonogo_service.jobs import queue_estimate
from gonogo_service.jobs.model import AttemptRow, JobRow
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.states import (
    LISTED_KINDS,
    AttemptState,
    ChunkState,
    DeviceHealth,
    DeviceState,
    JobState,
    WebhookState,
)
from gonogo_service.kit.outbox import leases
from gonogo_service.kit.outbox.model import OutboxRow
from gonogo_service.operate import presence
from gonogo_service.results.model import WHOLE, DailyRow
from gonogo_service.webhooks.model import DeliveryRow, WebhookRow

BUCKETS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
MAX_AGE_S = 2.0
"""Scrapes closer together than this share one read of the database."""
TOTALS_AGE_S = 60.0
"""Counts of all that ever was are this old at the most: they read many rows."""
METHODS = frozenset({"GET", "HEAD", "POST", "PATCH", "PUT", "DELETE", "OPTIONS"})


class Family(NamedTuple):
    """A metric of the service's state: its name without `gonogo_`, what it is, its labels.

    words: the values of its only label, if they are known: each has a series from the first scrape.
    """

    name: str
    sentence: str
    labels: tuple[str, ...] = ()
    words: type[StrEnum] | None = None


FAMILIES = (
    Family("jobs", "Jobs by state", ("state",), JobState),
    Family("seeds", "Stored (seed, repeat) results by verdict", ("verdict",), Verdict),
    Family("chunks", "Chunks that are not closed, by queue and state", ("queue", "state")),
    Family("queue_age_seconds", "Age of the oldest waiting job of a queue", ("queue",)),
    Family("queue_workers", "Live workers of a queue whose device takes work", ("queue",)),
    Family("workers", "Device workers by state", ("state",), DeviceState),
    Family("devices", "Devices by state and health", ("state", "health")),
    Family("device_health", "1 for the health that a device has", ("device", "board", "health")),
    Family("device_drained", "1 for a device that is drained", ("device",)),
    Family("device_temperature_celsius", "Temperature of an online device", ("device",)),
    Family(
        "requests_refused",
        "Refused requests of hosts, by host and reason",
        ("sender", "reason"),
    ),
    Family("flags", "Flags that are not resolved, by kind", ("kind",), FlagKind),
    Family("outbox_pending", "Outbox messages that are not delivered"),
    Family("outbox_age_seconds", "Age of the oldest outbox message that is not delivered"),
    Family(
        "ingest_lag_seconds", "Longest time that a finished attempt's results have been in transit"
    ),
    Family("webhooks", "Webhook subscriptions by state", ("state",), WebhookState),
    Family("webhook_pending", "Webhook messages that are waiting for a first or another try"),
    Family("webhook_age_seconds", "Age of the oldest undelivered webhook message"),
    Family("webhook_lag_seconds", "Time that the most overdue webhook message is late"),
    Family("background_processes", "Live background processes"),
    Family("duty_held", "Duties that a background process performs now", ("duty",)),
)
Values = Mapping[Any, float]
"""Label, or labels, of a series -> its value; () where the family has no label."""
State = dict[str, Values]
"""Name of a family -> its values."""


def read(session: Session, *, heartbeat_timeout_s: float, now: datetime | None = None) -> State:
    """Read what changes all the time."""
    now = now or utcnow()
    limit = now - timedelta(seconds=heartbeat_timeout_s)

    def age(moment: datetime | None) -> Values:
        return {(): 0.0 if moment is None else max(0.0, (now - moment).total_seconds())}

    chunks = queue_estimate.open_chunks(session)
    served = workers.live(session, now=now, timeout_s=heartbeat_timeout_s)
    queues = sorted({queue for queue, _ in chunks} | set(served))
    waiting = {queue for queue, state in chunks if state is ChunkState.waiting}
    oldest = {queue: queue_estimate.oldest(session, queue) for queue in waiting}
    pending, first = session.execute(
        select(func.count(), func.min(OutboxRow.created_at)).where(OutboxRow.due_at.is_not(None))
    ).one()
    deliveries, created, due = session.execute(
        select(func.count(), func.min(DeliveryRow.created_at), func.min(DeliveryRow.due_at)).where(
            DeliveryRow.due_at.is_not(None)
        )
    ).one()
    reported = select(func.min(AttemptRow.heard_at)).where(
        AttemptRow.state == AttemptState.reported
    )
    names = leases.holders(session)
    processes = (presence.API, presence.BACKGROUND)
    duties = {name: 1.0 for name in sorted(names) if not name.startswith(processes)}
    return {
        "chunks": chunks,
        "queue_age_seconds": {queue: age(oldest.get(queue))[()] for queue in queues},
        "queue_workers": {queue: served[queue] for queue in queues},
        "workers": Counts(row.state_at(limit) for row in session.scalars(select(WorkerRow))),
        **_devices(session.scalars(select(DeviceRow).order_by(DeviceRow.device)).all(), limit),
        "requests_refused": {
            (sender or "unknown", reason): count
            for (sender, reason), count in refused_requests.counts(session).items()
        },
        "flags": _counted(session, FlagRow.kind, FlagRow.state != FlagState.resolved),
        "outbox_pending": {(): pending},
        "outbox_age_seconds": age(first),
        "ingest_lag_seconds": age(session.scalar(reported)),
        "webhooks": _counted(session, WebhookRow.state),
        "webhook_pending": {(): deliveries},
        "webhook_age_seconds": age(created),
        "webhook_lag_seconds": age(due),
        "background_processes": {(): sum(name.startswith(presence.BACKGROUND) for name in names)},
        "duty_held": duties,
    }


def totals(session: Session) -> State:
    """Count all jobs and seeds: no gauges, and no seeds of comparisons and bisections."""
    seeds = select(DailyRow.verdict, func.sum(DailyRow.n)).where(DailyRow.output == WHOLE)
    return {
        "jobs": _counted(session, JobRow.state, JobRow.kind.in_(LISTED_KINDS)),
        "seeds": {
            verdict: int(number)
            for verdict, number in session.execute(seeds.group_by(DailyRow.verdict))
        },
    }


def _counted(session: Session, column: Any, *conditions: Any) -> Values:
    query = select(column, func.count()).where(*conditions).group_by(column)
    return dict(session.execute(query).all())


def _devices(rows: Iterable[DeviceRow], limit: datetime) -> State:
    """Return the families of devices; one that was last heard before `limit` is offline.

    A device has one series per possible health; its current health has the value 1.
    """
    devices: dict[tuple[str, str], int] = {
        (state, health): 0 for state in DeviceState for health in DeviceHealth
    }
    healths: dict[tuple[str, str, str], float] = {}
    drained: dict[str, float] = {}
    warm: dict[str, float] = {}
    for row in rows:
        state = row.state_at(limit)
        devices[state, row.health] += 1
        healths |= {
            (row.device, row.board, health): health is row.health for health in DeviceHealth
        }
        drained[row.device] = row.drained
        celsius = None if row.telemetry is None else row.telemetry.temperature_c
        if celsius is not None and state is not DeviceState.offline:
            warm[row.device] = celsius
    return {
        "devices": devices,
        "device_health": healths,
        "device_drained": drained,
        "device_temperature_celsius": warm,
    }


class Metrics:
    """The metrics of one app.

    Each app has its own registry, so that two apps in one process (tests) don't share counters.
    """

    def __init__(
        self, read: Callable[[], State], totals: Callable[[], State], streams: Callable[[], int]
    ) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "gonogo_http_requests",
            "Requests answered",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self.seconds = Histogram(
            "gonogo_http_request_seconds",
            "Time to answer",
            ("route",),
            buckets=BUCKETS,
            registry=self.registry,
        )
        # with a condition, concurrent scrapes wait for one read
        self._read = cached(TTLCache(1, MAX_AGE_S), condition=Condition())(read)
        self._totals = cached(TTLCache(1, TOTALS_AGE_S), condition=Condition())(totals)
        self._streams = streams
        self.registry.register(self)

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one request.

        `route` is the route's template. An unknown method counts as "other", because clients may
        invent methods.
        """
        label = method if method in METHODS else "other"
        self.requests.labels(label, route, str(status)).inc()
        self.seconds.labels(route).observe(seconds)

    def expose(self) -> bytes:
        """Return the text that Prometheus scrapes. Raises what the database read raises."""
        return generate_latest(self.registry)

    def describe(self) -> list[Metric]:
        """Return nothing: registration must not query the database."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the current state as metric families."""
        state = self._totals() | self._read()
        for name, sentence, labels, words in FAMILIES:
            values = state[name] if words is None else dict.fromkeys(words, 0) | dict(state[name])
            yield _family(name, sentence, labels, values)
        streams = {(): self._streams()}
        yield _family("event_streams", "Open event streams of this process", (), streams)


def _family(name: str, sentence: str, labels: tuple[str, ...], values: Values) -> Metric:
    family = GaugeMetricFamily(f"gonogo_{name}", sentence, labels=labels)
    for key, value in values.items():
        family.add_metric([key] if isinstance(key, str) else list(key), value)
    return family
