"""Reads the service's orders for this worker's devices.

There is one key per device; a separate thread checks them every second.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Sequence

from gonogo_workers import queue
from gonogo_workers.devices.health_monitor import DeviceHealthMonitor, Order

log = logging.getLogger(__name__)

CHECK_EVERY_S = 1.0


class Orders:
    """Passes orders on to the monitors, on a separate thread.

    While the broker is down no orders come, and nothing changes.
    """

    def __init__(
        self,
        broker_url: str,
        monitors: Sequence[DeviceHealthMonitor],
        every_s: float = CHECK_EVERY_S,
    ) -> None:
        self._client = queue.redis_client(broker_url)
        self._monitors = tuple(monitors)
        self._every_s = every_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="orders", daemon=True)

    def start(self) -> None:
        """Check now and then every second.

        The first check comes before any work: a worker of a drained device must take nothing at
        all.
        """
        self._check()
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(1.0)
        self._client.close()

    def _run(self) -> None:
        while not self._stop.wait(self._every_s):
            self._check()

    def _check(self) -> None:
        try:
            contents = self._client.mget(
                [queue.device_key(monitor.device.identity) for monitor in self._monitors]
            )
        except Exception as problem:  # any error of the client: it reconnects by itself
            log.debug("can't check for orders: %s", problem)
            return
        for monitor, text in zip(self._monitors, contents, strict=True):
            monitor.receive_order(*read(text))


def read(text: bytes | str | None) -> tuple[Order, int]:
    """Return the order in a key's content, and the number of requested tests.

    Unreadable content means an order to work, as does a missing key.
    """
    try:
        content = json.loads(text or b"{}")
        return Order(content.get("order", "work")), int(content.get("asked", 0))
    except (ValueError, TypeError, AttributeError):
        return Order.work, 0
