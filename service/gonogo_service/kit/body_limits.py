"""Limits of request bodies by address, in bytes and seconds; they hold while a body streams."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import anyio
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gonogo import urls
from gonogo.settings import Settings
from gonogo_service.kit.problems import Problem

DELIVERY_S = 10.0
"""GitHub gives up after this time."""
IMPORT_FACTOR = 4.0
"""An uploaded file may take this many times the deadline of other bodies."""
HOST_BYTES = 32 * 2**20
HOST_PATHS = (f"{urls.API}/attempts/", f"{urls.API}/hosts/self")
COMPLETE = "body_complete"
"""The key in a request's state: its body has arrived, or it has none."""


@dataclass(frozen=True)
class BodyLimit:
    """A number of bytes with the setting that defines it, and the seconds until all are there."""

    size: int
    setting: str
    deadline_s: float = 30.0


@dataclass(frozen=True)
class BodyLimits:
    """The body limits of all addresses."""

    default: BodyLimit
    by_path: Mapping[str, BodyLimit] = field(default_factory=dict)

    @classmethod
    def of_settings(cls, settings: Settings) -> Self:
        """Read the limits from the settings."""
        seconds = settings.body_deadline_s
        delivery = BodyLimit(
            settings.max_delivery_bytes, "GONOGO_MAX_DELIVERY_BYTES", min(DELIVERY_S, seconds)
        )
        return cls(
            BodyLimit(settings.max_body_bytes, "GONOGO_MAX_BODY_BYTES", seconds),
            {
                urls.IMPORTS: BodyLimit(
                    settings.max_import_bytes, "GONOGO_MAX_IMPORT_BYTES", IMPORT_FACTOR * seconds
                ),
                urls.GITHUB_DELIVERIES: delivery,
                urls.CI_DELIVERIES: delivery,
            },
        )

    def of(self, path: str) -> BodyLimit:
        """Return the limit of an address."""
        if is_of_host(path):
            return BodyLimit(HOST_BYTES, "no setting", self.default.deadline_s)
        return self.by_path.get(path, self.default)


def is_of_host(path: str) -> bool:
    """Return whether device hosts send to an address: bodies are large and may be compressed."""
    return path.startswith(HOST_PATHS)


def has_body(scope: Scope) -> bool:
    """Return whether a request announces a body."""
    headers = Headers(scope=scope)
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers


class LimitBodies:
    """Middleware that stops reading at the limits."""

    def __init__(self, app: ASGIApp, limits: BodyLimits) -> None:
        self.app = app
        self.limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not has_body(scope):
            await self.app(scope, receive, send)
            return
        encoding = Headers(scope=scope).get("content-encoding", "identity")
        if encoding.lower() != "identity" and not is_of_host(scope["path"]):
            raise Problem(
                415,
                f"Compressed bodies are not accepted (Content-Encoding: {encoding[:40]!r}): send "
                "the body as it is.",
                slug="content-encoding",
            )
        body = _Body(receive, self.limits.of(scope["path"]), scope.setdefault("state", {}))

        async def send_started(message: Message) -> None:
            body.answered = True
            await send(message)

        await self.app(scope, body.receive, send_started)


class _Body:
    """A body on its way: its deadline, its bytes so far, and whether it has arrived."""

    def __init__(self, receive: Receive, limit: BodyLimit, state: dict[str, Any]) -> None:
        self._receive = receive
        self._limit = limit
        self._state = state
        self._ends = time.monotonic() + limit.deadline_s
        self._size = 0
        self.answered = False

    async def receive(self) -> Message:
        """Return the next part of the body.

        Raises HTTPException: 408 after the deadline, 413 for too many bytes, and 400 where the
        sender went away.
        """
        if self.answered or self._state.get(COMPLETE):
            return await self._receive()
        with anyio.move_on_after(self._ends - time.monotonic()) as scope:
            message = await self._receive()
        if scope.cancelled_caught:
            raise HTTPException(
                408, f"The body did not arrive in time (allowed: {self._limit.deadline_s:g} s)."
            )
        if message["type"] == "http.disconnect":
            raise HTTPException(400, "The body ended before its end: the sender went away.")
        self._size += len(message.get("body", b""))
        if self._size > self._limit.size:
            raise HTTPException(413)
        self._state[COMPLETE] = not message.get("more_body", False)
        return message
