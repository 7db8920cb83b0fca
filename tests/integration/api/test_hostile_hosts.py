"""Attacks by strangers, by clients with tokens of people, and by hosts with valid tokens: they
store nothing of another's, and break no page."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import delete, select, update

import audit_log
from api import SECRET, Api, bearer, in_process
from at_once import at_once
from database_params import BOTH
from gonogo_service.app import UNPACKED_AT_ONCE
from gonogo_service.devices import heartbeats, sick_devices, workers
from gonogo_service.devices import store as devices
from gonogo_service.devices.changes import MAX_OF_DEVICE
from gonogo_service.devices.model import CanaryRow, DeviceHealthRow, DeviceRow, WorkerRow
from gonogo_service.hosts import forms, refused_requests
from gonogo_service.hosts import store as hosts
from gonogo_service.hosts.door import SMALL
from gonogo_service.hosts.model import HostRow
from gonogo_service.jobs import artifacts, chunks, dispatching
from gonogo_service.jobs import store as jobs
from gonogo_service.jobs.model import AttemptRow
from gonogo_service.kit.audit import AuditRow
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.outbox.model import OutboxRow
from gonogo_service.kit.problems import BadField
from gonogo_service.people import auth
from gonogo_service.results import seeds as results
from handed_out import hand_out
from job_flow import DEVICE, HOST, QUEUE, joined, new_job, row
from patience import WAIT_S
from records import pick
from running_service import until

OTHER, WORKER = "host-2", f"{HOST}/worker-1"
UNKNOWN = "01900000-0000-7000-8000-000000000000"


class Door:
    """The routes of hosts, asked by two hosts that have joined."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.tokens = {name: joined(api.context.engine, name, SECRET) for name in (HOST, OTHER)}

    def ask(
        self, method: str, path: str, body: Any, host: str = HOST, *, token: str | None = None
    ) -> tuple[int, dict[str, Any]]:
        headers = bearer(self.tokens[host] if token is None else token)
        answer = self.api.client.request(method, f"/api/v1{path}", json=body, headers=headers)
        return answer.status_code, answer.json()

    # what hosts send, and the status of the answer

    def beat(self, host: str = HOST, *, token: str | None = None, **changes: Any) -> int:
        return self.ask("PUT", "/hosts/self", beat(host) | changes, host, token=token)[0]

    def claim(self, attempt: str, host: str = HOST, **changes: Any) -> int:
        place = {"worker": f"{host}/worker-1", "device": f"{host}/emulator:0"} | changes
        return self.ask("POST", f"/attempts/{attempt}:claim", place, host)[0]

    def send(self, attempt: str, *rows: Any, batch: int = 0, host: str = HOST, **more: Any) -> int:
        body = {"rows": list(rows), "artifacts": [], **more}
        return self.ask("PUT", f"/attempts/{attempt}/results/{batch}", body, host)[0]

    def finish(self, attempt: str, host: str = HOST, **changes: Any) -> int:
        body = {"outcome": "done", "sent": [[0, 0], [1, 0]], "batches": 1} | changes
        return self.ask("POST", f"/attempts/{attempt}:finish", body, host)[0]

    def report(self, health: str, host: str = HOST, sender: str = HOST, **changes: Any) -> int:
        place = {"worker": f"{host}/worker-1", "device": f"{host}/emulator:0"}
        body = {**place, "health": health, "reason": "its canary", "evidence": {}}
        return self.ask("POST", "/hosts/self/health", body | changes, sender)[0]

    def attempt(self, seeds: int = 2) -> tuple[str, str]:
        """Submit a job and hand out its only chunk; (job, attempt)."""
        with self.api.context.session() as session:
            job = jobs.create(session, new_job(seeds)).id
            dispatching.dispatch(session, chunks.choose(session, QUEUE, 50), now=utcnow())
            (item,) = hand_out(session, now=utcnow())
            return job, item.attempt

    def job(self, job_id: str) -> tuple[str, int]:
        """Return the state of a job and the number of its stored seeds."""
        job: tuple[str, int] = pick(self.api.get(f"/jobs/{job_id}"), "state", "done")
        return job

    def health(self) -> str | None:
        """Return the stored health of the device of HOST."""
        with self.api.context.reading() as session:
            return session.scalar(select(DeviceRow.health).where(DeviceRow.device == DEVICE))

    def number(self, table: Any) -> int:
        return self.api.rows()[table.__tablename__]

    def refused(self) -> dict[tuple[str, str], int]:
        """Return the numbers of refused messages by (sender, reason)."""
        with self.api.context.reading() as session:
            return refused_requests.counts(session)


