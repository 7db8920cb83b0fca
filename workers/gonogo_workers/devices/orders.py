"""Reads the service's orders for this worker's devices.

There is one key per device; a separate thread checks them every second.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gonogo_workers import queue
from gonogo_workers.devices.health_monitor import DeviceHealthMonitor, Order
from gonogo_workers.messages.sealing import Sealer

log = logging.getLogger(__name__)

CHECK_EVERY_S = 1.0


@dataclass(frozen=True)
class _Stored:
    """An order that was taken."""

    order: Order
    test_requests: int
    number: int


class Orders:
    """Passes orders on to the monitors, on a separate thread.

    While the broker is down no orders come, and nothing changes. A device keeps its last order
    where there is no newer one that the service has signed, also when its worker starts again: else
    who deletes or repeats orders would put a drained device back to work.
    """

    def __init__(
        self,
        broker_url: str,
        sealer: Sealer,
        monitors: Sequence[DeviceHealthMonitor],
        folder: Path,
        every_s: float = CHECK_EVERY_S,
    ) -> None:
        self._folder = folder
        self._client = queue.redis_client(broker_url)
        self._sealer = sealer
        self._monitors = tuple(monitors)
        self._seen: dict[str, str] = {}
        self._numbers: dict[str, int] = {}
        self._with_new_order: set[str] = set()
        self._every_s = every_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="orders", daemon=True)

    def start(self) -> None:
        """Check now and then every second.

        The first check comes before any work: a worker of a drained device must take nothing at
        all.
        """
        last = {
            monitor.device.identity: self._last(monitor.device.identity)
            for monitor in self._monitors
        }
        self._numbers |= {device: stored.number for device, stored in last.items()}
        self._check()
        for monitor in self._monitors:
            device = monitor.device.identity
            if device not in self._with_new_order:
                monitor.receive_order(last[device].order, last[device].test_requests)
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
            contents: list[Any] = [
                self._client.getrange(
                    queue.device_key(monitor.device.identity), 0, queue.MAX_ORDER_BYTES
                )
                for monitor in self._monitors
            ]
        except Exception as problem:  # any error of the client: it reconnects by itself
            log.debug("can't check for orders: %s", problem)
            return
        for monitor, item in zip(self._monitors, contents, strict=True):
            device, text = monitor.device.identity, item.decode("ascii", "replace")
            if text and self._seen.get(device) != text:
                self._seen[device] = text
                order = self._read(device, text)
                if order is not None:
                    monitor.receive_order(*order)

    def _read(self, device: str, text: str) -> tuple[Order, int] | None:
        """Return the order in a key's content, and the number of requested tests.

        None for one that isn't the service's newest order for this device.
        """
        try:
            message = self._sealer.unseal(queue.ORDER, text)
            body = message.body
            order, test_requests = Order(str(body.get("order"))), int(body.get("asked", 0))
        except (queue.MessageRefused, ValueError, TypeError) as problem:
            log.warning("an order for device %s was refused: %s", device, problem)
            return None
        if body.get("device") != device or message.number < self._numbers.get(device, 0):
            log.warning("an order for device %s was refused: it is another's, or old", device)
            return None
        self._numbers[device] = message.number
        self._with_new_order.add(device)
        self._store(device, _Stored(order, test_requests, message.number))
        return order, test_requests

    def _file(self, device: str) -> Path:
        return self._folder / f"order-{device.replace('/', '_').replace(':', '-')}.json"

    def _store(self, device: str, stored: _Stored) -> None:
        file = self._file(device)
        try:
            draft = file.with_suffix(f".{os.getpid()}")
            draft.write_text(json.dumps(asdict(stored)))
            draft.replace(file)
        except OSError as problem:
            log.warning("can't write %s: %s", file, problem)

    def _last(self, device: str) -> _Stored:
        """Return the last order that a worker of the device took; a new device works."""
        file = self._file(device)
        try:
            stored = json.loads(file.read_text())
            return _Stored(
                Order(stored["order"]), int(stored["test_requests"]), int(stored["number"])
            )
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, TypeError) as problem:
            log.warning("can't read %s: %s", file, problem)
        return _Stored(Order.work, 0, 0)
