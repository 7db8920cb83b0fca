"""A device keeps its order: whoever deletes or repeats orders puts none back to work."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from gonogo_workers import queue
from gonogo_workers.devices.health_monitor import Order
from gonogo_workers.devices.orders import Orders
from gonogo_workers.messages.identity import Identity
from gonogo_workers.messages.sealing import Sealer
from gonogo_workers.queue import PrivateKey

SERVICE_KEY = PrivateKey.of(b"s" * 32)
DEVICE = "lab-1/wormhole:0"
NOWHERE = "redis://127.0.0.1:1/0"


class Monitor:
    """The part of a device's monitor that orders reach."""

    def __init__(self) -> None:
        self.device = self
        self.identity = DEVICE
        self.orders: list[tuple[Order, int]] = []

    def receive_order(self, order: Order, test_requests: int) -> None:
        self.orders.append((order, test_requests))


def started(folder: Path) -> tuple[Orders, Monitor]:
    """Return the orders of a worker that starts while the broker has none."""
    Identity("host", "lab-1", PrivateKey.of(b"h" * 32), SERVICE_KEY.public).save(folder)
    monitor: Any = Monitor()
    orders = Orders(NOWHERE, Sealer(folder), [monitor], folder)
    orders.start()
    return orders, monitor


def sealed(order: str, number: int) -> str:
    body = {"device": DEVICE, "order": order, "asked": 2}
    return queue.seal(SERVICE_KEY, queue.ORDER, body, number)


def test_a_drained_device_stays_drained_when_its_worker_starts_again(tmp_path: Path) -> None:
    now = int(time.time() * 1e6)
    before = sealed("work", now - 2)
    first, monitor = started(tmp_path)
    assert monitor.orders == [(Order.work, 0)]
    assert first._read(DEVICE, sealed("drain", now - 1)) == (Order.drain, 2)
    first.close()
    second, monitor = started(tmp_path)
    assert monitor.orders == [(Order.drain, 2)]
    assert second._read(DEVICE, before) is None
    assert second._read(DEVICE, sealed("work", now)) == (Order.work, 2)
    second.close()
    third, monitor = started(tmp_path)
    assert monitor.orders == [(Order.work, 2)]
    third.close()


def test_a_file_that_can_t_be_read_is_as_good_as_none(tmp_path: Path) -> None:
    for content in ("", "[]", '{"order": "fly", "number": 1, "test_requests": 0}'):
        (tmp_path / "order-lab-1_wormhole-0.json").write_text(content)
        orders, monitor = started(tmp_path)
        assert monitor.orders == [(Order.work, 0)]
        orders.close()