def beat(host: str = HOST) -> dict[str, Any]:
    """A heartbeat of a host with one device."""
    place = {"worker": f"{host}/worker-1", "device": f"{host}/emulator:0"}
    facts = {"device": f"{host}/emulator:0", "host": host, "name": "emulator:0", "queue": QUEUE}
    kind = {"arch": "wormhole", "board": "n150", "source": "configured"}
    return {**place, "queues": [QUEUE], "devices": [facts | kind], "attempt": None}


@pytest.fixture
def door(lite_database_url: str) -> Iterator[Door]:
    """A service with two hosts."""
    with in_process(lite_database_url) as api:
        yield Door(api)


@BOTH
def test_a_host_speaks_for_its_own_attempts_and_devices_only(door: Door) -> None:
    job, attempt = door.attempt()
    assert (door.beat(), door.claim(attempt)) == (200, 200)
    forged = [row(seed, verdict="fail") for seed in range(2)]
    place = {"worker": WORKER, "device": DEVICE}
    attacks = [
        door.send(attempt, *forged, host=OTHER),
        door.finish(attempt, OTHER),
        door.finish(attempt, OTHER, telemetry={"temperature_c": 900}),
        door.claim(attempt, OTHER, **place),
        door.ask("PUT", "/hosts/self", beat(), OTHER)[0],
        door.beat(OTHER, devices=beat()["devices"]),
        door.beat(OTHER, devices=[{**beat(OTHER)["devices"][0], "host": HOST}]),
        door.report("bad", HOST, OTHER),
        door.report("bad", HOST, OTHER, worker=f"{OTHER}/w"),
    ]
    assert attacks == [409] * len(attacks)
    assert door.claim(attempt, OTHER) == 409  # another has it: no lie
    assert door.claim(attempt, worker=f"{HOST}/worker-2") == 409
    assert door.refused() == {(OTHER, "sender"): len(attacks)}
    assert door.health() == "good"
    assert door.job(job) == ("running", 0)
    assert (door.send(attempt, row(0), row(1)), door.finish(attempt)) == (200, 200)
    assert door.job(job) == ("finished", 2)
    honest, flagged = (door.api.get(f"/hosts/{name}") for name in (HOST, OTHER))
    assert flagged["flagged_at"] is not None
    assert pick(honest, "flagged_at", "refused") == (None, {})
    (entry,) = door.api.get("/audit?action=request.refused")["items"]
    assert (entry["actor"], entry["detail"]["reason"]) == (f"host:{OTHER}", "sender")


ROUTES = (
    *(("PUT", "/hosts/self"), ("POST", "/hosts/self:rotate"), ("POST", "/hosts/self/health")),
    *(("POST", "/attempts/x:claim"), ("PUT", "/attempts/x/results/0")),
    ("POST", "/attempts/x:finish"),
)


@pytest.mark.parametrize("token", ["", "gnh_x", "gnh_" + "x" * 43, "gng_aaaaaaaa_" + "b" * 38])
def test_a_stranger_opens_no_route_of_hosts(door: Door, token: str) -> None:
    assert {door.ask(method, path, beat(), token=token)[0] for method, path in ROUTES} == {401}


