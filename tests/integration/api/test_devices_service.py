"""Devices in the service and its API: announced, changed, suspected and drained.

Every change has a row in the device's history.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

import audit_log
import unchecked
from api import Api, in_process
from gonogo_service.devices import api as device_api
from gonogo_service.devices import changes, heartbeats, outcomes, workers
from gonogo_service.devices import store as devices
from gonogo_service.devices.model import DeviceRow
from gonogo_service.jobs import chunks, dispatching
from gonogo_service.jobs import store as jobs
from gonogo_service.kit.database.engine import reading, session
from gonogo_service.kit.database.states import DeviceHealth
from gonogo_service.kit.outbox import outbox
from job_flow import new_job, row

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
FACTS: dict[str, Any] = {
    "device": "lab-1/wormhole:0",
    "host": "lab-1",
    "name": "wormhole:0",
    "arch": "wormhole",
    "board": "n150",
    "queue": "ttnn.wormhole.n150",
    "serial": "0100018611902010",
    "pci": "0000:01:00.0",
    "firmware": {"fw_bundle_version": "18.3.0.0"},
    "driver": "TT-KMD 2.0.0",
    "source": "tt-smi",
    "health": "good",
    "reason": None,
}


def announce(
    engine: Engine, now: datetime = NOW, attempt: str | None = None, **changes: Any
) -> dict[str, Any]:
    """Store a heartbeat of the device's worker; return the device."""
    facts = {**FACTS, **changes}
    with session(engine) as current:
        heartbeats.heard(current, facts, worker="worker-1", attempt=attempt, now=now)
        workers.heard(
            current,
            "worker-1",
            queues=[facts["queue"]],
            device=facts["device"],
            attempt=attempt,
            now=now,
        )
    return look(engine, now)


def look(engine: Engine, now: datetime = NOW) -> dict[str, Any]:
    """Return the only device with its history."""
    with reading(engine) as current:
        (listed,) = devices.list_(current, now=now)
        return device_api.shown(current, listed.id, now=now).model_dump(mode="json")


def orders(current: Session) -> dict[str, Any]:
    return devices.orders(current, host=FACTS["host"])


def drain(current: Session, host: str, drained: bool) -> list[str] | None:
    """Drain a host, or undrain it; return the changed devices."""
    of_host = DeviceRow.host == host
    return changes.drain_all(current, of_host, drained, actor="me", reason="moving")


def report(
    engine: Engine, health: str, reason: str = "the canary said so", **evidence: Any
) -> bool:
    """Store a worker's report; return whether the device's health changed."""
    body = {
        "device": FACTS["device"],
        "health": health,
        "reason": reason,
        "evidence": evidence,
        "worker": "worker-1",
    }
    with session(engine) as current:
        return heartbeats.report(current, body, now=NOW)


def test_a_device_is_known_by_its_heartbeats(engine: Engine) -> None:
    device = announce(engine)
    assert {
        name: device[name] for name in ("device", "serial", "pci", "firmware", "driver", "board")
    } == {name: FACTS[name] for name in ("device", "serial", "pci", "firmware", "driver", "board")}
    assert (device["state"], device["health"], device["drained"]) == ("idle", "good", False)
    assert look(engine, NOW + timedelta(minutes=5))["state"] == "offline"
    flashed = announce(
        engine, firmware={"fw_bundle_version": "19.0.0.0"}, queue="gtest.wormhole.n150"
    )
    assert flashed["firmware"] == {"fw_bundle_version": "19.0.0.0"}
    assert flashed["queues"] == ["gtest.wormhole.n150"]
    assert [entry["what"] for entry in flashed["history"]] == ["firmware", "health"]


