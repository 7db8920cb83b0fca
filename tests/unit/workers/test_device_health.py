"""The health of a device: when its canary runs, what each result and order changes, and how a bad
device is tested again. The canary is a real child; only the time of the waits is made up."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from gonogo.errors import InfrastructureError
from gonogo.spec.executors import EMULATOR
from gonogo_workers.devices import health, locks
from gonogo_workers.devices.discovery import Device
from gonogo_workers.devices.health import DeviceSick, Health
from gonogo_workers.devices.health_monitor import Canary, Order, canaries, canary_of
from gonogo_workers.executors.builds_file import BuildsFile, ResolvedBuild, resolve_build
from gonogo_workers.executors.registry import ExecutorSpec, built_in
from monitored_device import DEVICE, HOUR_S, NEVER, SPEC, Lab, monitored_device, retester
from patience import WAIT_S
from running_service import until


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """A good device without a monitor yet."""
    with monitored_device(tmp_path, monkeypatch) as lab:
        yield lab


def test_a_canary_that_nothing_explains_or_that_cannot_start_is_sick(
    lab: Lab, tmp_path: Path
) -> None:
    missing = ResolvedBuild(ExecutorSpec("x", "x", "X", python=str(tmp_path / "python")))
    for resolved, build, words in (
        (lab.canary("nan").resolved, "nan", "the canary's numbers are"),
        (missing, "right", "can't start"),
    ):
        with pytest.raises(DeviceSick, match=words):
            health.canary(resolved, build, on_wormhole=False)


def test_the_emulator_s_canary_is_replayed_to_the_bit() -> None:
    resolved = resolve_build(built_in(EMULATOR), "correct", BuildsFile())
    replay = health.canary(resolved, "correct", on_wormhole=True).replay
    assert replay is not None
    assert (replay.arithmetic, replay.distance) == ("tt-train", 0.0)
    assert replay.equal == replay.elements > 3 * 32 * 128


def test_a_card_that_no_program_replays_accuses_nobody(lab: Lab) -> None:
    monitor = lab.monitor()
    # its numbers are right by another arithmetic: float64, rounded once
    monitor.canary = Canary(replace(lab.canary().resolved, arithmetic="tt-train"), "right")
    assert monitor.unreplayed == ""
    lab.check(monitor)
    assert monitor.health is Health.good
    assert "the card isn't known well enough: " in monitor.unreplayed
    assert "of known-right kernels to the bit" in lab.reports[-1]["evidence"]["replay"]
    assert lab.monitor().unreplayed == monitor.unreplayed  # after a restart, too
    ((name, replay, unreplayed),) = canaries(lab.locks)
    assert (name, unreplayed) == ("troublesome-0", monitor.unreplayed)
    assert replay in unreplayed


def test_an_executor_has_the_canary_of_the_builds_file_else_its_usual_one() -> None:
    assert canary_of(SPEC, BuildsFile(), DEVICE) is None
    emulator = Device("emulator", 0, "wormhole", "n150", "lab-1")
    named = BuildsFile({"troublesome": {"canary": "right"}})
    for executor, file, device, build in (
        (SPEC, named, DEVICE, "right"),
        (built_in(EMULATOR), BuildsFile(), emulator, health.CANARY_BUILDS[EMULATOR]),
    ):
        canary = canary_of(executor, file, device)
        assert canary is not None
        assert canary.build == build


def test_a_canary_is_due_after_its_time_and_while_there_is_a_doubt(lab: Lab) -> None:
    monitor, never = lab.monitor(canary_every_s=100), lab.monitor(canary_every_s=0)
    lab.clock.now += 99.5
    assert monitor.due() is None
    lab.clock.now += 0.5
    assert monitor.due() == "100 s had passed"
    lab.check(monitor)
    assert monitor.due() is None
    lab.clock.now += 1e9
    assert never.due() is None
    for build in ("right", None):
        monitor = lab.monitor(build)
        monitor.doubted = "of a crash"
        assert monitor.due() == "of a crash"
        lab.check(monitor)
        assert monitor.due() is None


def test_a_canary_of_a_good_device_is_routine_unless_somebody_waits_for_it(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    monitor = lab.monitor()
    lab.check(monitor)
    (report,) = lab.reports
    assert (report["routine"], report["health"]) == (True, "good")
    assert report["reason"] == "the canary passed after re-open; it was tested because of a test"
    evidence = report["evidence"]
    assert (evidence["executor"], evidence["canary"]) == ("troublesome", "right")
    assert evidence["steps"] == [{"rung": "re-open", "outcome": "the canary passed", "output": ""}]
    assert (lab.stages, lab.changes, monitor.reason) == (["re-open"], 0, None)
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


def test_a_stop_ends_the_wait_and_the_next_worker_tests_at_once_what_was_left_as_bad(
    lab: Lab,
) -> None:
    first = lab.sick(retest_s=HOUR_S)
    first.stop()
    until(lambda: retester() is None)
    assert len(lab.reports) == 1
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
    problems: list[str] = []

    def check() -> None:
        try:
            lab.check(monitor)
        except InfrastructureError as problem:
            problems.append(str(problem))

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
    assert problems == ["stopped while the device was tested"]
    assert (lab.reports, monitor.health) == ([], Health.good)
