"""Health, readiness, metrics, and the modules that the API process loads."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from pydantic import SecretStr
from sqlalchemy import text

import event_loop
import stored_jobs
from api import JOB, Api, TestClient, in_process, make_settings, refusal
from gonogo.settings import Settings
from gonogo_service import app as application
from gonogo_service.app import create_app
from gonogo_service.background.deliver import make_deliver
from gonogo_service.background.process import create_background
from gonogo_service.kit.problems import Problem
from gonogo_service.operate import metrics, readiness, schema
from gonogo_service.operate.readiness import Readiness, Ready
from patience import scaled
from records import pick
from servers import PostgresServer, RedisServer


@pytest.fixture(autouse=True)
def uncached(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each scrape read the database, and each probe check."""
    monkeypatch.setattr(metrics, "MAX_AGE_S", 0.0)
    monkeypatch.setattr(metrics, "TOTALS_AGE_S", 0.0)
    monkeypatch.setattr(readiness, "KEPT_S", 0.0)


def metric(api: Api, name: str) -> float:
    """Return the value of one series of /metrics."""
    lines = api.client.get("/metrics").text.splitlines()
    (line,) = (line for line in lines if line.startswith(f"{name} "))
    return float(line.rsplit(" ", 1)[1])


def missing(client: Any) -> str:
    """Return what /readyz misses."""
    code, field = refusal(client.get("/readyz"))
    assert (code, field is None) == (503, False)
    return str(field)


def test_ready_means_database_schema_and_broker(migrated_sqlite_url: str, redis_url: str) -> None:
    with in_process(migrated_sqlite_url, broker_url=redis_url) as api:
        assert api.client.get("/healthz").json() == {"status": "ok"}
        ready = {"database": "ok", "schema": "head", "broker": "ok"}
        assert api.client.get("/readyz").json() == ready


def test_an_unmigrated_or_older_database_is_not_ready_a_newer_one_is(
    sqlite_url: str, redis_url: str
) -> None:
    app = create_app(make_settings(sqlite_url, broker_url=redis_url))
    with TestClient(app, base_url="http://localhost", client=("127.0.0.1", 1)) as client:
        problem = client.get("/readyz").json()
        assert pick(problem, "status", "field", "value") == (503, "schema", "empty")
        assert "gonogo db upgrade" in problem["detail"]
        engine = app.state.context.engine
        schema.upgrade(engine)
        with engine.begin() as connection:
            later = "UPDATE alembic_version SET version_num = 'of the next release'"
            connection.execute(text(later))
        assert client.get("/readyz").json()["schema"] == "ahead"


def test_a_dead_broker_is_named_and_comes_back(sqlite_url: str, private_redis: RedisServer) -> None:
    with in_process(sqlite_url, broker_url=private_redis.url) as api:
        private_redis.stop()
        assert missing(api.client) == "broker"
        assert api.client.get("/healthz").status_code == 200
        private_redis.start()
        assert api.client.get("/readyz").status_code == 200


def test_a_dead_database_is_a_503_that_tells_nothing_of_it_and_comes_back(
    private_postgres: PostgresServer, redis_url: str
) -> None:
    with in_process(private_postgres.url(), broker_url=redis_url) as api:
        job = api.submit()
        private_postgres.stop()
        assert missing(api.client) == "database"
        for answer in (api.client.get("/api/v1/jobs"), api.client.post("/api/v1/jobs", json=JOB)):
            assert refusal(answer)[0] == 503
            assert "retry-after" in answer.headers
            assert str(private_postgres.port) not in answer.text
        private_postgres.start()
        assert api.get(f"/jobs/{job}")["state"] == "queued"


