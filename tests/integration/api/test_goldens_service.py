"""Canaries compared bit for bit: goldens are stored and audited; a device that differs alone is
suspected."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, func, select

import audit_log
import stored_jobs
from gonogo_service.devices import api as device_api
from gonogo_service.devices import changes, goldens, heartbeats
from gonogo_service.devices import store as devices
from gonogo_service.devices.changes import MAX_OF_DEVICE
from gonogo_service.devices.goldens import ReportOutcome
from gonogo_service.devices.model import CanaryRow, GoldenRow
from gonogo_service.kit.audit import AuditRow
from gonogo_service.kit.database.engine import make_engine, reading, session

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


class Fleet:
    """Devices whose canary reports are stored as ingest does, one minute apart."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.now = engine, NOW

    def sing(
        self, name: str, bits: str, *, host: str = "lab-1", minutes: int = 1, **changes: Any
    ) -> ReportOutcome:
        """Store a heartbeat of a device and a report of its canary; return the report's outcome."""
        self.now += timedelta(minutes=minutes)
        device = f"{host}/{name}"
        facts = stored_jobs.facts_of(host, name, queue="q", serial="1")
        digests = {"dgamma": "77", "dx": bits}
        evidence = {"executor": "ttnn", "canary": "ttnn", "digests": digests, **changes}
        report = {"device": device, "health": "good", "reason": "it passed", "evidence": evidence}
        report |= {"routine": True, "worker": "w"}
        with session(self.engine) as current:
            heartbeats.heard(current, facts, worker=f"{device}/1", attempt=None, now=self.now)
            return goldens.report(current, report, now=self.now)

    def patch(self, name: str, health: str) -> None:
        """Change a device's health by hand."""
        device, change = self.look(name)["id"], {"health": health, "reason": "known"}
        with session(self.engine) as current:
            changes.patch(current, device, change, actor="me", now=self.now)

    def look(self, name: str, host: str = "lab-1") -> dict[str, Any]:
        """Return a device with its history."""
        with reading(self.engine) as current:
            known = {device.device: device.id for device in devices.list_(current, now=self.now)}
            shown = device_api.shown(current, known[f"{host}/{name}"], now=self.now)
            return shown.model_dump(mode="json")

    def health(self, names: str = "abc") -> str:
        """Return the first letters of the health of these devices."""
        return "".join(self.look(name)["health"][0] for name in names)

    def audited(self, host: str = "lab-1") -> list[str]:
        """Return the audited actions on the golden of a host, oldest first."""
        with reading(self.engine) as current:
            entries = audit_log.entries(current, subject=f"{host}/ttnn/ttnn/wormhole")
        return [entry.action.removeprefix("golden.") for entry in reversed(entries)]


@pytest.fixture
def fleet(migrated_sqlite_url: str) -> Iterator[Fleet]:
    engine = make_engine(migrated_sqlite_url)
    yield Fleet(engine)
    engine.dispose()


def test_a_golden_is_learned_confirmed_and_a_device_that_differs_alone_is_suspected(
    fleet: Fleet,
) -> None:
    fleet.sing("a", "11")
    assert fleet.look("a")["canary"]["golden"] == "first"
    fleet.sing("b", "11")
    assert fleet.look("a")["canary"]["golden"] == "golden"
    strayed = fleet.sing("c", "22")
    assert (strayed.suspected, strayed.canary_requested) == ({}, ("lab-1/a", "lab-1/b"))
    strange = fleet.look("c")
    differ = "the bits of dx differ from the golden ones of lab-1/a and lab-1/b"
    assert (strange["health"], differ in strange["history"][0]["reason"]) == ("good", True)
    witnessed = fleet.sing("a", "11")
    assert set(witnessed.suspected) == {"lab-1/c"}
    sick = fleet.look("c")
    assert (sick["health"], sick["canary"]["golden"]) == ("suspect", "differs")
    assert "those of lab-1/a on the same host" in sick["reason"]
    assert sick["history"][0]["evidence"]["digest"] == "dgamma=77 dx=22"
    assert sick["health_at"] == sick["history"][0]["at"]
    assert fleet.health() == "ggs"
    assert fleet.audited() == ["learned", "confirmed"]