def test_every_change_of_health_has_a_row_an_audit_and_a_letter(engine: Engine) -> None:
    device = announce(engine)
    assert report(engine, "bad", "tt-smi did not help", steps=[{"rung": "re-open"}])
    assert not report(engine, "bad", "again")
    assert report(engine, "good", "well again", canary="ttnn", digests={"dx": "ab"})
    recovered = look(engine)
    assert [(change["before"], change["after"]) for change in recovered["history"]] == [
        ("bad", "good"), ("bad", "bad"), ("good", "bad"), (None, "good"),
    ]  # fmt: skip
    assert recovered["history"][2]["evidence"]["steps"] == [{"rung": "re-open"}]
    canary = {name: recovered["canary"][name] for name in ("build", "arch", "outputs")}
    assert canary == {"build": "ttnn", "arch": "wormhole", "outputs": {"dx": "ab"}}
    assert recovered["health_at"] == "2026-01-31T12:00:00Z"
    with reading(engine) as current:
        entries = audit_log.entries(current, subject=device["id"])
        messages = outbox.due(current, topics=["device.health_changed"], now=NOW)
    assert [(entry.actor, entry.detail["after"]) for entry in entries] == [
        ("worker:worker-1", "good"),
        ("worker:worker-1", "bad"),
    ]
    assert [message.payload["after"] for message in messages] == ["bad", "good"]


def test_in_maintenance_only_a_person_s_word_counts(engine: Engine) -> None:
    device = announce(engine)
    with session(engine) as current:
        changes.patch(
            current, device["id"], {"health": "maintenance", "reason": "new fan"}, actor="me"
        )
    assert not report(engine, "bad")
    assert look(engine)["health"] == "maintenance"
    assert look(engine)["history"][0]["evidence"]["reported"] == "bad"
    with session(engine) as current:
        back = changes.patch(
            current, device["id"], {"health": "good", "reason": "it turns"}, actor="me"
        )
        assert orders(current) == {FACTS["device"]: {"order": "work", "canaries": 1}}
    assert back is not None
    assert back.health == "good"


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
        assert changes.drain_all(
            current, DeviceRow.host == "lab-1", True, actor="me", reason="moving"
        ) == [device["id"]]
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
    assert [(change["what"], change["after"]) for change in look(engine, later)["history"][:2]] == [
        ("state", "online"),
        ("state", "offline"),
    ]


def test_a_suspicion_is_not_lifted_by_one_canary(engine: Engine) -> None:
    device = announce(engine)
    with session(engine) as current:
        assert changes.suspect(
            current, FACTS["device"], "9 of 10 tests fail here", {"failing": 9}, now=NOW
        )
        assert not changes.suspect(current, FACTS["device"], "again", {}, now=NOW)
        assert orders(current)[FACTS["device"]] == {"order": "work", "canaries": 1}
    assert not report(engine, "good")
    assert look(engine)["health"] == DeviceHealth.suspect
    with reading(engine) as current:
        assert workers.live(current, now=NOW)[FACTS["queue"]] == 1
    with session(engine) as current:
        changes.patch(current, device["id"], {"health": "good", "reason": "looked at"}, actor="me")
    assert look(engine)["health"] == "good"


def test_outcomes_are_counted_by_device_build_and_test(engine: Engine) -> None:
    with session(engine) as current:
        job = jobs.create(current, new_job(3))
        (chunk,) = chunks.choose(current, "emulator.wormhole.n150", 1)
        (attempt,) = dispatching.dispatch(current, [chunk], now=NOW)

        rows = [
            row(0, device="a"),
            row(1, verdict="fail", explanation="unexplained", device="b"),
            row(2, device="b"),
        ]
        unchecked.store(current, attempt, {"batch": 0, "rows": rows}, now=NOW)
        runs_by_device = {
            runs.device: runs
            for runs in outcomes.by_device(current, since=datetime.now(UTC) - timedelta(hours=1))
        }
    assert (runs_by_device["a"].runs, runs_by_device["a"].failures, runs_by_device["a"].build) == (
        3,
        0,
        "tt-train-2025",
    )
    assert (runs_by_device["b"].runs, runs_by_device["b"].failures) == (6, 1)
    assert job.id


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    """The HTTP service with one known device."""
    with in_process(f"sqlite:///{tmp_path / 'api.sqlite'}") as service:
        with service.context.session() as current:
            heartbeats.heard(current, FACTS, worker="worker-1", attempt=None, now=datetime.now(UTC))
        yield service


