"""Prometheus metrics: HTTP requests as they happen, the state of the service from the database at
each scrape.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from threading import Lock
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

from gonogo_storage.db.states import DeviceHealth, DeviceState
from gonogo_storage.ops.metric_reads import Numbers

BUCKETS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
MAX_AGE_S = 2.0
"""Scrapes closer together than this share one look at the database."""


class Metrics:
    """A registry of its own, so that two apps in one process (tests) don't share counters."""

    def __init__(self, look: Callable[[], Numbers], streams: Callable[[], int]) -> None:
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
        self._service = _Service(look, streams)
        self.registry.register(self._service)

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one request; `route` is the template, and an unknown method counts as "other"
        (clients may invent any).
        """
        known = (
            method
            if method in {"GET", "HEAD", "POST", "PATCH", "PUT", "DELETE", "OPTIONS"}
            else "other"
        )
        self.requests.labels(known, route, str(status)).inc()
        self.seconds.labels(route).observe(seconds)

    def forget(self) -> None:
        """Make the next scrape look at the database, however soon it comes."""
        self._service.forget()

    def expose(self) -> bytes:
        """The text that Prometheus scrapes. Raises what the look at the database raises."""
        return generate_latest(self.registry)


class _Service:
    """Collects the gauges of the service."""

    def __init__(self, look: Callable[[], Numbers], streams: Callable[[], int]) -> None:
        self._look, self._streams = look, streams
        self._lock, self._seen, self._at = Lock(), None, 0.0  # type: Lock, Numbers | None, float

    def describe(self) -> list[Metric]:
        """Nothing: the database isn't asked at registration."""
        return []

    def forget(self) -> None:
        """Drop the last look."""
        with self._lock:
            self._seen = None

    def collect(self) -> Iterator[Metric]:
        """One look, as metric families."""
        with self._lock:
            if self._seen is None or time.monotonic() - self._at > MAX_AGE_S:
                self._seen, self._at = self._look(), time.monotonic()
            seen = self._seen
        yield from families(seen)
        yield GaugeMetricFamily(
            "gonogo_event_streams", "Open event streams of this process", value=self._streams()
        )


def families(seen: Numbers) -> Iterator[Metric]:
    """One look at the database as metric families. Every API process tells the same: aggregate by
    max, not by sum.
    """
    yield _by("gonogo_jobs", "Jobs by state", "state", seen.jobs)
    yield _by("gonogo_seeds", "Stored (seed, repeat) results by verdict", "verdict", seen.seeds)
    yield _family(
        "gonogo_chunks",
        "Chunks that are not closed, by queue and state",
        ("queue", "state"),
        seen.chunks,
    )
    yield _by(
        "gonogo_queue_age_seconds",
        "Age of the oldest waiting job of a queue",
        "queue",
        seen.queue_age_s,
    )
    yield _by(
        "gonogo_queue_workers",
        "Live workers of a queue whose device takes work",
        "queue",
        seen.queue_workers,
    )
    yield _by("gonogo_workers", "Device workers by state", "state", seen.workers)
    yield from _devices(seen)
    yield _by("gonogo_flags", "Flags that are not resolved, by kind", "kind", seen.flags)
    yield GaugeMetricFamily(
        "gonogo_outbox_pending", "Letters of the outbox that are not delivered", value=seen.outbox
    )
    yield GaugeMetricFamily(
        "gonogo_outbox_age_seconds",
        "Age of the oldest letter that is not delivered",
        value=seen.outbox_age_s,
    )
    yield GaugeMetricFamily(
        "gonogo_ingest_lag_seconds",
        "Since when the results of a finished attempt have been on their way",
        value=seen.ingest_lag_s,
    )
    yield _by("gonogo_webhooks", "Webhook subscriptions by state", "state", seen.webhooks)
    yield GaugeMetricFamily(
        "gonogo_webhook_pending",
        "Webhook messages that will be tried, or tried again",
        value=seen.deliveries,
    )
    yield GaugeMetricFamily(
        "gonogo_webhook_age_seconds",
        "Age of the oldest undelivered webhook message",
        value=seen.delivery_age_s,
    )
    yield GaugeMetricFamily(
        "gonogo_webhook_lag_seconds",
        "Since when the longest due webhook message should have been sent",
        value=seen.webhook_lag_s,
    )
    yield GaugeMetricFamily(
        "gonogo_background_processes", "Background processes that live", value=seen.background
    )
    yield _by(
        "gonogo_duty_held",
        "Duties that a background process does now",
        "duty",
        dict.fromkeys(seen.duties, 1),
    )


def _devices(seen: Numbers) -> Iterator[Metric]:
    """How many there are of each kind, and each with its health: one series for each health it
    could have, 1 for the one it has.
    """
    totals = {(state.value, health.value): 0 for state in DeviceState for health in DeviceHealth}
    for each in seen.devices:
        totals[each.state, each.health] += 1
    yield _family("gonogo_devices", "Devices by state and health", ("state", "health"), totals)
    healths = {
        (each.device, each.board, health.value): each.health == health
        for each in seen.devices
        for health in DeviceHealth
    }
    yield _family(
        "gonogo_device_health",
        "1 for the health that a device has",
        ("device", "board", "health"),
        healths,
    )
    drained = {each.device: each.drained for each in seen.devices}
    yield _by(
        "gonogo_device_drained", "1 for a device that someone took out of work", "device", drained
    )
    warm = {
        each.device: each.temperature_c for each in seen.devices if each.temperature_c is not None
    }
    yield _by(
        "gonogo_device_temperature_celsius",
        "Temperature of a device that is online",
        "device",
        warm,
    )


def _by(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    """One gauge with one label."""
    return _family(name, text, (label,), {(key,): value for key, value in values.items()})


def _family(name: str, text: str, labels: tuple[str, ...], values: Mapping[Any, float]) -> Metric:
    """One gauge; `values` is keyed by its labels' values."""
    family = GaugeMetricFamily(name, text, labels=labels)
    for key, value in values.items():
        family.add_metric(list(key), value)
    return family
