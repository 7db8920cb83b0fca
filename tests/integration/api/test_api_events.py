"""Event streams of a real server: started, resumed, kept alive, and ended with the job or the
server."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import fastapi.routing
import httpx
import pytest

import stored_jobs
from api import SECRET, events_of, on_port, refusal
from gonogo_service.kit.database.engine import make_engine, session
from gonogo_service.people.context import Context
from patience import WAIT_S
from records import pick
from running_service import Process, clean_environment, until
from servers import free_port

Server = tuple[httpx.Client, Context]


@pytest.fixture
def server(migrated_sqlite_url: str) -> Iterator[Server]:
    with on_port(migrated_sqlite_url) as client_and_context:
        yield client_and_context


def submit(context: Context, seeds: int = 4) -> str:
    with context.session() as current:
        return stored_jobs.submit(current, seeds=seeds).id


def report(context: Context, job: str, *seeds: int) -> None:
    with context.session() as current:
        stored_jobs.report(current, job, [stored_jobs.row(seed, wrong=True) for seed in seeds])


def finish(context: Context, job: str) -> None:
    with context.session() as current:
        stored_jobs.finish(current, job)


def path(job: str) -> str:
    return f"/api/v1/jobs/{job}/events"


def test_a_stream_tells_what_happened_and_then_what_happens_and_ends_with_the_job(
    server: Server,
) -> None:
    client, context = server
    job = submit(context)
    with client.stream("GET", path(job)) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["x-content-type-options"] == "nosniff"
        messages = events_of(answer.iter_lines())
        assert next(messages) == {"retry": "1000"}
        first = next(messages)
        assert pick(first, "id", "event") == ("1", "state")
        assert json.loads(first["data"]) == {"state": "queued", "verdict": None}
        report(context, job, 0, 1)
        verdict, progress = next(messages), next(messages)
        assert (verdict["event"], progress["event"]) == ("verdict", "progress")
        assert json.loads(verdict["data"])["verdict"] == "pass_by_tolerance"
        counted = {"done": 2, "total": 4, "verdicts": {"pass_by_tolerance": 2}}
        assert json.loads(progress["data"]) == counted
        report(context, job, 2, 3)
        finish(context, job)
        rest = list(messages)
    assert [message["event"] for message in rest] == ["progress", "state"]
    assert json.loads(rest[-1]["data"]) == {"state": "finished", "verdict": "pass_by_tolerance"}
    assert [int(message["id"]) for message in (first, verdict, progress, *rest)] == [1, 2, 3, 4, 5]


def test_a_stream_resumes_after_the_event_that_was_seen_last(server: Server) -> None:
    client, context = server
    job = submit(context)
    report(context, job, 0)
    report(context, job, 1)
    finish(context, job)

    def numbered(**options: Any) -> list[dict[str, str]]:
        with client.stream("GET", path(job), **options) as answer:
            return [message for message in events_of(answer.iter_lines()) if "id" in message]

    everything = numbered()
    for number in range(len(everything)):
        for options in ({"headers": {"Last-Event-ID": str(number)}}, {"params": {"after": number}}):
            assert numbered(**options) == everything[number:]
    # 204: a browser stops asking
    answer = client.get(path(job), headers={"Last-Event-ID": str(len(everything))})
    assert (answer.status_code, answer.content) == (204, b"")


def test_many_streams_of_one_job_share_the_poll_and_all_hear_everything(server: Server) -> None:
    client, context = server
    job = submit(context)
    opened = threading.Barrier(9)

    def listen(_: int) -> list[str]:
        with client.stream("GET", path(job)) as answer:
            messages = events_of(answer.iter_lines())
            next(messages)
            opened.wait(WAIT_S)
            return [message["id"] for message in messages]

    with ThreadPoolExecutor(8) as pool:
        listening = pool.map(listen, range(8))
        opened.wait(WAIT_S)
        assert context.hub.streams == 8
        report(context, job, 0, 1, 2, 3)
        finish(context, job)
        first, *others = listening
    assert others == [first] * 7
    assert first == [str(number) for number in range(1, len(first) + 1)]


def test_a_silent_stream_is_kept_alive_by_comments(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fastapi.routing, "_PING_INTERVAL", 0.2)
    client, context = server
    job = submit(context)
    with client.stream("GET", path(job)) as answer:
        comments = (message for message in events_of(answer.iter_lines()) if "comment" in message)
        assert next(comments) == next(comments) == {"comment": "ping"}


def test_a_client_that_leaves_is_forgotten(server: Server) -> None:
    client, context = server
    with client.stream("GET", path(submit(context))) as answer:
        next(events_of(answer.iter_lines()))
    until(lambda: context.hub.streams == 0, what="the stream to be forgotten")


def test_a_wrong_last_event_id_is_refused_by_name(server: Server) -> None:
    client, context = server
    job = submit(context)
    for value in ("x", "-1", "99999999999", "1.5", ""):
        answer = client.get(path(job), headers={"Last-Event-ID": value})
        assert refusal(answer) == (422, "Last-Event-ID"), value


def test_a_server_stops_at_once_with_a_stream_open(
    tmp_path: Path, migrated_sqlite_url: str
) -> None:
    engine, port = make_engine(migrated_sqlite_url), free_port()
    with session(engine) as current:
        job = stored_jobs.submit(current).id
    engine.dispose()
    settings = {"DATABASE_URL": migrated_sqlite_url, "BROKER_URL": "redis://127.0.0.1:1/0"}
    settings |= {"EMBEDDED": "1", "SECRET_KEY": SECRET}
    environment = clean_environment(**{f"GONOGO_{name}": settings[name] for name in settings})
    log = tmp_path / "api.log"
    process = Process(["serve", "--port", str(port)], environment, log)
    process.start()
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=WAIT_S) as client:

            def lives() -> bool:
                with suppress(httpx.TransportError):
                    return client.get("/healthz").is_success
                return False

            until(lives, what="the server")
            with client.stream("GET", path(job)) as answer:
                messages = events_of(answer.iter_lines())
                assert [next(messages), next(messages)["event"]] == [{"retry": "1000"}, "state"]
                os.kill(process.pid, signal.SIGINT)
                assert list(messages) == []
        assert process.process.wait(WAIT_S) == 130  # what a shell expects after Ctrl-C
    finally:
        process.close()
    assert "graceful shutdown exceeded" not in log.read_text(), "the stream ended without being cut"