def test_a_person_s_word_stands_until_the_bits_change_again(fleet: Fleet) -> None:
    for name, bits in (("a", "11"), ("b", "11"), ("c", "22"), ("a", "11")):
        fleet.sing(name, bits)
    fleet.patch("c", "good")
    fleet.sing("c", "22")
    assert not fleet.sing("a", "11").suspected
    assert fleet.look("c")["health"] == "good"
    fleet.sing("c", "11")
    fleet.sing("c", "33")
    assert set(fleet.sing("b", "11").suspected) == {"lab-1/c"}
    fleet.sing("c", "11")
    assert fleet.look("c")["health"] == "suspect"  # a canary that is golden again heals nothing


def test_a_change_on_all_devices_is_a_new_golden_and_lifts_what_it_raised(fleet: Fleet) -> None:
    for name, bits in (("a", "11"), ("b", "11"), ("a", "22"), ("b", "11")):
        fleet.sing(name, bits)
    assert fleet.look("a")["health"] == "suspect"
    assert fleet.sing("b", "22").excused == ("lab-1/a",)
    assert fleet.health("ab") == "gg"
    assert "the build has changed" in fleet.look("a")["reason"]
    assert {fleet.look(name)["canary"]["golden"] for name in "ab"} == {"golden"}
    assert fleet.audited() == ["learned", "confirmed", "replaced"]


def test_the_only_device_of_its_host_is_never_suspected(fleet: Fleet) -> None:
    fleet.sing("a", "11")
    assert fleet.sing("a", "22").suspected == {}
    assert fleet.audited() == ["learned", "replaced"]
    fleet.sing("b", "22")
    for _ in range(3):
        assert fleet.sing("a", "33", host="lab-2") == ReportOutcome(False)
        assert not fleet.sing("b", "22").suspected
    alone = fleet.look("a", "lab-2")
    assert (alone["health"], alone["canary"]["golden"]) == ("good", "first")
    assert len(alone["history"]) == 2  # the announcement, and its bits once


def test_one_host_neither_heals_another_s_device_nor_sets_its_golden_bits(fleet: Fleet) -> None:
    """A hostile host spoke first, with two devices, and then gave a sick device's bits."""
    for name in "xy":
        fleet.sing(name, "66", host="lab-2")
    for name, bits in (("a", "11"), ("b", "11"), ("c", "22"), ("a", "11")):
        fleet.sing(name, bits)
    assert (fleet.look("c")["health"], fleet.look("a")["canary"]["golden"]) == ("suspect", "golden")
    assert fleet.sing("x", "22", host="lab-2").excused == ()
    fleet.sing("y", "22", host="lab-2")
    fleet.sing("a", "11")
    assert fleet.health() == "ggs"
    assert fleet.audited() == ["learned", "confirmed"]
    assert fleet.audited("lab-2") == ["learned", "confirmed", "replaced"]


def test_a_device_has_few_canaries_and_a_host_changes_its_golden_bits_seldom(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(goldens, "MAX_CANARIES", 4)
    for number in range(10):
        fleet.sing("a", "11", canary=f"build-{number}")
    for number in range(20):
        fleet.sing("a", str(number))
    with session(fleet.engine) as current:
        goldens.forget(current)
        builds = list(current.scalars(select(CanaryRow.build).order_by(CanaryRow.at)))
        assert builds == ["build-7", "build-8", "build-9", "ttnn"]
        assert set(current.scalars(select(GoldenRow.build))) == {*builds}
        assert current.scalar(select(func.count()).select_from(AuditRow)) == MAX_OF_DEVICE - 1
        assert current.scalar(select(GoldenRow.digest).where(GoldenRow.build == "ttnn")) != ""
    assert len(fleet.look("a")["history"]) == MAX_OF_DEVICE


def test_builds_are_apart_and_who_is_not_there_is_not_waited_for(fleet: Fleet) -> None:
    fleet.sing("a", "11")
    fleet.sing("b", "11")
    fleet.sing("b", "99", canary="another")
    fleet.sing("gone", "11")
    fleet.sing("a", "11", minutes=10)
    with session(fleet.engine) as current:
        assert heartbeats.went_offline(current, now=fleet.now) == 2
    fleet.sing("b", "22")
    fleet.sing("a", "22")
    assert fleet.audited()[-1] == "replaced"


def test_a_report_of_a_device_in_maintenance_counts_for_nothing(fleet: Fleet) -> None:
    fleet.sing("a", "11")
    fleet.sing("b", "11")
    fleet.patch("b", "maintenance")
    fleet.sing("b", "22")
    assert not fleet.sing("a", "11").suspected
    assert fleet.look("b")["health"] == "maintenance"
