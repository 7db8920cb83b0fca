"""An API that is restarted behind a socket that somebody else holds, as systemd does, fails no
request."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx

import documented
import event_loop
from forked import Forked
from gonogo.settings import Settings
from gonogo_service.kit.server import make_server
from patience import WAIT_S
from running_service import TINY, answers, clean_environment, until

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def page(scope: object, receive: object, send: Callable[..., Awaitable[None]]) -> None:
    """An application of one empty page."""
    headers = [(b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def test_a_request_on_an_open_connection_is_answered_while_the_server_stops() -> None:
    server = make_server(page, Settings(log_level="error"), lambda: None, host="127.0.0.1", port=0)

    async def play() -> list[bytes]:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            address = listener.getsockname()
            serving = asyncio.create_task(server.serve(sockets=[listener.dup()]))
            while not server.started:
                await asyncio.sleep(0.001)
            used, fresh = [await asyncio.open_connection(*address) for _ in range(2)]
            used[1].write(REQUEST)
            await used[0].readuntil(b"\r\n\r\n")
            while len(server.server_state.connections) < 2:
                await asyncio.sleep(0.001)
            server.should_exit = True
            while server.servers[0].is_serving():
                await asyncio.sleep(0.001)
            for _, writer in (used, fresh):
                writer.write(REQUEST)
            texts = [await reader.read() for reader, _ in (used, fresh)]
            for _, writer in (used, fresh):
                writer.close()
            await serving
            return texts

    for text in event_loop.run(play()):
        assert text.startswith(b"HTTP/1.1 200 ")
        assert b"connection: close\r\n" in text


def test_no_request_fails_while_the_api_is_restarted(
    tmp_path: Path, migrated_sqlite_url: str, redis_url: str
) -> None:
    settings = {"DATABASE_URL": migrated_sqlite_url, "BROKER_URL": redis_url}
    settings |= {"EMBEDDED": "true", "SECRET_KEY": "k" * 32}
    environment = clean_environment(**{f"GONOGO_{name}": settings[name] for name in settings})
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    statuses: Counter[object] = Counter()
    is_over = threading.Event()

    def start() -> Forked:
        return Forked(["serve"], environment, tmp_path / "api.log", listener=listener)

    def new_client() -> httpx.Client:
        # without TLS's certificates, whose loading takes longer than a request
        options: Any = {"event_hooks": documented.HOOKS, "timeout": WAIT_S, "verify": False}
        return httpx.Client(base_url=f"{url}/api/v1", **options)

    def use(keep_alive: bool) -> None:
        body = {"test": TINY, "build": "correct", "seeds": {"start": 0, "count": 1}}
        client = new_client()
        while not is_over.is_set():
            try:
                statuses[client.post("/jobs", json=body).status_code] += 1
                statuses[client.get("/jobs").status_code] += 1
            except httpx.TransportError as problem:
                statuses[repr(problem)] += 1
            if not keep_alive:
                client.close()
                client = new_client()
        client.close()

    def answered() -> None:
        enough = statuses.total() + 8
        until(lambda: statuses.total() > enough, what="requests")

    api = start()
    users = [threading.Thread(target=use, args=(keep_alive,)) for keep_alive in (True, False)]
    try:
        until(lambda: answers(url), what="the API")
        for user in users:
            user.start()
        answered()
        api.terminate()
        assert api.wait(WAIT_S) in (0, -signal.SIGTERM)
        api = start()
        answered()
    finally:
        is_over.set()
        for user in users:
            user.join(WAIT_S)
        api.terminate()
        api.wait(WAIT_S)
        listener.close()
    assert set(statuses) == {200, 202}, statuses
