"""The health of a device: when its canary runs, what each result changes, and when it is tested
again. The canary is a real child; only the time of the waits is made up."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil
import pytest

from gonogo.errors import InfrastructureError
from gonogo.judging.inputs import generate, quantise
from gonogo.judging.judging import judge
from gonogo.spec.executors import EMULATOR
from gonogo.spec.test_spec import TestSpec
from gonogo_settings import Settings
from gonogo_workers.devices import health, health_monitor, locks
from gonogo_workers.devices.discovery import Device
from gonogo_workers.devices.health import DeviceSick, Health
from gonogo_workers.devices.health_monitor import Canary, DeviceHealthMonitor, Order, canary_of
from gonogo_workers.executors.builds_file import BuildsFile, ResolvedBuild
from gonogo_workers.executors.kernel_host import KernelHost
from gonogo_workers.executors.registry import ExecutorSpec, built_in
from running_service import until

PLUGINS = Path(__file__).parents[2] / "plugins"
SPEC = ExecutorSpec("troublesome", "troublesome", "Troublesome", paths=(str(PLUGINS),))
DEVICE = Device("troublesome", 0, "wormhole", "n150", "lab-1")
NEVER = threading.Event()
HOUR_S = 3600.0


class Clock(threading.Condition):
    """A clock, and waits that end at once with the clock at the end of their time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.free = threading.Event()
        """Waits end while it is set."""
        self.free.set()

    def monotonic(self) -> float:
        return self.now

    def wait(self, timeout: float | None = None) -> bool:
        if not self.free.is_set():
            return super().wait(60)
        assert timeout is not None
        self.now += timeout
        return False


class Lab:
    """A device that can be taken away, with the monitor of its health."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self.folder, self.clock = folder, clock
        self.gone, self.locks = folder / "gone", folder / "locks"
        self.reports: list[Mapping[str, Any]] = []
        self.tested_at: list[float] = []
        self.changes = 0
        self.stages: list[str] = []
        self.monitors: list[DeviceHealthMonitor] = []

    def _report(self, report: Mapping[str, Any]) -> None:
        self.tested_at.append(self.clock.now - 1000)
        self.reports.append(report)

    def _changed(self) -> None:
        self.changes += 1

    def canary(self, build: str = "right") -> Canary:
        return Canary(ResolvedBuild(SPEC, {"TROUBLE_GONE": str(self.gone)}), build)

    def monitor(
        self, build: str | None = "right", *, waits: bool = False, **settings: Any
    ) -> DeviceHealthMonitor:
        """Return a monitor; waits: its waits for the next test take made-up time."""
        canary = None if build is None else self.canary(build)
        monitor = DeviceHealthMonitor(
            DEVICE,
            self.locks,
            canary,
            Settings(**settings),
            report=self._report,
            changed=self._changed,
        )
        if waits:
            monitor._wake = self.clock
        self.monitors.append(monitor)
        return monitor

    def check(self, monitor: DeviceHealthMonitor, why: str = "of a test") -> None:
        """Run the canary as a chunk does, with the device's lock."""
        held = locks.acquire(self.locks, DEVICE.name, lambda: False, NEVER)
        try:
            monitor.check(held, why, tell=self.stages.append)
        finally:
            held.close()

    def sick(self, *, waits: bool = False, **settings: Any) -> DeviceHealthMonitor:
        """Return the monitor of a device that has failed its canary."""
        monitor = self.monitor(waits=waits, **settings)
        self.gone.touch()
        with pytest.raises(DeviceSick, match=r"is bad: re-open: the canary .*no such"):
            self.check(monitor)
        return monitor

    @property
    def remembered(self) -> Path:
        """The file that outlives the worker."""
        return self.locks / "troublesome-0.health"


