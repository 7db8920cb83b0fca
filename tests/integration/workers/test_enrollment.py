"""Hosts that reach only the broker: enrolled with a code, on an account that may do little, with a
clock that must be right."""

from __future__ import annotations

import contextlib
import json
import stat
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from sqlalchemy import Engine, update
from typer.testing import CliRunner

import audit_log
import gonogo.settings
from background_thread import running, short, submit, until
from gonogo.cli.app import app
from gonogo.errors import InfrastructureError
from gonogo.settings import Settings
from gonogo_service.background import keyring
from gonogo_service.cli.operate.broker_accounts import SERVICE, WORKER, acl
from gonogo_service.hosts import invitations
from gonogo_service.hosts import store as hosts
from gonogo_service.hosts.invitation_codes import invite
from gonogo_service.hosts.model import InvitationRow
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.engine import make_engine, reading, session
from gonogo_service.kit.signing import service_key
from gonogo_workers import queue
from gonogo_workers.messages import exchange, identity
from gonogo_workers.messages.timekeeper import Timekeeper
from gonogo_workers.queue import Invitation, PrivateKey
from job_flow import KEY, enroll
from patience import WAIT_S, scaled
from running_service import Process, clean_environment
from running_service import until as eventually
from servers import RedisServer
from servers import running as running_server
from worker_process import TINY, Workplace

PASSWORDS = {SERVICE: "service-password", WORKER: "worker-password"}


class GuardedRedis(RedisServer):
    """A server with the accounts of production."""

    def __init__(self) -> None:
        super().__init__()
        (self.folder / "users.acl").write_text(acl(PASSWORDS))
        self.url, self.worker_url = (
            f"redis://{name}:{PASSWORDS[name]}@127.0.0.1:{self.port}/0"
            for name in (SERVICE, WORKER)
        )

    def _command(self) -> list[str]:
        return [*super()._command(), "--aclfile", str(self.folder / "users.acl")]


@pytest.fixture
def guarded() -> Iterator[GuardedRedis]:
    """A server with accounts, for this test alone."""
    yield from running_server(GuardedRedis)


@pytest.fixture
def engine(migrated_sqlite_url: str) -> Iterator[Engine]:
    """A database; the statements of enrollment are the same on both."""
    database = make_engine(migrated_sqlite_url)
    yield database
    database.dispose()


def command(*words: str) -> Any:
    """Run a command in this process, with the settings of now; what it prints.

    The background of the test logs to the same output.
    """
    gonogo.settings.load.cache_clear()
    output = CliRunner().invoke(app, [*words, "--json"]).output
    begin = min(place for place in (output.find("{\n"), output.find('{"')) if place >= 0)
    return json.JSONDecoder().raw_decode(output[begin:])[0]


def code_of(engine: Engine, name: str) -> str:
    """Make an invitation; its code."""
    with session(engine) as current:
        return invite(current, KEY, name, 1.0, actor="me").code


def settings_for(engine: Engine, broker_url: str) -> Settings:
    """Settings of a background that isn't in a hurry."""
    url = engine.url.render_as_string(hide_password=False)
    return short(url, broker_url).model_copy(update={"heartbeat_timeout_s": scaled(30)})


def test_a_question_that_the_broker_has_lost_is_asked_again(
    engine: Engine, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "AGAIN_S", 0.1)
    key = PrivateKey.generate()
    host = enroll(engine, "lab-9", key)
    me = identity.Identity(host, "lab-9", key, service_key(KEY).public)
    answers: list[exchange.Answer] = []

    def ask() -> None:
        with contextlib.closing(queue.redis_client(redis_url)) as client:
            answers.append(exchange.hello(client, me, wait_s=WAIT_S))

    asking = threading.Thread(target=ask)
    with redis.Redis.from_url(redis_url) as client:
        asking.start()
        eventually(lambda: client.llen(queue.HEARTBEAT_QUEUE))
        client.flushall()
    with running(settings_for(engine, redis_url)):
        asking.join(WAIT_S)
    assert [answer.body["name"] for answer in answers] == ["lab-9"]


