"""Hears what the service wants of this worker's devices: one look a second at a key per device,
from a thread of its own.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Sequence

from gonogo_workers import queue
from gonogo_workers.devices.keeper import Keeper, Order

log = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0


class Orders:
    """Tells the keepers. With the broker away nothing changes, and nobody can give orders."""

    def __init__(
        self, broker_url: str, keepers: Sequence[Keeper], every_s: float = LOOK_EVERY_S
    ) -> None:
        self._client = queue.redis_client(broker_url)
        self._keepers = tuple(keepers)
        self._every_s = every_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="orders", daemon=True)

    def start(self) -> None:
        """Look now, so that a worker of a drained device takes nothing at all, and then every
        second.
        """
        self._look()
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(1.0)
        self._client.close()

    def _run(self) -> None:
        while not self._stop.wait(self._every_s):
            self._look()

    def _look(self) -> None:
        try:
            found = self._client.mget(
                [queue.device_key(keeper.device.identity) for keeper in self._keepers]
            )
        except Exception as problem:  # whatever the client raises: it connects again by itself
            log.debug("can't look for orders: %s", problem)
            return
        for keeper, text in zip(self._keepers, found, strict=True):
            keeper.told(*read(text))


def read(text: bytes | str | None) -> tuple[Order, int]:
    """The order in a key's content, and how often a test was asked for. What is unreadable is an
    order to work, as no key is.
    """
    try:
        told = json.loads(text or b"{}")
        return Order(told.get("order", "work")), int(told.get("asked", 0))
    except (ValueError, TypeError, AttributeError):
        return Order.work, 0
