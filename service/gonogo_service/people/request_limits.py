"""Requests at once: a few of each token, and a few of all, so that nobody stops the others.

Reads and changes have separate places: changes may wait for the database's write lock. A request
that finds no place waits in line for a while. Nothing waits in a thread.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gonogo.urls import API, IMPORTS
from gonogo_service.kit.body_limits import LENGTH
from gonogo_service.kit.json_bodies import LARGE
from gonogo_service.kit.problems import Problem
from gonogo_service.people.principals import Principal

OF_TOKEN = 2
"""Requests of a token that run at once."""
OF_ALL = 3
"""Reads, and changes, that run at once: they share one interpreter, so more would only slow each
other down, and the event loop, which answers probes."""
WAITING = 64
"""Requests of a token that wait in line; a browser asks for six things at once."""
PATIENCE_S = 15.0
HEAVY_READS = re.compile(
    rf"({API})?/(compare|matrix|worse|tests/[^/]+|workloads/[^/]+/history|runs/[^/]+/results)"
    r"(/.*|\.json|\.csv)?"
)
"""Reads that compute for long: they classify all tests of a build, or all results of a test."""
HEAVY_BYTES = LARGE
"""Changes with a larger body compute for long: a job with a list of a hundred thousand seeds. Files
to import have limits of their own, because they may take minutes."""
HEAVY_OF_TOKEN = 1
"""Heavy requests of a token that run at once, of each kind."""
HEAVY_OF_ALL = {True: 2, False: 1}
"""Heavy reads and heavy changes that run at once. At every call of the system, the event loop waits
for its turn behind each thread that computes. A read may wait for the database, which a change does
for a moment only: so two of them."""
STREAMS = "/events"
"""The end of addresses that stream events for hours, without a thread."""
STREAM_SHARE, TOKEN_SHARE = 2, 8
"""All streams may have half of the connections, those of a token an eighth."""
READS = frozenset({"GET", "HEAD"})


@dataclass
class _Line:
    """The requests of a token, of one kind."""

    places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(OF_TOKEN))
    heavy: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(HEAVY_OF_TOKEN))
    requests: int = 0


class LimitRequests:
    """Middleware that lets a few requests run at once; it stands behind the identification."""

    def __init__(self, app: ASGIApp, connections: int) -> None:
        self.app = app
        self._connections = connections
        self._streams: Counter[str] = Counter()
        self._lines: dict[tuple[bool, str], _Line] = {}
        self._places = {kind: asyncio.Semaphore(OF_ALL) for kind in (True, False)}
        self._heavy = {kind: asyncio.Semaphore(most) for kind, most in HEAVY_OF_ALL.items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        principal = scope.get("state", {}).get("principal") if scope["type"] == "http" else None
        if principal is None:
            await self.app(scope, receive, send)
            return
        if scope["path"].endswith(STREAMS):
            with self._stream(principal):
                await self.app(scope, receive, send)
            return
        reads = scope["method"] in READS
        is_heavy = _is_heavy(scope)
        places = [self._heavy[reads]] if is_heavy else []
        async with self._of_token(principal, reads, is_heavy):
            await self._of_all([*places, self._places[reads]], scope, receive, send)

    @contextmanager
    def _stream(self, principal: Principal) -> Iterator[None]:
        """Count a stream until it ends: each holds a connection. Raises Problem 429."""
        most = max(1, self._connections // TOKEN_SHARE)
        most_of_all = max(1, self._connections // STREAM_SHARE)
        if self._streams[principal.id] >= most or self._streams.total() >= most_of_all:
            raise Problem(
                429,
                f"Too many streams of events are open (allowed: {most} of the token "
                f"{principal.name!r}, {most_of_all} of all). Ask for the job instead, or try again "
                "later.",
                slug="too-many-streams",
                headers={"Retry-After": "30"},
            )
        self._streams[principal.id] += 1
        try:
            yield
        finally:
            self._streams[principal.id] -= 1
            if not self._streams[principal.id]:
                del self._streams[principal.id]

    @asynccontextmanager
    async def _of_token(
        self, principal: Principal, reads: bool, is_heavy: bool
    ) -> AsyncIterator[None]:
        key = reads, principal.id
        line = self._lines.setdefault(key, _Line())
        if line.requests >= OF_TOKEN + WAITING:
            raise Problem(
                429,
                f"The token {principal.name!r} has too many requests at once (allowed: {OF_TOKEN}, "
                f"and {WAITING} that wait). Try again in a second.",
                slug="too-many-requests",
                headers={"Retry-After": "1"},
            )
        line.requests += 1
        try:
            with ExitStack() as places_held:
                # first: a heavy read that waits must not take the place of another read
                for places in [line.heavy, line.places] if is_heavy else [line.places]:
                    await _take(places)
                    places_held.callback(places.release)
                yield
        finally:
            line.requests -= 1
            if not line.requests:
                self._lines.pop(key, None)

    async def _of_all(
        self, places: list[asyncio.Semaphore], scope: Scope, receive: Receive, send: Send
    ) -> None:
        with ExitStack() as places_held:
            for place in places:
                await _take(place)
                places_held.callback(place.release)

            async def send_started(message: Message) -> None:
                places_held.close()  # a slow reader of a long answer takes no place of others
                await send(message)

            await self.app(scope, receive, send_started)


def _is_heavy(scope: Scope) -> bool:
    if scope["method"] in READS:
        return HEAVY_READS.fullmatch(scope["path"]) is not None
    length: int = scope["state"].get(LENGTH, 0)
    return length > HEAVY_BYTES and scope["path"] != IMPORTS


async def _take(places: asyncio.Semaphore) -> None:
    try:
        async with asyncio.timeout(PATIENCE_S):
            await places.acquire()
    except TimeoutError:
        raise Problem(
            503,
            f"The service is busy: no request began within {PATIENCE_S:g} s. Try again later.",
            slug="busy",
            headers={"Retry-After": "5"},
        ) from None
