"""Prometheus metrics of HTTP requests and of the service's state.

Requests are counted as they happen. The state is read from the database at each scrape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from threading import Condition
from typing import Any

from cachetools import TTLCache, cached
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

from gonogo_service.kit.database.states import DeviceHealth, DeviceState
from gonogo_service.operate.metric_reads import Numbers

BUCKETS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
MAX_AGE_S = 2.0
"""Scrapes closer together than this share one read of the database."""


class Metrics:
    """The metrics of one app.

    Each app has its own registry, so that two apps in one process (tests) don't share counters.
    """

    def __init__(self, read: Callable[[], Numbers], streams: Callable[[], int]) -> None:
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
        self.registry.register(_Service(read, streams))

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one request.

        `route` is the route's template. An unknown method counts as "other", because clients may
        invent methods.
        """
        label = (
            method
            if method in {"GET", "HEAD", "POST", "PATCH", "PUT", "DELETE", "OPTIONS"}
            else "other"
        )
        self.requests.labels(label, route, str(status)).inc()
        self.seconds.labels(route).observe(seconds)

    def expose(self) -> bytes:
        """Return the text that Prometheus scrapes. Raises what the database read raises."""
        return generate_latest(self.registry)


class _Service:
    """Collects the gauges of the service."""

    def __init__(self, read: Callable[[], Numbers], streams: Callable[[], int]) -> None:
        # with a condition, concurrent scrapes wait for one read
        self._read = cached(TTLCache(1, MAX_AGE_S), condition=Condition())(read)
        self._streams = streams

    def describe(self) -> list[Metric]:
        """Return nothing: registration must not query the database."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the current numbers as metric families."""
        yield from families(self._read())
        yield GaugeMetricFamily(
            "gonogo_event_streams", "Open event streams of this process", value=self._streams()
        )


def families(numbers: Numbers) -> Iterator[Metric]:
    """Yield the numbers of one database read as metric families.

    Every API process reports the same numbers: aggregate by max, not by sum.
    """
    yield _by("gonogo_jobs", "Jobs by state", "state", numbers.jobs)
    yield _by("gonogo_seeds", "Stored (seed, repeat) results by verdict", "verdict", numbers.seeds)
    yield _family(
        "gonogo_chunks",
        "Chunks that are not closed, by queue and state",
        ("queue", "state"),
        numbers.chunks,
    )
    yield _by(
        "gonogo_queue_age_seconds",
        "Age of the oldest waiting job of a queue",
        "queue",
        numbers.queue_age_s,
    )
    yield _by(
        "gonogo_queue_workers",
        "Live workers of a queue whose device takes work",
        "queue",
        numbers.queue_workers,
    )
    yield _by("gonogo_workers", "Device workers by state", "state", numbers.workers)
    yield from _devices(numbers)
    yield _family(
        "gonogo_messages_refused",
        "Refused messages of workers, by the host that sealed them and by reason",
        ("sender", "reason"),
        numbers.refused,
    )
    yield _by("gonogo_flags", "Flags that are not resolved, by kind", "kind", numbers.flags)
    yield GaugeMetricFamily(
        "gonogo_outbox_pending", "Outbox messages that are not delivered", value=numbers.outbox
    )
    yield GaugeMetricFamily(
        "gonogo_outbox_age_seconds",
        "Age of the oldest outbox message that is not delivered",
        value=numbers.outbox_age_s,
    )
    yield GaugeMetricFamily(
        "gonogo_ingest_lag_seconds",
        "Longest time that a finished attempt's results have been in transit",
        value=numbers.ingest_lag_s,
    )
    yield _by("gonogo_webhooks", "Webhook subscriptions by state", "state", numbers.webhooks)
    yield GaugeMetricFamily(
        "gonogo_webhook_pending",
        "Webhook messages that are waiting for a first or another try",
        value=numbers.deliveries,
    )
    yield GaugeMetricFamily(
        "gonogo_webhook_age_seconds",
        "Age of the oldest undelivered webhook message",
        value=numbers.delivery_age_s,
    )
    yield GaugeMetricFamily(
        "gonogo_webhook_lag_seconds",
        "Time that the most overdue webhook message is late",
        value=numbers.webhook_lag_s,
    )
    yield GaugeMetricFamily(
        "gonogo_background_processes", "Live background processes", value=numbers.background
    )
    yield _by(
        "gonogo_duty_held",
        "Duties that a background process performs now",
        "duty",
        dict.fromkeys(numbers.duties, 1),
    )


def _devices(numbers: Numbers) -> Iterator[Metric]:
    """Yield the number of devices by state and health, and the health of each device.

    A device has one series per possible health; its current health has the value 1.
    """
    totals = {(state.value, health.value): 0 for state in DeviceState for health in DeviceHealth}
    for device in numbers.devices:
        totals[device.state, device.health] += 1
    yield _family("gonogo_devices", "Devices by state and health", ("state", "health"), totals)
    healths = {
        (device.device, device.board, health.value): device.health == health
        for device in numbers.devices
        for health in DeviceHealth
    }
    yield _family(
        "gonogo_device_health",
        "1 for the health that a device has",
        ("device", "board", "health"),
        healths,
    )
    drained = {device.device: device.drained for device in numbers.devices}
    yield _by("gonogo_device_drained", "1 for a device that is drained", "device", drained)
    warm = {
        device.device: device.temperature_c
        for device in numbers.devices
        if device.temperature_c is not None
    }
    yield _by(
        "gonogo_device_temperature_celsius",
        "Temperature of an online device",
        "device",
        warm,
    )


def _by(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    """Return a gauge with one label."""
    return _family(name, text, (label,), {(key,): value for key, value in values.items()})


def _family(name: str, text: str, labels: tuple[str, ...], values: Mapping[Any, float]) -> Metric:
    """Return a gauge; the keys of `values` are its labels' values."""
    family = GaugeMetricFamily(name, text, labels=labels)
    for key, value in values.items():
        family.add_metric(list(key), value)
    return family
