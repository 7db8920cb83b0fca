"""Caddy with our Caddyfile, in front of the service: who asks, slow senders, and a restart."""

from __future__ import annotations

import shutil
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from api import on_port
from patience import WAIT_S, scaled
from servers import Missing, Server, free_port, running

CADDYFILE = Path(__file__).parents[3] / "Caddyfile"


class Caddy(Server):
    """The proxy of docker-compose.yml, which waits for headers only a short time."""

    def __init__(self) -> None:
        super().__init__()
        self.program = shutil.which("caddy")
        if self.program is None:
            raise Missing("caddy: not on PATH (apt-get install caddy)")
        self.upstream = free_port()

    def _command(self) -> list[str]:
        config = self.folder / "Caddyfile"
        seconds = f"read_header {scaled(0.3)}s"
        config.write_text(CADDYFILE.read_text().replace("read_header 10s", seconds))
        assert seconds in config.read_text()
        return [str(self.program), "run", "--config", str(config), "--adapter", "caddyfile"]

    def _options(self) -> dict[str, Any]:
        places = {"HOME": str(self.folder), "UPSTREAM": f"127.0.0.1:{self.upstream}"}
        return {"env": {**places, "SITE": f":{self.port}"}}

    def _ready(self) -> None:
        socket.create_connection(("127.0.0.1", self.port), timeout=1).close()

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://localhost:{self.port}"


@pytest.fixture(scope="module")
def caddy() -> Iterator[Caddy]:
    """A running proxy, whose service is not there yet."""
    yield from running(Caddy)


def test_a_client_behind_the_proxy_is_no_local_one(caddy: Caddy, sqlite_url: str) -> None:
    with on_port(sqlite_url, port=caddy.upstream, proxies=("127.0.0.1",)) as (direct, _):
        assert direct.get("/api/v1/jobs").status_code == 200
        forged = {"X-Forwarded-For": "127.0.0.1"}
        answer = httpx.get(f"{caddy.url}/api/v1/jobs", headers=forged, timeout=WAIT_S)
        assert answer.status_code == 401
        assert httpx.get(f"{caddy.url}/healthz", timeout=WAIT_S).status_code == 200


def test_whoever_never_ends_its_headers_is_cut_off(caddy: Caddy) -> None:
    with socket.create_connection(("127.0.0.1", caddy.port), timeout=WAIT_S) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ")
        assert slow.recv(100) == b""


def test_a_request_waits_for_an_api_that_restarts(caddy: Caddy, sqlite_url: str) -> None:
    statuses: list[int] = []

    def ask() -> None:
        statuses.append(httpx.get(f"{caddy.url}/healthz", timeout=WAIT_S).status_code)

    asking = threading.Thread(target=ask)
    asking.start()
    time.sleep(0.3)
    assert statuses == []
    with on_port(sqlite_url, port=caddy.upstream):
        asking.join(WAIT_S)
    assert statuses == [200]