def test_the_api_lists_shows_and_changes_devices(api: Api) -> None:
    (device,) = api.get("/devices")["items"]
    assert (device["device"], device["state"], device["health"]) == (
        "lab-1/wormhole:0",
        "idle",
        "good",
    )
    path = f"/api/v1/devices/{device['id']}"
    changed = api.client.patch(path, json={"health": "maintenance", "reason": "a new fan"})
    assert changed.status_code == 200, changed.text
    assert (changed.json()["health"], changed.json()["reason"]) == ("maintenance", "a new fan")
    assert api.get(f"/devices/{device['id']}")["history"][0]["after"] == "maintenance"
    assert api.get("/audit")["items"][0]["action"] == "device.health_changed"
    drained = api.client.post("/api/v1/hosts/lab-1:drain", json={"reason": "moving"})
    assert drained.json() == {"host": "lab-1", "changed": [device["id"]]}
    assert api.get("/devices")["items"][0]["drained"] is True
    assert api.client.post("/api/v1/hosts/lab-1:undrain", json={"reason": "moved"}).json()[
        "changed"
    ] == [device["id"]]


def test_a_single_worker_is_drained_by_its_name_with_slashes(api: Api) -> None:
    (device,) = api.get("/devices")["items"]
    with api.context.session() as current:
        other = {**FACTS, "device": "lab-1/wormhole:1", "name": "wormhole:1"}
        heartbeats.heard(
            current, other, worker="lab-1/wormhole:1/77", attempt=None, now=datetime.now(UTC)
        )
    drained = api.client.post(
        "/api/v1/workers/lab-1/wormhole:1/77:drain", json={"reason": "a new fan"}
    )
    assert drained.status_code == 200, drained.text
    (changed,) = drained.json()["changed"]
    assert {listed["id"]: listed["drained"] for listed in api.get("/devices")["items"]} == {
        device["id"]: False,
        changed: True,
    }
    back = api.client.post(
        "/api/v1/workers/lab-1/wormhole:1/77:undrain", json={"reason": "it turns"}
    )
    assert back.json() == {"worker": "lab-1/wormhole:1/77", "changed": [changed]}
    assert api.client.post("/api/v1/workers/nobody:drain", json={"reason": "x"}).status_code == 404
    path = "/api/v1/workers/worker-1:drain"
    assert (
        api.visitor().post(path, json={"reason": "x"}, headers=api.token("submit")).status_code
        == 403
    )


def test_what_can_t_be_changed_is_named(api: Api) -> None:
    (device,) = api.get("/devices")["items"]
    path = f"/api/v1/devices/{device['id']}"
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"reason": "x"}, "body"),
        ({"health": "bad", "reason": "x"}, "health"),
        ({"health": "good"}, "reason"),
        ({"drained": True, "test": True, "reason": " "}, "reason"),
        ({"reason": "x", "color": 1}, "color"),
    ]
    for body, field in wrong:
        answer = api.client.patch(path, json=body)
        assert (answer.status_code, answer.json()["field"]) == (422, field), answer.text
    assert api.client.get("/api/v1/devices/none").status_code == 404
    assert api.client.post("/api/v1/hosts/nowhere:drain", json={"reason": "x"}).status_code == 404
    visitor = api.visitor()
    for scope, status in (("read", 403), ("submit", 403), ("admin", 200)):
        headers = api.token(scope)
        assert visitor.patch(path, json={"test": True}, headers=headers).status_code == status
        assert visitor.get(path, headers=headers).status_code == 200
