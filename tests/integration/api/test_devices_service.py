"""Devices: announced, changed, suspected and drained; every change has a row in their history."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

import audit_log
import stored_jobs
import unchecked
from api import Api
from gonogo_service.devices import api as device_api
from gonogo_service.devices import changes, heartbeats, outcomes, workers
from gonogo_service.devices import store as devices
from gonogo_service.devices.model import DeviceRow
from gonogo_service.jobs import chunks, dispatching
from gonogo_service.jobs import store as jobs
from gonogo_service.kit.database.engine import make_engine, reading, session
from gonogo_service.kit.database.states import DeviceHealth
from gonogo_service.kit.outbox import outbox
from job_flow import new_job, row
from records import pick

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
FACTS = stored_jobs.facts_of("lab-1", "wormhole:0", health="good", reason=None)


@pytest.fixture
def engine(migrated_sqlite_url: str) -> Iterator[Engine]:
    database = make_engine(migrated_sqlite_url)
    yield database
    database.dispose()


def announce(engine: Engine, now: datetime = NOW, **changes: Any) -> dict[str, Any]:
    """Store a heartbeat of the device's worker; return the device with its history."""
    facts = {**FACTS, **changes}
    with session(engine) as current:
        heartbeats.heard(current, facts, worker="worker-1", attempt=None, now=now)
        place = {"queues": [facts["queue"]], "device": facts["device"]}
        workers.heard(current, "worker-1", **place, attempt=None, now=now)
    return look(engine, now)


def look(engine: Engine, now: datetime = NOW) -> dict[str, Any]:
    with reading(engine) as current:
        (listed,) = devices.list_(current, now=now)
        return device_api.shown(current, listed.id, now=now).model_dump(mode="json")


def orders(current: Session) -> dict[str, Any]:
    return devices.orders(current, host=FACTS["host"])


def drain(current: Session, host: str, drained: bool) -> list[str] | None:
    return changes.drain_all(current, DeviceRow.host == host, drained, actor="me", reason="moving")


def patch(engine: Engine, device: str, health: str) -> None:
    with session(engine) as current:
        changes.patch(current, device, {"health": health, "reason": "looked at"}, actor="me")


def report(engine: Engine, health: str, reason: str = "its canary", **evidence: Any) -> bool:
    """Store a worker's report; return whether the device's health changed."""
    body = {"device": FACTS["device"], "health": health, "reason": reason, "worker": "worker-1"}
    with session(engine) as current:
        return heartbeats.report(current, {**body, "evidence": evidence}, now=NOW)


def test_a_device_is_known_by_its_heartbeats(engine: Engine) -> None:
    device = announce(engine)
    names = ("device", "serial", "pci", "firmware", "driver", "board")
    assert pick(device, *names) == pick(FACTS, *names)
    assert pick(device, "state", "health", "drained") == ("idle", "good", False)
    assert look(engine, NOW + timedelta(minutes=5))["state"] == "offline"
    other = {"firmware": {"fw_bundle_version": "19.0.0.0"}, "queue": "gtest.wormhole.n150"}
    flashed = announce(engine, **other)
    assert pick(flashed, "firmware", "queues") == (other["firmware"], [other["queue"]])
    assert [entry["what"] for entry in flashed["history"]] == ["firmware", "health"]


def test_every_change_of_health_has_a_row_an_audit_and_a_letter(engine: Engine) -> None:
    device = announce(engine)
    assert report(engine, "bad", "tt-smi did not help", steps=[{"rung": "re-open"}])
    assert not report(engine, "bad", "again")
    assert report(engine, "good", "well again", canary="ttnn", digests={"dx": "ab"})
    recovered = look(engine)
    changed = [pick(change, "before", "after") for change in recovered["history"]]
    assert changed == [("bad", "good"), ("bad", "bad"), ("good", "bad"), (None, "good")]
    assert recovered["history"][2]["evidence"]["steps"] == [{"rung": "re-open"}]
    canary = pick(recovered["canary"], "build", "arch", "outputs")
    assert canary == ("ttnn", "wormhole", {"dx": "ab"})
    assert recovered["health_at"] == "2026-01-31T12:00:00Z"
    with reading(engine) as current:
        entries = audit_log.entries(current, subject=device["id"])
        messages = outbox.due(current, topics=["device.health_changed"], now=NOW)
    assert [entry.detail["after"] for entry in entries] == ["good", "bad"]
    assert {entry.actor for entry in entries} == {"worker:worker-1"}
    assert [message.payload["after"] for message in messages] == ["bad", "good"]


def test_in_maintenance_only_a_person_s_word_counts(engine: Engine) -> None:
    device = announce(engine)
    patch(engine, device["id"], "maintenance")
    assert not report(engine, "bad")
    assert look(engine)["health"] == "maintenance"
    assert look(engine)["history"][0]["evidence"]["reported"] == "bad"
    patch(engine, device["id"], "good")
    with session(engine) as current:
        assert orders(current) == {FACTS["device"]: {"order": "work", "canaries": 1}}
    assert look(engine)["health"] == "good"


