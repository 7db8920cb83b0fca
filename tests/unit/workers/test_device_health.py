"""The health of a device: when its canary runs, and what each result changes. The canary is a real
child; only the time of the waits is made up."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import psutil
import pytest

from gonogo.judging.inputs import generate, quantise
from gonogo.judging.judging import judge
from gonogo.spec.executors import EMULATOR
from gonogo.spec.test_spec import TestSpec
from gonogo_workers.devices import health
from gonogo_workers.devices.discovery import Device
from gonogo_workers.devices.health import DeviceSick, Health
from gonogo_workers.devices.health_monitor import Canary, Order, canaries, canary_of
from gonogo_workers.executors.builds_file import BuildsFile, ResolvedBuild, resolve_build
from gonogo_workers.executors.kernel_host import KernelHost
from gonogo_workers.executors.registry import ExecutorSpec, built_in
from monitored_device import DEVICE, HOUR_S, PLUGINS, SPEC, Lab, monitored_device, retester
from running_service import until


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """A good device without a monitor yet."""
    with monitored_device(tmp_path, monkeypatch) as lab:
        yield lab


# The canary itself


def test_a_canary_runs_with_the_same_numbers_on_every_host(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts: list[KernelHost] = []
    canary = lab.canary()
    run = health.canary(canary.resolved, canary.build, on_wormhole=False, started=hosts.append)
    test = TestSpec.parse(dict(health.CANARIES[0]))
    raw = generate(test, 0)
    given = quantise(test, raw)
    (host,) = hosts
    assert not host.alive
    assert not psutil.pid_exists(host.pid)
    assert not host.folder.exists()
    monkeypatch.syspath_prepend(str(PLUGINS))
    outputs = import_module("troublesome").reference(test.canonical(), given)
    judged = judge(test, raw, given, outputs, arithmetic=None).to_json()["outputs"]
    assert run.digests == {name: judged[name]["digest"] for name in ("dx", "dgamma", "dbeta")}
    assert run.replay is None  # it declares no arithmetic, and is no Wormhole


def test_a_canary_whose_numbers_nothing_explains_is_sick(lab: Lab) -> None:
    with pytest.raises(DeviceSick, match="the canary's numbers are"):
        health.canary(lab.canary("nan").resolved, "nan", on_wormhole=False)


def test_a_canary_says_the_last_words_of_its_child(tmp_path: Path) -> None:
    missing = ExecutorSpec("x", "x", "X", python=str(tmp_path / "python"))
    with pytest.raises(DeviceSick, match="can't start"):
        health.canary(ResolvedBuild(missing), "right", on_wormhole=False)


def test_the_emulator_s_canary_is_replayed_to_the_bit() -> None:
    resolved = resolve_build(built_in(EMULATOR), "correct", BuildsFile())
    replay = health.canary(resolved, "correct", on_wormhole=True).replay
    assert replay is not None
    assert (replay.arithmetic, replay.distance) == ("tt-train", 0.0)
    assert replay.equal == replay.elements > 3 * 32 * 128


def test_a_card_that_no_program_replays_accuses_nobody(lab: Lab) -> None:
    """Its numbers are right by another arithmetic: float64, rounded once."""
    monitor = lab.monitor()
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
        monitor.doubted = "of a crash"
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
