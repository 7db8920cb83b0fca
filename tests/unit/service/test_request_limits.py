"""Requests at once: a few of each token, and a few of all; the others wait, and not for ever."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import event_loop
from gonogo_service.kit.body_limits import LENGTH
from gonogo_service.kit.problems import Problem
from gonogo_service.people import request_limits
from gonogo_service.people.principals import Principal
from gonogo_service.people.request_limits import (
    HEAVY_BYTES,
    HEAVY_OF_ALL,
    HEAVY_OF_TOKEN,
    OF_ALL,
    OF_TOKEN,
    WAITING,
    LimitRequests,
)


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


def ask(
    app: LimitRequests, name: str, path: str = "/jobs", method: str = "GET", length: int = 0
) -> Any:
    """Return the task of one request of a token."""
    who = Principal("token", name, name, frozenset({"read"}))
    state = {"principal": who, LENGTH: length}
    scope = {"type": "http", "method": method, "path": path, "state": state}
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


@pytest.mark.parametrize(
    ("request_of", "reads"),
    [
        (("/api/v1/compare",), True),
        (("/compare.json",), True),
        (("/api/v1/tests/abc/changes",), True),
        (("/tests/abc",), True),
        (("/matrix",), True),
        (("/api/v1/jobs", "POST", HEAVY_BYTES + 1), False),
    ],
)
def test_heavy_requests_run_few_at_once_and_leave_places_to_the_others(
    request_of: tuple[Any, ...], reads: bool
) -> None:
    """Each thread that computes is one more before the event loop, which answers probes."""
    light = ("/jobs",) if reads else ("/api/v1/jobs", "POST", HEAVY_BYTES)

    async def play() -> None:
        slow = Slow()
        app = LimitRequests(slow, 16)
        tasks = [ask(app, "ann", *request_of) for _ in range(4)]
        await settle()
        assert slow.running == HEAVY_OF_TOKEN
        tasks += [ask(app, name, *request_of) for name in ("bob", "eve", "joe")]
        await settle()
        assert slow.running == HEAVY_OF_ALL[reads]
        tasks += [ask(app, name, *light) for name in ("ann", "kim", "lou")]
        await settle()
        assert slow.running == OF_ALL
        slow.go.set()
        await asyncio.gather(*tasks)
        assert (slow.running, app._lines) == (0, {})

    event_loop.run(play())


@pytest.mark.parametrize("path", ["/", "/jobs", "/tests", "/api/v1/tests", "/api/v1/runs/x"])
def test_lists_and_small_pages_are_light(path: str) -> None:
    async def play() -> int:
        slow = Slow()
        app = LimitRequests(slow, 16)
        tasks = [ask(app, "ann", path) for _ in range(OF_TOKEN)]
        await settle()
        running = slow.running
        slow.go.set()
        await asyncio.gather(*tasks)
        return running

    assert event_loop.run(play()) == OF_TOKEN