def test_a_database_whose_schema_is_locked_is_not_ready(
    private_postgres: PostgresServer, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The statement ends at its own timeout, and its thread with it."""
    monkeypatch.setattr(application, "PATIENCE_S", 0.05)
    monkeypatch.setattr(readiness, "PATIENCE_S", 60.0)
    with in_process(private_postgres.url(), broker_url=redis_url) as api:
        with api.context.engine.begin() as connection:
            connection.execute(text("LOCK TABLE alembic_version IN ACCESS EXCLUSIVE MODE"))
            assert missing(api.client) == "database"
        assert api.client.get("/readyz").status_code == 200


def test_metrics_tell_the_state_of_the_service(api: Api) -> None:
    with api.context.session() as session:
        stored_jobs.finished(session)
    api.submit()
    queue, requests = "emulator.wormhole.n150", "gonogo_http_requests_total{method="
    for number in range(5):
        api.client.get(f"/api/v1/jobs/{number}")
        api.client.get(f"/nothing/{number}")
    for name, value in {
        'gonogo_jobs{state="finished"}': 1,
        'gonogo_jobs{state="queued"}': 1,
        'gonogo_seeds{verdict="pass_by_tolerance"}': 8,
        'gonogo_flags{kind="passes_by_tolerance"}': 1,
        "gonogo_ingest_lag_seconds": 0,
        f'gonogo_chunks{{queue="{queue}",state="waiting"}}': 1,
        'gonogo_workers{state="idle"}': 0,
        f'{requests}"POST",route="/api/v1/jobs",status="202"}}': 1,
        # one series for all jobs, and one for all that is not there
        f'{requests}"GET",route="/api/v1/jobs/{{job_id}}",status="404"}}': 5,
        f'{requests}"GET",route="unmatched",status="404"}}': 5,
    }.items():
        assert metric(api, name) == value, name
    assert 0 <= metric(api, f'gonogo_queue_age_seconds{{queue="{queue}"}}') < 60


def test_probes_share_a_check_and_a_failure_is_never_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "KEPT_S", 60.0)
    ready, gone = Ready("ok", "head", "ok"), OSError("gone")
    outcomes: list[Ready | OSError] = [gone, gone, ready]

    def check() -> Ready:
        outcome = outcomes.pop(0)
        if isinstance(outcome, OSError):
            raise outcome
        return outcome

    async def play() -> None:
        parts = Readiness(check)
        for _ in range(2):
            with pytest.raises(OSError, match="gone"):
                await parts.state()
        assert await asyncio.gather(*(parts.state() for _ in range(3))) == [ready] * 3

    event_loop.run(play())


def test_a_check_that_never_ends_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "PATIENCE_S", 0.0)
    go, checks = threading.Event(), []

    def frozen() -> Ready:
        checks.append(1)
        go.wait()
        return Ready("ok", "head", "ok")

    async def play() -> None:
        parts = Readiness(frozen)
        try:
            for _ in range(2):
                with pytest.raises(Problem, match="did not answer within 0 s"):
                    await asyncio.wait_for(parts.state(), scaled(10))
        finally:
            go.set()  # else the thread, and with it the process, never ends

    event_loop.run(play())
    assert len(checks) <= 1  # no second thread waits beside the first


def test_what_must_be_set_is_said_at_the_start() -> None:
    without: Any = {"database_url": None}, {"secret_key": None, "embedded": False}
    for changes, variable in zip(without, ("DATABASE_URL", "SECRET_KEY"), strict=True):
        with pytest.raises(ValueError, match=f"GONOGO_{variable}"):
            create_app(make_settings(**{"database_url": "sqlite://", **changes}))
    with pytest.raises(ValueError, match="GONOGO_BROKER_URL, GONOGO_SECRET_KEY"):
        create_background(Settings(database_url="sqlite:///x"), threading.Event())


@pytest.mark.parametrize(
    ("settings", "clients"),
    [
        ({}, 0),
        ({"github_token": SecretStr("ghp_token")}, 2),
        ({"github_app_id": "17", "github_app_key": SecretStr("no key")}, 0),
    ],
)
def test_a_wrong_key_of_github_keeps_the_background_from_nothing_else(
    settings: dict[str, Any], clients: int
) -> None:
    urls = {"database_url": "sqlite:///nowhere/x.sqlite", "broker_url": "redis://127.0.0.1:1/0"}
    config = Settings(**urls, secret_key=SecretStr("w" * 40), **settings)
    background = create_background(config, threading.Event())
    assert len(background.roles) == 8
    assert len(make_deliver(background.context).clients) == clients
    background.context.stop.set()
    background.run()  # it was asked to stop before the database was there
