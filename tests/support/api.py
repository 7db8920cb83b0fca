"""The HTTP service for tests: in this process for single requests, on a real port for streams."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from fastapi import FastAPI
from pydantic import SecretStr
from sqlalchemy import func, select

import documented
import migrated_files
from gonogo.settings import Settings
from gonogo_service.app import create_app
from gonogo_service.kit.database.base import Base
from gonogo_service.kit.server import make_server
from gonogo_service.people.context import Context
from gonogo_service.people.issuing import issue_token
from patience import WAIT_S

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it would rather have httpx2, which the project does not use
    from starlette.testclient import TestClient

SECRET = "a secret for tests, long enough for the settings"
JOB: dict[str, Any] = {
    "test": {
        "kernel": "layernorm_bw",
        "shape": [1, 1, 32, 64],
        "tolerance": {"rtol": 1e-3, "atol": 0.5},
    },
    "build": "tt-train-2025",
    "seeds": {"start": 0, "count": 4},
}
LOCAL = ("127.0.0.1", 50000)
ELSEWHERE = ("192.0.2.7", 50000)


@dataclass
class Api:
    """A client of a running app, and the parts behind it."""

    client: TestClient
    context: Context
    settings: Settings

    @property
    def app(self) -> FastAPI:
        """The app that the client calls."""
        assert isinstance(self.client.app, FastAPI)
        return self.client.app

    def submit(self, **changes: Any) -> str:
        """Submit JOB with changes; the job's id."""
        answer = self.client.post("/api/v1/jobs", json={**JOB, **changes})
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    def get(self, path: str, **options: Any) -> Any:
        """JSON of an address below /api/v1 that must answer 200."""
        answer = self.client.get("/api/v1" + path, **options)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def token(self, *scopes: str, name: str = "test") -> dict[str, str]:
        """The header of a new token."""
        with self.context.session() as session:
            return {
                "Authorization": "Bearer "
                + issue_token(session, name, scopes, keys=self.context.keys)
            }

    def browser(
        self, *scopes: str, base_url: str = "http://localhost"
    ) -> tuple[TestClient, dict[str, str]]:
        """A browser that has logged in, and the header that its pages send with a change."""
        client = self.visitor(base_url=base_url)
        token = self.token(*scopes)["Authorization"].removeprefix("Bearer ")
        assert client.post("/login", data={"token": token}).status_code == 303
        page = client.get("/jobs").text
        return client, {"X-CSRF-Token": page.split('name="csrf-token" content="')[1].split('"')[0]}

    def rows(self) -> dict[str, int]:
        """How many rows each table has; not the leases of its processes."""
        with self.context.reading() as session:
            return {
                name: session.scalar(select(func.count()).select_from(table)) or 0
                for name, table in Base.metadata.tables.items()
                if name != "leases"
            }

    def visitor(
        self, address: tuple[str, int] = ELSEWHERE, base_url: str = "http://localhost"
    ) -> TestClient:
        """A client with no cookies, at another address."""
        return checked(
            TestClient(self.client.app, base_url=base_url, client=address, follow_redirects=False)
        )


def make_settings(database_url: str, **changes: Any) -> Settings:
    """Settings of an embedded service unless told otherwise."""
    return Settings(
        **{
            "database_url": database_url,
            "embedded": True,
            "secret_key": SecretStr(SECRET),
            **changes,
        }
    )


def checked(client: TestClient) -> TestClient:
    """The client, which validates each JSON answer against the document."""
    client.event_hooks = documented.HOOKS
    return client


@contextmanager
def in_process(database_url: str, **changes: Any) -> Iterator[Api]:
    """The app on a migrated database, asked by a process of the same machine."""
    settings = make_settings(database_url, **changes)
    app = create_app(settings)
    context: Context = app.state.context
    migrated_files.upgrade(context.engine)
    with checked(
        TestClient(app, base_url="http://localhost", client=LOCAL, follow_redirects=False)
    ) as client:
        yield Api(client, context, settings)


@contextmanager
def on_port(
    database_url: str, *, port: int = 0, **changes: Any
) -> Iterator[tuple[httpx.Client, Context]]:
    """The app behind a real uvicorn on a port of its own, or on this one."""
    app = create_app(make_settings(database_url, **changes))
    context: Context = app.state.context
    migrated_files.upgrade(context.engine)
    server = make_server(app, context.settings, context.end_streams, host="127.0.0.1", port=port)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        deadline = time.monotonic() + WAIT_S
        while not server.started and thread.is_alive() and time.monotonic() < deadline:
            time.sleep(0.005)
        port = server.servers[0].sockets[0].getsockname()[1]
        with httpx.Client(
            base_url=f"http://127.0.0.1:{port}", timeout=WAIT_S, event_hooks=documented.HOOKS
        ) as client:
            yield client, context
    finally:
        server.should_exit = True
        thread.join(WAIT_S)
    assert not thread.is_alive()


def events_of(lines: Iterator[str]) -> Iterator[dict[str, str]]:
    """The messages of an event stream: {"id", "event", "data", ...}; comments under "comment"."""
    message: dict[str, str] = {}
    for line in lines:
        if not line:
            if message:
                yield message
            message = {}
        else:
            name, _, value = line.partition(":")
            message[name or "comment"] = value.strip()


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


def refusal(answer: httpx.Response) -> tuple[int, str | None]:
    """The status of a refused request, and the field that its problem document names."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    return answer.status_code, answer.json().get("field")
