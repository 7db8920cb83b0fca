"""Requests at once: a few of each token, and a few of all; the others wait, and not for ever."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import event_loop
from gonogo_service.access import request_limits
from gonogo_service.access.principals import Principal
from gonogo_service.access.request_limits import OF_ALL, OF_TOKEN, WAITING, LimitRequests
from gonogo_service.kit.problems import Problem


class Slow:
    """An app whose answers wait for `go`."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.running = 0
        self.most = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        await self.go.wait()
        self.running -= 1


def ask(app: LimitRequests, name: str, path: str = "/compare", method: str = "GET") -> Any:
    """Return the task of one request of a token."""
    who = Principal("token", name, name, frozenset({"read"}))
    scope = {"type": "http", "method": method, "path": path, "state": {"principal": who}}
    return asyncio.ensure_future(app(scope, lambda: None, lambda message: None))  # type: ignore[arg-type]


async def settle() -> None:
    """Let every task run until it waits."""
    for _ in range(10):
        await asyncio.sleep(0)


def test_a_token_has_a_few_requests_at_once_and_a_line() -> None:
    async def play() -> None:
        slow = Slow()
        app = LimitRequests(slow, 16)
        tasks = [ask(app, "ann") for _ in range(OF_TOKEN + WAITING + 3)]
        await settle()
        assert slow.running == OF_TOKEN
        refused = [task for task in tasks if task.done()]
        assert len(refused) == 3
        problem = refused[0].exception()
        assert isinstance(problem, Problem)
        assert (problem.status, problem.headers["Retry-After"]) == (429, "1")
        others = [ask(app, name) for name in ("bob", "eve", "joe") for _ in range(OF_TOKEN)]
        await settle()
        assert slow.running == OF_ALL
        # streams need no place, and changes have their own
        streams = [ask(app, "ann", "/api/v1/jobs/1/events"), ask(app, "ann", method="POST")]
        await settle()
        assert slow.running == OF_ALL + 2
        slow.go.set()
        await asyncio.gather(*others, *streams, *(task for task in tasks if task not in refused))
        assert slow.running == 0
        assert not app._lines

    event_loop.run(play())


def test_a_request_that_finds_no_place_in_time_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_limits, "PATIENCE_S", 0.01)

    async def play() -> None:
        slow = Slow()
        app = LimitRequests(slow, 16)
        first = [ask(app, "ann") for _ in range(OF_TOKEN)]
        with pytest.raises(Problem, match="busy") as caught:
            await ask(app, "ann")
        assert (caught.value.status, caught.value.headers["Retry-After"]) == (503, "5")
        slow.go.set()
        await asyncio.gather(*first)

    event_loop.run(play())


def test_streams_take_no_more_than_their_share_of_the_connections() -> None:
    """500 streams of one reader left no connection for anybody else, and none for probes."""

    async def play() -> list[int]:
        slow = Slow()
        app = LimitRequests(slow, 16)
        tasks = [
            ask(app, name, "/api/v1/jobs/1/events")
            for name in ("ann", "ann", "ann", "bob", "bob", "eve", "eve", "joe", "joe", "kim")
        ]
        await settle()
        refused = [task.exception().status for task in tasks if task.done()]
        slow.go.set()
        await asyncio.gather(*(task for task in tasks if not task.done()))
        assert not app._streams
        return refused

    assert event_loop.run(play()) == [429, 429]