def test_a_token_of_people_opens_no_route_of_hosts_and_one_of_hosts_no_other(door: Door) -> None:
    admin = door.api.token("admin")["Authorization"].removeprefix("Bearer ")
    assert {door.ask(method, path, beat(), token=admin)[0] for method, path in ROUTES} == {403}
    for path in ("/jobs", "/hosts", "/tokens", "/audit", f"/hosts/{HOST}"):
        assert door.ask("GET", path, None)[0] == 403, path
    for path in ("/jobs", "/hosts:add", f"/hosts/{OTHER}:revoke"):
        assert door.ask("POST", path, {"name": "x"})[0] == 403, path
    assert door.api.client.get("/jobs", headers=bearer(door.tokens[HOST])).status_code == 403
    login = door.api.visitor().post("/login", data={"token": door.tokens[HOST]})
    assert login.status_code == 401


def test_a_code_works_once_and_for_ten_minutes(door: Door) -> None:
    def join(code: str) -> Any:
        return door.api.client.post("/api/v1/hosts:join", json={"code": code})

    context = door.api.context
    with context.session() as session:
        first, second = (
            hosts.add(session, context.keys, "lab-9", actor="me").secret for _ in range(2)
        )
    assert join(first).status_code == 401  # replaced
    answer = join(second)
    assert (answer.status_code, answer.json()["host"]) == (200, "lab-9")
    token = answer.json()["token"]
    assert join(second).status_code == 401
    assert door.beat("lab-9", token=token) == 200
    with context.session() as session:
        late = hosts.add(session, context.keys, "lab-9", actor="me")
        late.host.code_expires_at = utcnow() - timedelta(seconds=1)
    assert join(late.secret).status_code == 401
    assert [join(f"gnc_{number}").status_code for number in range(20)][-1] == 429
    elsewhere = door.api.visitor(("198.51.100.1", 1))
    assert elsewhere.post("/api/v1/hosts:join", json={"code": "gnc_x"}).status_code == 401
    shown = json.dumps(door.api.get("/hosts")) + json.dumps(door.api.get("/audit"))
    for secret in (first, second, late.secret, token, *door.tokens.values()):
        assert secret not in shown
    assert "hash" not in shown


@BOTH
def test_a_host_that_is_added_at_once_by_several_is_one_and_each_code_but_the_last_is_void(
    door: Door,
) -> None:
    answers = []

    def add() -> None:
        answers.append(door.api.client.post("/api/v1/hosts:add", json={"name": "host-3"}))

    at_once(*[add] * 4)
    assert [answer.status_code for answer in answers] == [201] * 4
    with door.api.context.reading() as session:
        (host,) = session.scalars(select(HostRow).where(HostRow.name == "host-3"))
    codes = [door.api.context.keys.digest("host code", one.json()["code"]) for one in answers]
    assert codes.count(host.code_hash) == 1


def test_a_host_that_is_bound_to_addresses_asks_from_nowhere_else(door: Door) -> None:
    context, networks = door.api.context, ["192.0.2.0/24", "2001:db8::7"]
    with context.session() as session:
        code = hosts.add(session, context.keys, HOST, addresses=networks, actor="me").secret
    token, statuses = door.tokens[HOST], {}
    for address in ("198.51.100.1", "not-an-address", "192.0.2.7", "::ffff:192.0.2.9"):
        visitor = door.api.visitor((address, 1))
        answer = visitor.post("/api/v1/hosts:join", json={"code": code})
        token = answer.json().get("token", token)
        heard = visitor.put("/api/v1/hosts/self", json=beat(), headers=bearer(token))
        statuses[address] = answer.status_code, heard.status_code
    # the code works once
    assert statuses == {
        "198.51.100.1": (403, 403),
        "not-an-address": (403, 403),
        "192.0.2.7": (200, 200),
        "::ffff:192.0.2.9": (401, 200),
    }
    elsewhere = door.api.visitor(("198.51.100.1", 1))
    assert elsewhere.post("/api/v1/hosts:join", json={"code": code}).status_code == 401
    problem = elsewhere.put("/api/v1/hosts/self", json=beat(), headers=bearer(token)).json()
    assert problem["type"] == "urn:gonogo:problem:address"
    assert "'host-1' may ask from its own addresses only, and 198.51" in problem["detail"]
    assert door.api.get(f"/hosts/{HOST}")["addresses"] == networks
    with context.reading() as session:
        for action in ("login.failed", "token.refused"):  # of the code, and of the token
            (first, *_) = audit_log.entries(session, action=action, subject=f"host:{HOST}")
            assert first.detail["reason"] == "elsewhere"