def test_a_bad_or_drained_device_counts_as_no_worker(engine: Engine) -> None:
    device = announce(engine)

    def served() -> int:
        with reading(engine) as current:
            return workers.live(current, now=NOW)[FACTS["queue"]]

    assert served() == 1
    report(engine, "bad")
    assert served() == 0
    report(engine, "good")
    with session(engine) as current:
        assert drain(current, "lab-1", True) == [device["id"]]
        assert drain(current, "lab-1", True) == []
        assert drain(current, "lab-2", True) is None
        assert orders(current)[FACTS["device"]]["order"] == "drain"
    assert served() == 0
    with session(engine) as current:
        drain(current, "lab-1", False)
    assert served() == 1
    assert [change["what"] for change in look(engine)["history"][:2]] == ["drain", "drain"]


def test_going_offline_and_coming_back_are_noted_once(engine: Engine) -> None:
    announce(engine)
    later = NOW + timedelta(minutes=1)
    with session(engine) as current:
        assert heartbeats.silent(current, now=later)
        assert heartbeats.went_offline(current, now=later) == 1
        assert heartbeats.went_offline(current, now=later) == 0
    announce(engine, later)
    noted = [pick(change, "what", "after") for change in look(engine, later)["history"][:2]]
    assert noted == [("state", "online"), ("state", "offline")]


def test_a_suspicion_is_not_lifted_by_one_canary(engine: Engine) -> None:
    device, why = announce(engine), "9 of 10 tests fail here"
    with session(engine) as current:
        assert changes.suspect(current, FACTS["device"], why, {"failing": 9}, now=NOW)
        assert not changes.suspect(current, FACTS["device"], "again", {}, now=NOW)
        assert orders(current)[FACTS["device"]] == {"order": "work", "canaries": 1}
    assert not report(engine, "good")
    assert look(engine)["health"] == DeviceHealth.suspect
    with reading(engine) as current:
        assert workers.live(current, now=NOW)[FACTS["queue"]] == 1
    patch(engine, device["id"], "good")
    assert look(engine)["health"] == "good"


def test_outcomes_are_counted_by_device_build_and_test(engine: Engine) -> None:
    with session(engine) as current:
        jobs.create(current, new_job(3))
        chosen = chunks.choose(current, "emulator.wormhole.n150", 1)
        (attempt,) = dispatching.dispatch(current, chosen, now=NOW)
        red = {"verdict": "fail", "explanation": "unexplained"}
        rows = [row(0, device="a"), row(1, **red, device="b"), row(2, device="b")]
        unchecked.store(current, attempt, {"batch": 0, "rows": rows}, now=NOW)
        since = datetime.now(UTC) - timedelta(hours=1)
        counted = outcomes.by_device(current, since=since)
    runs = {(one.device, one.build): (one.runs, one.failures) for one in counted}
    assert runs == {("a", "tt-train-2025"): (3, 0), ("b", "tt-train-2025"): (6, 1)}


@pytest.fixture
def known(api: Api) -> Api:
    """The HTTP service with one known device."""
    with api.context.session() as current:
        heartbeats.heard(current, FACTS, worker="worker-1", attempt=None, now=datetime.now(UTC))
    return api


def test_the_api_lists_shows_and_changes_devices(known: Api) -> None:
    (device,) = known.get("/devices")["items"]
    shown = ("lab-1/wormhole:0", "idle", "good")
    assert pick(device, "device", "state", "health") == shown
    path = f"/api/v1/devices/{device['id']}"
    changed = known.client.patch(path, json={"health": "maintenance", "reason": "a new fan"})
    assert pick(changed.json(), "health", "reason") == ("maintenance", "a new fan")
    assert known.get(f"/devices/{device['id']}")["history"][0]["after"] == "maintenance"
    assert known.get("/audit")["items"][0]["action"] == "device.health_changed"
    for verb, drained in (("drain", True), ("undrain", False)):
        answer = known.client.post(f"/api/v1/hosts/lab-1:{verb}", json={"reason": "moving"})
        assert answer.json() == {"host": "lab-1", "changed": [device["id"]]}
        assert known.get("/devices")["items"][0]["drained"] is drained


def test_a_single_worker_is_drained_by_its_name_with_slashes(known: Api) -> None:
    name, other = "lab-1/wormhole:1/77", stored_jobs.facts_of("lab-1", "wormhole:1")
    with known.context.session() as current:
        heartbeats.heard(current, other, worker=name, attempt=None, now=datetime.now(UTC))
    why = {"reason": "a new fan"}
    (changed,) = known.client.post(f"/api/v1/workers/{name}:drain", json=why).json()["changed"]
    drained = {device["device"] for device in known.get("/devices")["items"] if device["drained"]}
    assert drained == {"lab-1/wormhole:1"}
    back = known.client.post(f"/api/v1/workers/{name}:undrain", json=why)
    assert back.json() == {"worker": name, "changed": [changed]}
    for place in ("workers/nobody", "hosts/nowhere"):
        assert known.client.post(f"/api/v1/{place}:drain", json=why).status_code == 404
