"""The orders for a device, and the tests of one that is bad: when they run, and what ends them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from gonogo.errors import InfrastructureError
from gonogo_workers.devices import locks
from gonogo_workers.devices.health import DeviceSick, Health
from gonogo_workers.devices.health_monitor import Order
from monitored_device import DEVICE, HOUR_S, NEVER, Lab, monitored_device, retester
from patience import WAIT_S
from running_service import until


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """A good device without a monitor yet."""
    with monitored_device(tmp_path, monkeypatch) as lab:
        yield lab


# Orders


@pytest.mark.parametrize("order", [Order.drain, Order.maintenance])
def test_a_device_takes_work_only_by_the_order_to_work(lab: Lab, order: Order) -> None:
    monitor = lab.monitor()
    monitor.receive_order(order, 0)
    assert (monitor.takes_work, lab.changes) == (False, 1)
    assert monitor.facts["order"] == order.value
    monitor.receive_order(order, 0)
    assert lab.changes == 1
    monitor.receive_order(Order.work, 0)
    assert (monitor.takes_work, lab.changes) == (True, 2)


def test_only_a_new_request_for_a_test_starts_one_and_none_in_maintenance(lab: Lab) -> None:
    monitor = lab.monitor()
    monitor.receive_order(Order.work, 5)  # those of before the worker's start
    monitor.receive_order(Order.work, 5)
    monitor.receive_order(Order.maintenance, 6)
    monitor.receive_order(Order.work, 6)
    assert retester() is None
    monitor.receive_order(Order.drain, 7)
    until(lambda: len(lab.reports) == 1)
    until(lambda: retester() is None)
    monitor.receive_order(Order.work, 8)  # another thread, since the first one has ended
    until(lambda: len(lab.reports) == 2)


# Tests of a device that is bad


def test_a_bad_device_is_tested_after_twice_as_long_each_time_up_to_an_hour(lab: Lab) -> None:
    lab.sick(waits=True, retest_s=1000)
    until(lambda: len(lab.tested_at) > 5)
    lab.gone.unlink()
    until(lambda: lab.reports[-1]["health"] == "good")
    assert lab.tested_at[:6] == [0, 1000, 3000, 6600, 10200, 13800]
    assert "it was bad before" in lab.reports[1]["reason"]
    until(lambda: retester() is None)  # a good device needs no further test


def test_a_request_shortens_the_wait_for_the_next_test(lab: Lab) -> None:
    lab.clock.free.clear()
    monitor = lab.sick(waits=True)
    thread = retester()
    assert thread is not None
    assert thread.daemon  # it must not keep a process alive
    lab.gone.unlink()
    monitor.receive_order(Order.work, 0)
    monitor.receive_order(Order.work, 1)
    until(lambda: len(lab.reports) == 2)
    assert lab.tested_at == [0, 0]
    assert monitor.takes_work


def test_a_stop_ends_the_wait_for_the_next_test(lab: Lab) -> None:
    monitor = lab.monitor(retest_s=HOUR_S)
    lab.gone.touch()
    with pytest.raises(DeviceSick):
        lab.check(monitor)
    assert retester() is not None
    monitor.stop()
    until(lambda: retester() is None)
    assert len(lab.reports) == 1


def test_a_worker_tests_what_an_earlier_one_left_as_bad_at_once(lab: Lab) -> None:
    first = lab.sick(retest_s=HOUR_S)
    first.stop()
    until(lambda: retester() is None)
    lab.tested_at.clear()
    began = lab.clock.now - 1000
    second = lab.monitor(waits=True)
    assert (second.health, second.reason) == (Health.bad, first.reason)
    lab.gone.unlink()
    second.begin()
    until(lambda: second.health is Health.good)
    assert lab.tested_at == [began]
    until(lambda: retester() is None)
    lab.monitor().begin()  # a good device is not tested
    assert retester() is None


def test_no_test_runs_in_maintenance_and_one_does_afterwards(lab: Lab) -> None:
    monitor = lab.sick(waits=True, retest_s=1000)
    monitor.receive_order(Order.maintenance, 0)
    reports, now = len(lab.reports), lab.clock.now
    until(lambda: lab.clock.now > now + 20 * HOUR_S)
    assert len(lab.reports) <= reports + 1  # one that ran when the order came
    lab.gone.unlink()
    monitor.receive_order(Order.work, 0)
    until(lambda: monitor.health is Health.good)


def test_a_device_that_can_t_be_locked_is_tested_later(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    monitor = lab.monitor(waits=True, retest_s=1000)
    lab.locks.write_text("a file where the folder should be")
    monitor.receive_order(Order.work, 0)
    monitor.receive_order(Order.work, 1)
    until(lambda: lab.clock.now > 1000 + 3 * HOUR_S)
    assert "device lab-1/troublesome:0 can't be tested: can't make the lock file" in caplog.text
    assert (lab.reports, monitor.health) == ([], Health.good)
    lab.locks.unlink()
    until(lambda: len(lab.reports) == 1)
    assert lab.reports[0]["health"] == "good"
    assert "routine" not in lab.reports[0]  # the service still waits for it


def test_a_test_waits_for_whoever_has_the_device_and_gives_it_back(lab: Lab) -> None:
    monitor = lab.monitor(waits=True, retest_s=1000)
    locked = locks.acquire(lab.locks, DEVICE.name, lambda: False, NEVER)
    monitor.receive_order(Order.work, 0)
    monitor.receive_order(Order.work, 1)
    thread = retester()
    assert thread is not None
    thread.join(0.1)  # time for a try
    locked.close()
    until(lambda: len(lab.reports) == 1)
    assert lab.tested_at == [0]
    until(lambda: retester() is None)
    lab.check(monitor)  # the lock is free


def test_a_stop_ends_a_canary_that_runs_whose_child_is_in_the_lock_file(lab: Lab) -> None:
    monitor = lab.monitor("hang")
    problems: list[Exception] = []

    def check() -> None:
        try:
            lab.check(monitor)
        except InfrastructureError as problem:
            problems.append(problem)

    thread = threading.Thread(target=check, daemon=True)  # if no stop ends it, the test still fails
    thread.start()
    path = locks.lock_path(lab.locks, DEVICE.name)

    def user() -> dict[str, Any]:
        line = path.read_text().split("\n")[0] if path.exists() else ""
        return dict(json.loads(line)) if line else {}  # made, and not yet written

    until(lambda: "group" in user())
    child = psutil.Process(user()["group"])
    monitor.stop()
    thread.join(WAIT_S)
    assert not child.is_running()
    (problem,) = problems
    assert str(problem) == "stopped while the device was tested"
    assert (lab.reports, monitor.health) == ([], Health.good)