def test_a_rotated_token_works_for_ten_minutes_and_a_revoked_one_not_at_all(door: Door) -> None:
    old = door.tokens[HOST]
    status, answer = door.ask("POST", "/hosts/self:rotate", {})
    assert (status, door.beat(), door.beat(token=answer["token"])) == (200, 200, 200)
    with door.api.context.session() as session:
        host = session.scalars(select(HostRow).where(HostRow.name == HOST)).one()
        host.old_token_until = utcnow() - timedelta(seconds=1)
    assert door.beat(token=old) == 401
    for verb, body, state in (
        (f"/{HOST}:revoke", {"reason": "stolen"}, "revoked"),
        (":add", {"name": HOST}, "added"),
    ):
        assert door.api.client.post(f"/api/v1/hosts{verb}", json=body).is_success
        assert door.api.get(f"/hosts/{HOST}")["state"] == state
        assert door.beat(token=answer["token"]) == 401


def test_a_host_that_is_revoked_while_it_rotates_gets_no_token(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a token would work once the host is added again."""
    identify = auth.by_bearer

    def revoked_meanwhile(*args: Any) -> Any:
        principal = identify(*args)
        with door.api.context.session() as session:
            hosts.revoke(session, HOST, actor="an admin", reason="stolen")
        return principal

    monkeypatch.setattr(auth, "by_bearer", revoked_meanwhile)
    assert door.ask("POST", "/hosts/self:rotate", {})[0] == 401


def test_what_is_over_unknown_or_canceled_is_gone(door: Door) -> None:
    job, attempt = door.attempt()
    assert [door.claim(name) for name in (UNKNOWN, "x", "../jobs")][:2] == [410, 410]
    assert door.claim(attempt) == door.claim(attempt) == 200
    with door.api.context.session() as session:
        jobs.cancel(session, job)
    assert door.claim(attempt) == 410
    status, answer = door.ask("PUT", f"/attempts/{attempt}/results/0", {"rows": [row(0)]})
    assert (status, answer["canceled"]) == (200, True)
    assert door.finish(attempt, outcome="cancelled", sent=[[0, 0]]) == 200
    assert door.job(job)[0] == "cancelled"
    assert door.send(UNKNOWN, row(0)) == door.finish(UNKNOWN) == 410
    assert door.refused() == {}


def test_bodies_are_small_json_objects(door: Door) -> None:
    _, attempt = door.attempt()
    door.claim(attempt)
    path = f"/api/v1/attempts/{attempt}/results/0"
    bomb = gzip.compress(b'{"rows": "' + b"x" * (forms.MAX_BYTES + 1) + b'"}')

    def put(content: bytes, encoding: str = "identity") -> int:
        headers = {"Content-Encoding": encoding, "Content-Type": "application/json"}
        headers |= bearer(door.tokens[HOST])
        return door.api.client.put(path, content=content, headers=headers).status_code

    assert len(bomb) < 100_000
    assert put(bomb, "gzip") == 413
    assert put(b"x" * (forms.MAX_BYTES + 1)) == 413
    for content in (b"", b"[]", b"{", b"\xff", b'{"rows": [NaN]}', b"[" * 100_000, b"1" * 10_000):
        assert put(content) == 400, content[:10]
    assert put(gzip.compress(b"{}")[:-4], "gzip") == 400
    assert put(b"{}", "br") == 415
    assert put(gzip.compress(json.dumps({"rows": [row(0)]}).encode()), "gzip") == 200


def test_few_bodies_are_in_memory_at_once(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred kilobytes may unpack to half a gigabyte of objects."""
    large, count = b'{"worker": "' + b" " * SMALL + b'"}', 3 * UNPACKED_AT_ONCE
    inside, is_seen = set[int](), threading.Event()

    def check(_form: object, body: dict[str, Any]) -> None:
        inside.add(id(body))
        is_seen.wait(WAIT_S)
        raise BadField("worker", "", "is checked")

    def put(_number: int) -> int:
        headers = bearer(door.tokens[HOST]) | {"Content-Type": "application/json"}
        path = "/api/v1/hosts/self"
        return door.api.client.put(path, content=large, headers=headers).status_code

    door.api.get("/hosts")  # builds the API's document once, not in each thread
    monkeypatch.setattr(forms, "check", check)
    unpacking = door.api.context.unpacking
    with ThreadPoolExecutor(count) as pool:
        answers = pool.map(put, range(count))
        until(lambda: len(inside) + unpacking.statistics().tasks_waiting == count)
        assert len(inside) == UNPACKED_AT_ONCE
        is_seen.set()
        assert set(answers) == {422}


def test_a_host_fills_the_database_neither_with_devices_nor_with_workers(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeats, "MAX_DEVICES", 2)
    monkeypatch.setattr(workers, "MAX_OF_HOST", 2)
    facts = beat()["devices"][0]
    named = [{**facts, "device": f"{HOST}/chip:{n}", "name": f"chip:{n}"} for n in range(4)]
    statuses = [door.beat(devices=part) for part in (named[:2], named[:2], named[2:])]
    assert statuses == [200, 200, 422]
    assert door.beat(worker=f"{HOST}/worker-2", devices=[]) == 200
    assert door.beat(worker=f"{HOST}/worker-3", devices=[]) == 422
    assert door.beat(devices=[facts] * 65) == 422
    with door.api.context.session() as session:
        session.get_one(WorkerRow, WORKER).heard_at -= timedelta(minutes=4)
    assert door.beat(worker=f"{HOST}/worker-3", devices=[]) == 200  # the silent one is forgotten
    with door.api.context.reading() as session:
        assert len(devices.list_(session)) == 2
        names = [worker.name for worker in workers.list_(session).items]
    assert names == [f"{HOST}/worker-2", f"{HOST}/worker-3"]


def test_a_device_has_the_queues_of_its_last_heartbeat_and_of_its_other_workers(
    door: Door,
) -> None:
    def queues(*names: str, worker: str = WORKER) -> list[str]:
        facts = beat()["devices"][0]
        assert door.beat(worker=worker, devices=[{**facts, "queue": name} for name in names]) == 200
        with door.api.context.reading() as session:
            return list(session.scalars(select(DeviceRow.queues)).one())

    many = [f"x{number:02}.wormhole.n150" for number in range(40)]
    assert queues(many[0]) == many[:1]
    assert queues(*many) == many[:16]
    assert queues("a", "b") == ["a", "b"]
    assert queues("c", worker=f"{HOST}/worker-2") == ["a", "b", "c"]
    for name in many:
        assert len(queues(name, worker=f"{HOST}/{name}")) <= 16


def test_health_of_a_device_that_nobody_announced_stores_nothing(door: Door) -> None:
    assert door.report("good", device=f"{HOST}/none:1") == 422
    assert door.number(DeviceHealthRow) == 0


def test_a_device_that_recovers_too_often_stays_bad_for_a_while(door: Door) -> None:
    """Each change is an entry of the history and of the audit, and a message to every webhook."""

    def counts() -> list[int]:
        return [door.number(table) for table in (DeviceHealthRow, OutboxRow, AuditRow)]

    door.beat()
    before = counts()
    for health in ("bad", "good") * 25:
        assert door.report(health) == 200
    assert door.health() == "bad"
    entries, letters, audited = counts()
    assert entries == MAX_OF_DEVICE
    assert letters - before[1] == audited - before[2] == MAX_OF_DEVICE - 1
    with door.api.context.session() as session:
        (sick,) = sick_devices.spells(session)[DEVICE][-1:]
        assert sick.end is None
        session.execute(delete(DeviceHealthRow))
    facts = {**beat()["devices"][0], "health": "good"}
    door.beat(devices=[facts])
    assert door.health() == "bad", "an old heartbeat overrules no report"
    with door.api.context.session() as session:
        session.execute(update(DeviceRow).values(health_at=utcnow() - timedelta(hours=1)))
    door.beat(devices=[facts])
    assert door.health() == "good"
    assert counts() == [1, letters + 1, audited + 1]


def test_artifacts_are_those_of_the_attempt_s_work_and_have_a_limit(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifacts, "MAX_BYTES", 2500)
    job, attempt = door.attempt()
    door.claim(attempt)

    def of_seed(seed: int, kind: str, repeat: int = 0) -> dict[str, Any]:
        content = {"text": "x" * 1000}
        return {"kind": kind, "seed": seed, "repeat": repeat, "content": content}

    strange = [of_seed(10**6, "log"), of_seed(0, "log", repeat=1)]
    assert door.send(attempt, artifacts=[*strange, of_seed(0, "log")]) == 200
    for number in range(1, 4):
        assert door.send(attempt, batch=number, artifacts=[of_seed(1, f"kind-{number}")]) == 200
    with door.api.context.reading() as session:
        stored = [(head.kind, head.seed) for head in artifacts.list_(session, job)]
    assert stored == [("kind-1", 1), ("log", 0)]
    assert door.refused() == {(HOST, "size"): 2}


def test_every_row_is_of_the_attempt_s_device(door: Door) -> None:
    job, attempt = door.attempt()
    assert door.send(attempt, row(0)) == 409  # it has claimed nothing yet
    door.claim(attempt)
    assert door.send(attempt, row(0, device=f"{HOST}/emulator:1")) == 409
    assert door.refused() == {(HOST, "sender"): 2}
    assert door.job(job) == ("running", 0)


def test_a_host_runs_and_serves_only_the_queues_that_it_was_added_for(door: Door) -> None:
    context = door.api.context
    with context.session() as session:
        queues = ["ttnn.*", "emulator.*.n300"]
        code = hosts.add(session, context.keys, OTHER, queues, actor="me").secret
        door.tokens[OTHER] = hosts.join(session, context.keys, code).secret
    job, attempt = door.attempt()
    assert door.claim(attempt, OTHER) == 409
    served, facts = ["ttnn.wormhole.n150"], beat(OTHER)["devices"][0]
    assert door.beat(OTHER, devices=[]) == 409
    assert door.beat(OTHER, queues=served) == 409
    assert door.beat(OTHER, queues=served, devices=[{**facts, "queue": served[0]}]) == 200
    canary = {"canary": "correct", "digests": {"dx": "11"}}
    statuses = [
        door.report("good", OTHER, OTHER, evidence={**canary, "executor": executor})
        for executor in ("emulator", "ttnn")
    ]
    assert statuses == [409, 200]
    assert door.refused() == {(OTHER, "sender"): 4}
    assert door.job(job) == ("queued", 0)
    with context.reading() as session:
        assert workers.live(session, now=utcnow()) == {"ttnn.wormhole.n150": 1}
        assert list(session.scalars(select(CanaryRow.executor))) == ["ttnn"]


def test_what_comes_twice_or_in_another_order_changes_nothing(door: Door) -> None:
    job, attempt = door.attempt()
    door.claim(attempt)
    ends = {"sent": [[0, 0], [1, 0]], "batches": 2}
    assert door.finish(attempt, **ends) == 200  # its batches are still on their way
    assert door.job(job) == ("running", 0)
    for batch in (1, 0, 1, 0):
        assert door.send(attempt, row(batch), batch=batch) == 200
    assert door.finish(attempt, **ends) == 200
    assert door.job(job) == ("finished", 2)
    assert door.refused() == {}


def test_a_statistic_that_no_judgment_has_is_refused(door: Door) -> None:
    """It would fail the job's page, and whatever computes with it, for everybody."""
    job, attempt = door.attempt(1)
    door.claim(attempt)
    for value in ("NaN", -1, -1.0, 1e308, 10**400, True, [1.0]):
        hostile = row(0)
        hostile["outputs"]["dx"]["rounding_ratio"] = value
        assert door.send(attempt, hostile) == 422, value
    assert door.job(job) == ("running", 0)
    assert door.send(attempt, row(0)) == 200
    assert door.job(job) == ("running", 1)


HOSTILE_BEATS: tuple[tuple[str, object], ...] = (
    *(("seed", "1"), ("seed", -1), ("stage", {}), ("queues", [{}]), ("queues", "all")),
    *(("device", 1), ("devices.queue", {}), ("devices.firmware", {"fw": []})),
    *(("devices.board", 1), ("clock", -1.0)),
    *((f"devices.{name}", None) for name in ("name", "arch", "board", "source")),
)


@pytest.mark.parametrize(("field", "value"), HOSTILE_BEATS)
def test_a_heartbeat_of_another_form_is_refused(door: Door, field: str, value: object) -> None:
    """One such field failed the list of workers for everybody."""
    hostile = beat()
    part = hostile["devices"][0] if field.startswith("devices.") else hostile
    part[field.rpartition(".")[2]] = value
    status, problem = door.ask("PUT", "/hosts/self", hostile)
    assert status == 422
    assert field.rpartition(".")[2] in problem["errors"][0]["field"]
    with door.api.context.reading() as session:
        assert workers.list_(session).items == ()


CELLS = [[0.1, 0.2]]
ERROR_MAP: dict[str, Any] = {
    "rows": 8,
    "features": 64,
    "tile": 32,
    "group": [1, 1],
    "cells": [1, 2],
    "format": "fp32",
    "max_abs": CELLS,
    "max_ulp": CELLS,
    "signed_mean": CELLS,
    "nonfinite": [[0, 1]],
}
KIND = {"source": "rstd", "is_certain": False}
FACTOR = {**KIND, "estimate": 1e-7, "deviation": 1e-8, "limit": 2.0**-22}
SENSELESS_FACTORS: list[Any] = [
    *("rstd", [FACTOR | {"more": 1}], [FACTOR | {"limit": 0.0}], [FACTOR | {"estimate": 1e308}]),
    *([FACTOR | {"deviation": -1.0}], [FACTOR | {"deviation": 1e-300}], [{"source": "rstd"}]),
]
"""Common factors that pooling a job's seeds would break at."""
BEST = {"id": "twice:s1", "label": "s1 is subtracted twice", "size": 1.0, "share": 0.99}
SENSELESS_CONTENTS: list[tuple[str, Any]] = [
    ("error_map", {}),
    ("error_map", {**ERROR_MAP, "cells": [10**9, 10**9]}),
    ("error_map", {**ERROR_MAP, "max_abs": [[0.1]]}),
    ("error_map", {**ERROR_MAP, "nonfinite": [["1", 0]]}),
    ("stages", {"stages": [{"name": 7}]}),
    ("log", {"text": ["x"]}),
    ("triage", {"text": "nul\0"}),
]
"""Contents of artifacts that pages or the API would break at, by their kind."""
SENSELESS_OUTPUTS: list[dict[str, Any]] = [
    *({"arithmetic": 2**63}, {"arithmetic": 5.0}, {"detection_limits": [[[]]]}, {"count": -1}),
    *({"nonfinite_kinds": {"a": {"b": 1}}}, {"worst_index": 7}, {"digest": {}}, {"is_wide": 1}),
    *({"exact": "x"}, {"reference": {"flips": {"rows": "x"}}}, {"advice": "nul\0"}),
    *({"verdict": "splendid"}, {"verdict": None}, {"explanation": None}),
    *({"gates": {"kernelbench": "x"}}, {"exact": {"share": 0.5}}, {"reference": {"rms": 0.5}}),
    *({"common": factors} for factors in SENSELESS_FACTORS),
    *({"faults": faults} for faults in ({}, [BEST | {"more": 1}], [BEST | {"size": "x"}])),
]
SENSELESS_ROWS: list[dict[str, Any]] = [
    *({"duration_ms": 2**64}, {"duration_ms": 1e40}, {"duration_ms": -1}, {"position": "first"}),
    *({"verdict": "splendid"}, {"seed": "0"}),
    *({"kernel_s": -1}, {"kernel_s": 2e9}, {"kernel_s": "1"}),
    *({"arithmetic": ["x"]}, {"host_run": {}}, {"message": ["x"]}, {"explanation": 1}),
    *({"edges": "x"}, {"edges": {"dx": {"needed_atol": "x"}}}, {"able": 1}, {"sentence": {}}),
    *({"outputs": outputs} for outputs in (["x"], {"dx": 1}, {"dx": "x"}, {"dx": {}})),
    {"outputs": {"S.t": {"outcome": "splendid", "verdict": "pass"}}},
    {"outputs": {"S.t": {"outcome": "failed", "verdict": "fail", "failures": [{"count": "x"}]}}},
    {"outputs": {"S.t": {"outcome": "failed", "verdict": "fail", "message": {"a": 1}}}},
]


def test_what_pages_would_break_at_is_refused_where_it_comes_in(door: Door) -> None:
    job, attempt = door.attempt()
    door.beat()
    door.claim(attempt)
    honest = row(0)
    bodies: list[tuple[dict[str, Any], list[Any]]] = [
        (honest, [{"kind": kind, "seed": 0, "content": content}])
        for kind, content in SENSELESS_CONTENTS
    ]
    for changes in SENSELESS_OUTPUTS:
        outputs = {**honest["outputs"], "dx": {**honest["outputs"]["dx"], **changes}}
        bodies.append(({**honest, "outputs": outputs}, []))
    bodies += [({**honest, **changes}, []) for changes in SENSELESS_ROWS]
    for wrong, attached in bodies:
        assert door.send(attempt, wrong, artifacts=attached) == 422, (wrong, attached)
    assert door.finish(attempt, sent=[["x"]]) == 422
    for evidence in ({"digests": 7}, {"replay": [1]}, {"steps": [1]}, {"steps": {"rung": "a"}}):
        assert door.report("good", evidence={"canary": "x", **evidence}) == 422
    assert door.job(job) == ("running", 0)
    long = "x" * 2**18  # a worker keeps as much of a watcher's log
    contents = (
        *(("error_map", ERROR_MAP), ("log", {"text": "x"})),
        *(("triage", {"text": long, "trouble": None}), ("watcher", {"log": long, "prints": long})),
    )
    attached = [{"kind": kind, "seed": 0, "content": content} for kind, content in contents]
    shortest = row(0, kernel_s=5e-324)  # no clock measures it
    assert door.send(attempt, shortest, row(1, kernel_s=1e9), artifacts=attached) == 200
    assert door.finish(attempt) == 200
    assert door.job(job)[0] == "finished"
    with door.api.context.reading() as session:
        assert [seed.kernel_s for seed in results.read(session)] == [None, 1e9]


def test_a_number_that_is_no_reading_breaks_no_page_of_the_device(door: Door) -> None:
    for _ in range(2):
        _, attempt = door.attempt()
        door.beat()
        door.claim(attempt)
        door.send(attempt, row(0), row(1))
        assert door.finish(attempt, telemetry={"temperature_c": 1e308, "power_w": 7.0}) == 200
    (device,) = door.api.get("/devices")["items"]
    page = door.api.client.get(f"/devices/{device['id']}")
    assert (page.status_code, "Temperature" in page.text, "Power" in page.text) == (
        200,
        False,
        True,
    )


@BOTH
def test_other_content_for_a_batch_or_a_seed_that_is_stored_is_flagged(door: Door) -> None:
    job, attempt = door.attempt()
    door.claim(attempt)
    assert door.send(attempt, row(0), row(1)) == 200
    assert door.send(attempt, row(1, verdict="fail")) == 409  # the batch's number again
    assert door.refused() == {(HOST, "conflict"): 1}
    wrong = (row(0, verdict="fail"), row(1, verdict="fail"))
    assert door.send(attempt, *wrong, batch=1) == 200  # one batch, one refusal
    assert door.send(attempt, row(0, duration_ms=9.0), batch=2) == 200  # no contradiction
    assert door.refused() == {(HOST, "conflict"): 2}
    assert door.api.get(f"/jobs/{job}/results")["items"][0]["verdict"] == "pass"
    assert "seed 0" in door.api.get(f"/hosts/{HOST}")["flag_reason"]
    with door.api.context.reading() as session:
        assert session.get_one(AttemptRow, attempt).host == HOST