def retester() -> threading.Thread | None:
    """The thread that tests the device again."""
    name = f"retest-{DEVICE.name}"
    return next((thread for thread in threading.enumerate() if thread.name == name), None)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The time of the monitor."""
    clock = Clock()
    monkeypatch.setattr(health_monitor, "time", clock)
    return clock


@pytest.fixture
def lab(tmp_path: Path, clock: Clock) -> Iterator[Lab]:
    """A device; afterwards no re-test may run."""
    lab = Lab(tmp_path, clock)
    yield lab
    for monitor in lab.monitors:
        monitor.stop()
    if (thread := retester()) is not None:
        thread.join(60)
        assert not thread.is_alive()


# The canary itself


def test_a_canary_runs_with_the_same_numbers_on_every_host(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts: list[KernelHost] = []
    canary = lab.canary()
    digests = health.canary(canary.resolved, canary.build, started=hosts.append)
    test = TestSpec.parse(dict(health.CANARY))
    raw = generate(test, 0)
    given = quantise(test, raw)
    (host,) = hosts
    assert not host.alive
    assert not psutil.pid_exists(host.pid)
    assert not host.folder.exists()
    monkeypatch.syspath_prepend(str(PLUGINS))
    outputs = import_module("troublesome").reference(test.canonical(), given)
    judged = judge(test, raw, given, outputs, arithmetic=None).to_json()["outputs"]
    assert digests == {name: judged[name]["digest"] for name in ("dx", "dgamma", "dbeta")}


def test_a_canary_whose_numbers_nothing_explains_is_sick(lab: Lab) -> None:
    with pytest.raises(DeviceSick, match="the canary's numbers are"):
        health.canary(lab.canary("nan").resolved, "nan")


def test_a_canary_says_the_last_words_of_its_child(tmp_path: Path) -> None:
    missing = ExecutorSpec("x", "x", "X", python=str(tmp_path / "python"))
    with pytest.raises(DeviceSick, match="can't start"):
        health.canary(ResolvedBuild(missing), "right")


def test_an_executor_has_the_canary_of_the_builds_file_else_its_usual_one() -> None:
    assert canary_of(SPEC, BuildsFile(), DEVICE) is None
    named = canary_of(SPEC, BuildsFile({"troublesome": {"canary": "right"}}), DEVICE)
    assert named is not None
    assert named.build == "right"
    emulator = Device("emulator", 0, "wormhole", "n150", "lab-1")
    usual = canary_of(built_in(EMULATOR), BuildsFile(), emulator)
    assert usual is not None
    assert usual.build == health.CANARY_BUILDS[EMULATOR]


# When a chunk waits for a canary


def test_a_canary_is_due_after_its_time(lab: Lab) -> None:
    monitor = lab.monitor(canary_every_s=100)
    lab.clock.now += 99.5
    assert monitor.due() is None
    lab.clock.now += 0.5
    assert monitor.due() == "100 s had passed"
    lab.check(monitor)
    assert monitor.due() is None
    never = lab.monitor(canary_every_s=0)
    lab.clock.now += 1e9
    assert never.due() is None


def test_a_canary_is_due_after_so_many_chunks(lab: Lab) -> None:
    monitor = lab.monitor(canary_every_jobs=2)
    for _ in range(2):
        monitor.ran()
        assert monitor.due() is None
        monitor.ran()
        assert monitor.due() == "2 chunks had run"
        lab.check(monitor)
        assert monitor.due() is None


def test_a_doubt_lasts_until_a_canary_has_passed(lab: Lab) -> None:
    for build in ("right", None):
        monitor = lab.monitor(build)
        monitor.doubt("of a crash")
        assert monitor.due() == "of a crash"
        lab.check(monitor)
        assert monitor.due() is None


# What a canary changes


def test_a_canary_of_a_good_device_is_routine_unless_somebody_waits_for_it(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    monitor = lab.monitor()
    lab.check(monitor)
    (report,) = lab.reports
    assert report["routine"] is True
    assert (report["device"], report["health"]) == ("lab-1/troublesome:0", "good")
    assert report["reason"] == "the canary passed after re-open; it was tested because of a test"
    evidence = report["evidence"]
    assert (evidence["executor"], evidence["canary"]) == ("troublesome", "right")
    assert set(evidence["digests"]) == {"dx", "dgamma", "dbeta"}
    assert evidence["steps"] == [{"rung": "re-open", "outcome": "the canary passed", "output": ""}]
    assert lab.stages == ["re-open"]
    assert (lab.changes, monitor.reason) == (0, None)
    monitor.receive_order(Order.work, 1)
    monitor.receive_order(Order.work, 2)
    until(lambda: len(lab.reports) == 2)
    assert "routine" not in lab.reports[1]
    assert lab.reports[1]["reason"].endswith("it was tested because the service asked for it")
    until(lambda: retester() is None)
    lab.check(monitor)
    assert lab.reports[2]["routine"] is True
    assert lab.changes == 0
    assert "can't write" not in caplog.text


def test_a_device_that_a_reset_mends_is_reported_with_its_steps(lab: Lab) -> None:
    lab.gone.touch()
    lab.check(lab.monitor(reset_device=f"rm {lab.gone}"))
    (report,) = lab.reports
    assert "routine" not in report
    assert [step["rung"] for step in report["evidence"]["steps"]] == ["re-open", "reset_device"]
    assert lab.changes == 0  # it took work before, and does so now


def test_a_sick_device_takes_no_work_until_its_canary_passes(lab: Lab) -> None:
    monitor = lab.monitor(retest_s=HOUR_S)
    assert monitor.takes_work
    lab.gone.touch()
    with pytest.raises(DeviceSick):
        lab.check(monitor)
    assert not monitor.takes_work
    assert (monitor.health, lab.changes) == (Health.bad, 1)
    (report,) = lab.reports
    assert (report["health"], report["reason"]) == ("bad", monitor.reason)
    assert "routine" not in report
    assert monitor.facts["health"] == "bad"
    assert json.loads(lab.remembered.read_text()) == {"health": "bad", "reason": monitor.reason}
    lab.gone.unlink()
    lab.check(monitor)
    assert monitor.takes_work
    assert (lab.changes, lab.reports[1]["health"]) == (2, "good")
    assert "routine" not in lab.reports[1]
    assert list(lab.locks.glob("*.health*")) == []


def test_a_device_without_a_canary_stays_as_it_is(lab: Lab) -> None:
    lab.sick(retest_s=HOUR_S).stop()
    until(lambda: retester() is None)
    monitor = lab.monitor(None)
    assert (monitor.health, monitor.reason) == (Health.good, None)
    lab.check(monitor)
    monitor.receive_order(Order.work, 0)
    monitor.receive_order(Order.work, 1)
    assert len(lab.reports) == 1
    assert retester() is None


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
    held = locks.acquire(lab.locks, DEVICE.name, lambda: False, NEVER)
    monitor.receive_order(Order.work, 0)
    monitor.receive_order(Order.work, 1)
    thread = retester()
    assert thread is not None
    thread.join(0.1)  # time for a try
    held.close()
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
        return dict(json.loads(path.read_text().split("\n")[0])) if path.exists() else {}

    until(lambda: "group" in user())
    child = psutil.Process(user()["group"])
    monitor.stop()
    thread.join(60)
    assert not child.is_running()
    (problem,) = problems
    assert str(problem) == "stopped while the device was tested"
    assert (lab.reports, monitor.health) == ([], Health.good)


def test_a_memory_that_can_t_be_read_is_as_good_as_none(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    lab.locks.mkdir()
    for text in ("", "[]", "{}", '{"health": "great", "reason": ""}'):
        lab.remembered.write_text(text)
        assert lab.monitor().health is Health.good
    lab.remembered.unlink()
    lab.remembered.mkdir()
    with caplog.at_level(logging.WARNING):
        lab.sick(retest_s=HOUR_S)  # what can't be written changes nothing else
    assert "can't write" in caplog.text
    lab.remembered.rmdir()
