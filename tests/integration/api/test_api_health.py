"""Health, readiness, metrics, and the modules that the API process loads."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import text

import stored_jobs
from api import Api, TestClient, in_process, make_settings
from gonogo_service import app as application
from gonogo_service.app import create_app
from gonogo_service.operate import metrics, readiness, schema
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
    return next(
        (float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name + " ")),
        float("nan"),
    )


def test_ready_means_database_schema_and_broker(database_url: str, redis_url: str) -> None:
    with in_process(database_url, broker_url=redis_url) as api:
        assert api.client.get("/healthz").json() == {"status": "ok"}
        assert api.client.get("/readyz").json() == {
            "database": "ok",
            "schema": "head",
            "broker": "ok",
        }


def test_an_unmigrated_or_older_database_is_not_ready_a_newer_one_is(
    empty_database_url: str, redis_url: str
) -> None:
    app = create_app(make_settings(empty_database_url, broker_url=redis_url))
    with TestClient(app, base_url="http://localhost", client=("127.0.0.1", 1)) as client:
        answer = client.get("/readyz")
        assert answer.status_code == 503
        assert (answer.json()["field"], answer.json()["value"]) == ("schema", "empty")
        assert "gonogo db upgrade" in answer.json()["detail"]
        engine = app.state.context.engine
        schema.upgrade(engine)
        with engine.begin() as connection:
            connection.execute(
                text("UPDATE alembic_version SET version_num = 'of the next release'")
            )
        assert client.get("/readyz").json()["schema"] == "ahead"


def test_two_apps_of_the_same_settings_share_nothing(sqlite_url: str) -> None:
    settings = make_settings(sqlite_url)
    one, other = (create_app(settings).state.context for _ in range(2))
    one.hub.close()
    assert (one is other, one.engine is other.engine, one.hub is other.hub) == (False, False, False)
    for context in (one, other):
        context.engine.dispose()


def test_a_dead_broker_is_named_and_comes_back(sqlite_url: str, private_redis: RedisServer) -> None:
    with in_process(sqlite_url, broker_url=private_redis.url) as api:
        private_redis.stop()
        answer = api.client.get("/readyz")
        assert (answer.status_code, answer.json()["field"]) == (503, "broker")
        assert api.client.get("/healthz").status_code == 200
        private_redis.start()
        assert api.client.get("/readyz").status_code == 200


def test_a_dead_database_is_a_503_that_tells_nothing_of_it_and_comes_back(
    private_postgres: PostgresServer, redis_url: str
) -> None:
    with in_process(private_postgres.url(), broker_url=redis_url) as api:
        job = api.submit()
        private_postgres.stop()
        answer = api.client.get("/readyz")
        assert (answer.status_code, answer.json()["field"]) == (503, "database")
        for answer in (api.client.get("/api/v1/jobs"), api.client.post("/api/v1/jobs", json={})):
            assert answer.headers["content-type"] == "application/problem+json"
            assert str(private_postgres.port) not in answer.text
        assert api.client.get("/api/v1/jobs").status_code == 503
        assert "retry-after" in api.client.get("/api/v1/jobs").headers
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
            answer = api.client.get("/readyz")
        assert (answer.status_code, answer.json()["field"]) == (503, "database")
        assert api.client.get("/readyz").status_code == 200


def test_metrics_tell_the_state_of_the_service(database_url: str) -> None:
    with in_process(database_url) as api:
        with api.context.session() as session:
            stored_jobs.finished(session)
        assert metric(api, 'gonogo_jobs{state="finished"}') == 1
        assert metric(api, 'gonogo_seeds{verdict="pass_by_tolerance"}') == 8
        assert metric(api, 'gonogo_flags{kind="passes_by_tolerance"}') == 1
        assert metric(api, "gonogo_ingest_lag_seconds") == 0
        api.submit()
        assert metric(api, 'gonogo_jobs{state="queued"}') == 1
        assert metric(api, 'gonogo_chunks{queue="emulator.wormhole.n150",state="waiting"}') == 1
        assert 0 <= metric(api, 'gonogo_queue_age_seconds{queue="emulator.wormhole.n150"}') < 60
        assert metric(api, 'gonogo_workers{state="idle"}') == 0
        assert (
            metric(
                api, 'gonogo_http_requests_total{method="POST",route="/api/v1/jobs",status="202"}'
            )
            == 1
        )


def test_scrapes_at_the_same_time_share_one_read(
    migrated_sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "MAX_AGE_S", 60.0)
    with in_process(migrated_sqlite_url) as api, api.context.reading() as session:
        state = metrics.read(session, heartbeat_timeout_s=30.0) | metrics.totals(session)
    reads = []

    def read() -> metrics.State:
        reads.append(1)
        time.sleep(0.2)
        return state

    shared = metrics.Metrics(read, dict, lambda: 0)
    with ThreadPoolExecutor(4) as pool:
        scrapes = [pool.submit(shared.expose) for _ in range(4)]
    assert {b"gonogo_jobs" in scrape.result() for scrape in scrapes} == {True}
    assert len(reads) == 1


def test_metrics_have_one_series_for_all_jobs_and_for_all_that_is_not_there(
    sqlite_url: str,
) -> None:
    with in_process(sqlite_url) as api:
        for number in range(5):
            api.client.get(f"/api/v1/jobs/{number}")
            api.client.get(f"/nothing/{number}")
        assert (
            metric(
                api,
                'gonogo_http_requests_total{method="GET",route="/api/v1/jobs/{job_id}",status="404"}',
            )
            == 5
        )
        assert (
            metric(api, 'gonogo_http_requests_total{method="GET",route="unmatched",status="404"}')
            == 5
        )


def test_the_api_process_loads_neither_numba_nor_scipy(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from gonogo.settings import Settings\n"
        "from gonogo_service.app import create_app\n"
        f"app = create_app(Settings(database_url='sqlite:///{tmp_path}/x.sqlite', embedded=True))\n"
        "app.openapi()\n"
        "from gonogo_service.jobs.bodies import JobIn\n"
        "from gonogo_service.jobs import submission\n"
        "from gonogo_service.operate import schema\n"
        "context = app.state.context\n"
        "schema.upgrade(context.engine)\n"
        "test = {'kernel': 'layernorm_bw', 'shape': [32, 32]}\n"
        "body = JobIn(test=test, build='correct', seeds=[1])\n"
        "with context.session() as session:\n"
        "    submission.submit(session, body, context.settings, 'x')\n"
        "print(sorted({'numba', 'scipy', 'llvmlite'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("changes", "variable"),
    [
        ({"database_url": None}, "GONOGO_DATABASE_URL"),
        ({"secret_key": None, "embedded": False}, "GONOGO_SECRET_KEY"),
    ],
)
def test_what_must_be_set_is_said_at_the_start(changes: dict[str, object], variable: str) -> None:
    with pytest.raises(ValueError, match=variable):
        create_app(make_settings(**{"database_url": "sqlite://", **changes}))  # type: ignore[arg-type]
