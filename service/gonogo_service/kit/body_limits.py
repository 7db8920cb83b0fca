"""Limits of request bodies, by address: bytes, seconds, and how many are read at once.

They hold while the body streams, whatever length the request claims. A body that ends early, or
takes too long, is a refusal like any other. Where all places are taken, the body that has been on
its way for longest gives up its place, so that slow senders keep nobody out (`body_places`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Self

import anyio
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.body_limit import RequestBodyLimitResponder
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gonogo import urls
from gonogo.settings import Settings
from gonogo_service.kit.body_places import BodyPlaces
from gonogo_service.kit.networks import network_of
from gonogo_service.kit.problems import Problem

DELIVERY_S = 10.0
"""GitHub gives up after this time."""
IMPORT_FACTOR = 4.0
"""An uploaded file may take this many times the deadline of other bodies."""
COMPLETE = "body_complete"
"""The key in a request's state: its body has arrived, or it has none."""
LENGTH = "body_length"
"""The key in a request's state: the bytes of a body that has arrived."""


@dataclass(frozen=True)
class BodyLimit:
    """A number of bytes with the setting that defines it, and how many bodies are read at once."""

    size: int
    setting: str
    deadline_s: float = 30.0
    at_once: int = 128
    """The bodies of all senders; so the memory of bodies is bounded."""
    of_sender: int = 16
    """The bodies of one token, or of one network without a token: others still get through."""


@dataclass(frozen=True)
class BodyLimits:
    """The body limits of all addresses."""

    default: BodyLimit
    by_path: Mapping[str, BodyLimit] = field(default_factory=dict)
    """Path -> limit, for paths that don't use the default."""

    @classmethod
    def of_settings(cls, settings: Settings) -> Self:
        """Read the limits from the settings."""
        seconds = settings.body_deadline_s
        default = BodyLimit(settings.max_body_bytes, "GONOGO_MAX_BODY_BYTES", seconds)
        delivery = BodyLimit(
            settings.max_delivery_bytes,
            "GONOGO_MAX_DELIVERY_BYTES",
            min(DELIVERY_S, seconds),
            at_once=32,
            of_sender=8,
        )
        by_path = {
            urls.IMPORTS: BodyLimit(
                settings.max_import_bytes,
                "GONOGO_MAX_IMPORT_BYTES",
                IMPORT_FACTOR * seconds,
                at_once=8,
                of_sender=4,
            ),
            urls.GITHUB_DELIVERIES: delivery,
            urls.CI_DELIVERIES: delivery,
        }
        return cls(default, by_path)

    def of(self, path: str) -> BodyLimit:
        """Return the limit of an address."""
        return self.by_path.get(path, self.default)


def has_body(scope: Scope) -> bool:
    """Return whether a request announces a body."""
    headers = Headers(scope=scope)
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers


class LimitBodies:
    """Middleware that stops reading at the limits."""

    def __init__(self, app: ASGIApp, limits: BodyLimits) -> None:
        self.app = app
        self.limits = limits
        self._places = BodyPlaces()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not has_body(scope):
            await self.app(scope, receive, send)
            return
        encoding = Headers(scope=scope).get("content-encoding", "identity")
        if encoding.lower() != "identity":
            raise Problem(
                415,
                f"Compressed bodies are not accepted (Content-Encoding: {encoding[:40]!r}): send "
                "the body as it is.",
                slug="content-encoding",
            )
        limit = self.limits.of(scope["path"])
        bounded = RequestBodyLimitResponder(self.app, limit.size)
        body = _Body(receive, limit, scope.setdefault("state", {}))
        with self._place(scope, limit, body):

            async def send_started(message: Message) -> None:
                body.answered = True
                await send(message)

            if scope["state"].get("principal") is None:
                await bounded(scope, body.receive, send_started)
            else:
                # before the request takes a place among those that run: a slow body takes none
                content = await body.whole()
                scope["state"][LENGTH] = len(content)
                await self.app(scope, _replay(content, receive), send_started)

    @contextmanager
    def _place(self, scope: Scope, limit: BodyLimit, body: _Body) -> Iterator[None]:
        """Take one of the places for bodies until the answer is sent. Raises Problem 503."""
        principal = scope["state"].get("principal")
        client = scope.get("client")
        sender = (
            f"token {principal.id}"
            if principal is not None
            else network_of(client[0] if client else "")
        )
        # senders without a token must not take the places of those with one
        group = limit.setting + ("" if principal is not None else " without a token")
        if not self._places.take(
            body, group, sender, most=limit.at_once, of_sender=limit.of_sender
        ):
            raise Problem(
                503, too_many(limit), slug="too-many-bodies", headers={"Retry-After": "1"}
            )
        try:
            yield
        finally:
            self._places.give_back(body)


def too_many(limit: BodyLimit) -> str:
    """Return the sentence for a body that finds no place, or loses it."""
    return (
        f"Too many bodies are being read (allowed at once: {limit.of_sender} of a sender, "
        f"{limit.at_once} of all). Try again in a second."
    )


def _replay(content: bytes, receive: Receive) -> Receive:
    """Return a function that gives a body in one part, then what comes after it."""
    parts: list[Message] = [{"type": "http.request", "body": content, "more_body": False}]

    async def replayed() -> Message:
        return parts.pop() if parts else await receive()

    return replayed


class _Body:
    """A body on its way: its deadline, and whether it has arrived."""

    def __init__(self, receive: Receive, limit: BodyLimit, state: dict[str, object]) -> None:
        self._receive = receive
        self._limit = limit
        self._state = state
        self._ends = time.monotonic() + limit.deadline_s
        self._arriving: anyio.CancelScope | None = None
        self._displaced = False
        self.answered = False

    def is_arriving(self) -> bool:
        """Return whether its sender is due."""
        return not (self.answered or self._displaced or self._state.get(COMPLETE))

    def displace(self) -> None:
        """Refuse the rest of it: another body takes its place."""
        self._displaced = True
        if self._arriving is not None:
            self._arriving.cancel()

    async def whole(self) -> bytes:
        """Return the whole body. Raises HTTPException, 413 where it is too large."""
        content = bytearray()
        while not self._state.get(COMPLETE):
            content += (await self.receive()).get("body", b"")
            if len(content) > self._limit.size:
                raise HTTPException(413)
        return bytes(content)

    async def receive(self) -> Message:
        """Return the next part of the body.

        Raises HTTPException 408 after the deadline, 503 where another body took its place, and 400
        where the sender went away.
        """
        if self.answered or self._state.get(COMPLETE):
            return await self._receive()
        with anyio.move_on_after(self._ends - time.monotonic()) as scope:
            self._arriving = scope
            if not self._displaced:
                message = await self._receive()
        self._arriving = None
        if self._displaced:
            raise HTTPException(503, too_many(self._limit), headers={"Retry-After": "1"})
        if scope.cancelled_caught:
            raise HTTPException(
                408, f"The body did not arrive in time (allowed: {self._limit.deadline_s:g} s)."
            )
        if message["type"] == "http.disconnect":
            raise HTTPException(400, "The body ended before its end: the sender went away.")
        if not message.get("more_body", False):
            self._state[COMPLETE] = True
        return message
