"""The worker's heartbeat, and what the service answers: cancels, and orders for devices."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gonogo_workers.attempts.context import Vitals
from gonogo_workers.devices.health_monitor import DeviceHealthMonitor, Order
from gonogo_workers.server.client import Answer, Away, Refused, Server

log = logging.getLogger(__name__)

PATH = "/hosts/self"
BUSY_EVERY_S = 1.0
"""While an attempt runs, as a cancel must reach it within five seconds, or nobody answers."""


class Heartbeat:
    """A thread that tells the service what this worker does, and hears what it should do.

    A heartbeat that fails is lost and not repeated: the next one carries the same facts. While
    none succeeds, the worker takes no new work.
    """

    def __init__(
        self, server: Server, vitals: Vitals, every_s: float, changed: Callable[[], None]
    ) -> None:
        """`changed` is called when `is_heard` has changed."""
        self._server, self._vitals = server, vitals
        self._every_s, self._changed = every_s, changed
        self._identity: Callable[[], Mapping[str, Any]] = dict
        self._monitors: dict[str, DeviceHealthMonitor] = {}
        self.is_heard = False
        """Whether the last heartbeat was answered: then the service takes results, too."""
        self._watched: tuple[str, Callable[[], None]] | None = None
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._next = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def serve(
        self, identity: Callable[[], Mapping[str, Any]], monitors: Sequence[DeviceHealthMonitor]
    ) -> None:
        """Say with each heartbeat what `identity` returns, and follow orders for these devices."""
        self._identity = identity
        self._monitors = {monitor.device.identity: monitor for monitor in monitors}

    def start(self) -> None:
        """Send the first heartbeat now: a drained device must take nothing at all."""
        self._beat()
        self._thread.start()

    def close(self) -> None:
        """Send no more heartbeats; don't wait for one that hangs."""
        self._stop.set()
        self._next.set()
        if self._thread.is_alive():
            self._thread.join(0.5)

    def soon(self) -> None:
        """Send the next heartbeat now: something changed that the service should know."""
        self._next.set()

    def watch(self, attempt: str, canceled: Callable[[], None]) -> None:
        """Call `canceled` once when an answer says that this attempt is canceled or over."""
        with self._lock:
            self._watched = attempt, canceled

    def forget(self) -> None:
        """Stop watching: the attempt has ended."""
        with self._lock:
            self._watched = None

    def answered(self, path: str, answer: Answer) -> None:
        """Follow the answer to a request of an attempt."""
        if answer.get("canceled") is True:
            self.over(path)
        self._follow(answer.get("orders"))

    def over(self, path: str) -> None:
        """End the watched attempt if the path is one of its requests."""
        with self._lock:
            watched = self._watched
            if watched is None or watched[0] not in path:
                return
            self._watched = None
        watched[1]()

    def _run(self) -> None:
        while not self._stop.is_set():
            hurried = self._vitals.attempt is not None or not self.is_heard
            self._next.wait(min(BUSY_EVERY_S, self._every_s) if hurried else self._every_s)
            self._next.clear()
            if not self._stop.is_set():
                self._beat()

    def _beat(self) -> None:
        vitals = self._vitals
        attempt = vitals.attempt
        body = {
            **self._identity(),
            "clock": time.time(),
            "attempt": attempt,
            "seed": vitals.seed,
            "stage": vitals.stage,
        }
        try:
            answer = self._server.request("PUT", PATH, body)
        except (Away, Refused, ValueError) as problem:
            if self.is_heard:
                log.warning("no heartbeat: %s", problem)
            self._set_heard(False)
            return
        if answer.get("canceled") is True and attempt is not None:
            self.over(attempt)
        self._follow(answer.get("orders"))
        self._set_heard(True)

    def _set_heard(self, is_heard: bool) -> None:
        if is_heard != self.is_heard:
            self.is_heard = is_heard
            self._changed()

    def _follow(self, orders: Any) -> None:
        if not isinstance(orders, Mapping):
            return
        for device, order in orders.items():
            monitor = self._monitors.get(str(device))
            try:
                if monitor is not None:
                    monitor.receive_order(Order(str(order["order"])), int(order.get("canaries", 0)))
            except (KeyError, TypeError, ValueError, AttributeError) as problem:
                log.warning("an order for device %s can't be read: %s", device, problem)