def test_a_job_flows_on_accounts_that_may_do_little(
    engine: Engine, guarded: GuardedRedis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GONOGO_DATABASE_URL", str(engine.url))
    monkeypatch.setenv("GONOGO_SECRET_KEY", KEY)
    code = command("hosts", "invite", "lab-9")["code"]
    for name in ("GONOGO_DATABASE_URL", "GONOGO_SECRET_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("GONOGO_BROKER_URL", guarded.worker_url)
    monkeypatch.setenv("GONOGO_VAR_DIR", str(tmp_path))
    environment = clean_environment(
        GONOGO_BROKER_URL=guarded.worker_url, GONOGO_VAR_DIR=str(tmp_path), GONOGO_HEARTBEAT_S="0.5"
    )
    worker = Process(["worker"], environment, tmp_path / "worker.log")
    settings = settings_for(engine, guarded.url)
    try:
        with running(settings):
            enrolled = command("hosts", "enroll", code)
            worker.start()
            job_id = submit(engine, settings, 2, canonical=TINY, build="correct")
            job = until(engine, job_id, lambda job: job.state.final)
            assert job.counts == {"pass": 2}, worker.log.read_text()
            healthy = command("doctor", "--part", "clock", "--part", "redis")
            assert healthy["ok"], healthy
            assert command("hosts", "rotate")["key"] != enrolled["key"]
            job = until(
                engine,
                submit(engine, settings, 2, canonical=TINY, build="correct"),
                lambda job: job.state.final,
            )
            assert job.counts == {"pass": 2}, worker.log.read_text()
            assert worker.stop() == 0
    finally:
        worker.close()
    assert "NOPERM" not in worker.log.read_text()
    path = tmp_path / identity.FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert enrolled["host"] == "lab-9"
    with reading(engine) as current:
        host = hosts.get(current, "lab-9")
        actions = [entry.action for entry in audit_log.entries(current)]
    assert host is not None
    assert host.refused == {}
    assert host.clock_skew_s == pytest.approx(0.0, abs=5.0)
    assert {"host.invited", "host.enrolled", "host.rotated"} <= set(actions)


FORBIDDEN: list[tuple[str, ...]] = [
    ("LRANGE", "background", "0", "-1"),
    ("BRPOP", "background", "1"),
    ("RPUSH", "background", "x"),
    ("LRANGE", "heartbeat", "0", "-1"),
    ("HGETALL", "unacked"),
    ("HDEL", "unacked", "x"),
    ("ZRANGE", "unacked_index", "0", "-1"),
    ("SET", "gonogo:device:x", "work"),
    ("DEL", "gonogo:device:x"),
    ("SET", "gonogo:cancel:x", "1"),
    ("LPUSH", "gonogo:cancel:x", "1"),
    ("LPUSH", "gonogo:dispatch", "1"),
    ("GETRANGE", "gonogo:broker_generation", "0", "-1"),
    ("LPUSH", "celery", "x"),
    ("KEYS", "*"),
    ("SCAN", "0"),
    ("FLUSHALL",),
    ("CONFIG", "GET", "*"),
    ("ACL", "LIST"),
    ("CLIENT", "LIST"),
    ("CLIENT", "KILL", "TYPE", "normal"),
    ("EVAL", "return 1", "0"),
    ("MONITOR",),
    ("SUBSCRIBE", "x"),
    ("INFO",),
]


def test_a_workers_account_reads_no_results_and_changes_no_orders(guarded: GuardedRedis) -> None:
    allowed = []
    for words in FORBIDDEN:
        with (
            contextlib.suppress(redis.exceptions.NoPermissionError),
            redis.Redis.from_url(guarded.worker_url) as client,
        ):
            allowed.append((words, client.execute_command(*words)))
    assert allowed == []
    with redis.Redis.from_url(f"redis://127.0.0.1:{guarded.port}/0") as nobody:
        assert nobody.ping()
        with pytest.raises(redis.exceptions.NoPermissionError):
            nobody.lpush("background", "x")
    with redis.Redis.from_url(guarded.url) as service:
        for words in [("FLUSHALL",), ("CONFIG", "GET", "*"), ("KEYS", "*"), ("ACL", "LIST")]:
            with pytest.raises(redis.exceptions.NoPermissionError):
                service.execute_command(*words)


def test_a_code_enrolls_one_key_within_its_time(
    engine: Engine, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyring, "KNOWN_S", 0.0)
    code, late = code_of(engine, "lab-1"), code_of(engine, "lab-2")
    revoked = code_of(engine, "lab-3")
    with session(engine) as current:
        (leaked,) = (
            invitation for invitation in invitations.list_(current) if invitation.name == "lab-3"
        )
        invitations.revoke(current, leaked, actor="me", reason="leaked")
        current.execute(
            update(InvitationRow)
            .where(InvitationRow.name == "lab-2")
            .values(expires_at=utcnow() - timedelta(seconds=1))
        )
    with running(settings_for(engine, redis_url)), queue.redis_client(redis_url) as client:
        first = exchange.enroll(client, code, tmp_path / "first")
        assert identity.load(tmp_path / "first") == first
        assert exchange.hello(client, first).body["name"] == "lab-1"
        with pytest.raises(InfrastructureError, match="used before"):
            exchange.enroll(client, code, tmp_path / "second")
        with pytest.raises(InfrastructureError, match="expired"):
            exchange.enroll(client, late, tmp_path / "third")
        with pytest.raises(InfrastructureError, match="revoked at"):
            exchange.enroll(client, revoked, tmp_path / "sixth")
        with pytest.raises(ValueError, match="mistyped"):
            exchange.enroll(client, code[:-3], tmp_path / "fourth")
        # a code of another service: nobody here knows it
        foreign = Invitation.generate(PrivateKey.generate().public).code
        with pytest.raises(exchange.NoAnswer):
            exchange.enroll(client, foreign, tmp_path / "fifth", wait_s=1.0)
        again = exchange.enroll(client, code_of(engine, "lab-1"), tmp_path / "first")
        assert again.key.id != first.key.id
        with pytest.raises(exchange.NoAnswer):
            exchange.hello(client, first, wait_s=1.0)
    with session(engine) as current:
        assert [host.name for host in hosts.every(current)] == ["lab-1"]
        assert invitations.list_(current) == []
        known = invitations.list_(current, None)
        assert sorted(one.state for one in known) == ["expired", "revoked", "used", "used"]
        for invitation in known:
            if invitation.state in ("used", "expired"):
                with pytest.raises(invitations.NotRevocable):
                    invitations.revoke(current, invitation, actor="me", reason="")


def test_a_lost_answer_costs_neither_the_code_nor_a_rotation(
    engine: Engine, redis_url: str, tmp_path: Path
) -> None:
    code = code_of(engine, "lab-1")
    settings = settings_for(engine, redis_url)
    with queue.redis_client(redis_url) as client:
        with pytest.raises(exchange.NoAnswer):  # nobody is there, but the question stays
            exchange.enroll(client, code, tmp_path, wait_s=1.0)
        with running(settings):
            me = exchange.enroll(client, code, tmp_path)
        for _ in range(2):
            with pytest.raises(exchange.NoAnswer):
                exchange.rotate(client, tmp_path, wait_s=1.0)
        assert identity.load(tmp_path).key == me.key
        with running(settings):
            rotated = exchange.rotate(client, tmp_path)
            assert rotated.key.id != me.key.id
            assert exchange.hello(client, rotated).body["name"] == "lab-1"
            with pytest.raises(InfrastructureError, match="rotated within the last hour"):
                exchange.rotate(client, tmp_path)
            assert exchange.hello(client, identity.load(tmp_path)).body["name"] == "lab-1"
    with reading(engine) as current:
        host = hosts.get(current, "lab-1")
    assert host is not None
    assert host.key == rotated.key.id


def test_a_stranger_with_the_broker_can_not_act_as_the_service(
    redis_url: str, tmp_path: Path
) -> None:
    code = Invitation.generate(PrivateKey.generate().public).code
    stranger = PrivateKey.generate()

    def answer() -> None:
        with queue.redis_client(redis_url) as client:
            item: Any = client.brpop([queue.HEARTBEAT_QUEUE], timeout=WAIT_S)
            body = json.loads(item[1].decode().partition("\n")[2])
            forged = {"nonce": body["nonce"], "host": "x", "name": "x", "time": time.time()}
            for text in ("no JSON", queue.seal(stranger, queue.REPLY, forged)):
                client.rpush(queue.reply_key(body["nonce"]), text)

    thread = threading.Thread(target=answer)
    thread.start()
    with queue.redis_client(redis_url) as client, pytest.raises(exchange.NoAnswer):
        exchange.enroll(client, code, tmp_path, wait_s=2.0)
    thread.join()
    assert not (tmp_path / identity.FILE).exists()


def _gone(path: Path) -> None:
    path.unlink()


def _open(path: Path) -> None:
    path.chmod(0o640)


def _damaged(path: Path) -> None:
    path.write_text('{"private_key": "c2VjcmV0"}')


@pytest.mark.parametrize(
    ("spoil", "words"),
    [(_gone, "not enrolled"), (_open, "chmod 600"), (_damaged, "enroll this host again")],
)
def test_a_worker_without_a_private_key_of_its_own_says_what_to_do(
    tmp_path: Path, spoil: Callable[[Path], None], words: str
) -> None:
    key = PrivateKey.generate()
    identity.Identity("id", "lab-1", key, key.public).save(tmp_path)
    spoil(tmp_path / identity.FILE)
    with pytest.raises(InfrastructureError, match=words) as problem:
        identity.load(tmp_path)
    assert "c2VjcmV0" not in str(problem.value)


def test_a_workers_clock_is_set_again_and_an_answer_that_does_not_come_is_no_matter() -> None:
    clock, repeated = queue.ServiceClock(), threading.Event()
    answers = iter([exchange.NoAnswer("nobody"), exchange.Answer({}, 30.0, 0.1)])

    def ask() -> exchange.Answer:
        answer = next(answers, None)
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            repeated.set()
            keeper.close()
            return exchange.Answer({}, 30.0, 0.1)
        return answer

    keeper = Timekeeper(ask, clock, every_s=0.001)
    keeper.start()
    assert repeated.wait(10)
    assert clock.skew_s == pytest.approx(30.0, abs=1.0)


def test_a_worker_whose_clock_is_five_minutes_ahead_refuses_to_start(
    redis_url: str, tmp_path: Path
) -> None:
    place = Workplace(redis_url, tmp_path, clock_ahead_s=300)
    try:
        worker = place.start_unheard("emulator")
        place.beat(lambda _: True, task=queue.HELLO)
        assert worker.wait(30) != 0
        assert "clock is 300 s ahead of the service's; allowed: 60 s" in place.log()
    finally:
        place.close()
