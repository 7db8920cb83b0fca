"""Streams end with the token or the login that opened them.

One query a second serves all streams of a process, however many there are.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection
from typing import TypeVar

import structlog
from anyio import to_thread
from sqlalchemy.exc import SQLAlchemyError

from gonogo_service.kit.principals import Principal

CHECK_S = 1.0
KINDS = ("token", "session")
Living = Callable[[Collection[str], Collection[str]], set[str]]
"""Returns those of the tokens and of the sessions that are valid now; a blocking read."""
T = TypeVar("T")
_log = structlog.get_logger("gonogo.service")


class LivePrincipals:
    """The tokens and logins of open streams, and which of them have ended."""

    def __init__(self, living: Living, *, check_s: float = CHECK_S) -> None:
        self._living, self._check_s = living, check_s
        self._open: Counter[tuple[str, str]] = Counter()
        self._ended: set[tuple[str, str]] = set()
        self._checked_at = 0.0
        self._checking = asyncio.Lock()

    async def while_valid(
        self, principal: Principal, stream: AsyncGenerator[T]
    ) -> AsyncGenerator[T]:
        """Yield from the stream until it ends, or until the principal's token or login does."""
        if not principal.credential:  # the embedded service's own machine
            async for event in stream:
                yield event
            return
        key = (principal.kind, principal.credential)
        self._open[key] += 1
        waiting: asyncio.Future[T] | None = None
        try:
            while await self._valid(key):
                if waiting is None:
                    waiting = asyncio.ensure_future(anext(stream))
                done, _ = await asyncio.wait({waiting}, timeout=self._check_s)
                if done:
                    try:
                        event = waiting.result()
                    except StopAsyncIteration:
                        return
                    waiting = None
                    yield event
        finally:
            self._open[key] -= 1
            if not self._open[key]:
                del self._open[key]
                self._ended.discard(key)
            if waiting is not None:
                waiting.cancel()
                await asyncio.wait({waiting})

    async def _valid(self, key: tuple[str, str]) -> bool:
        async with self._checking:
            now = asyncio.get_running_loop().time()
            if now - self._checked_at >= self._check_s:
                tokens, logins = (
                    [id_ for kind, id_ in self._open if kind == listed_kind]
                    for listed_kind in KINDS
                )
                try:
                    alive = await to_thread.run_sync(self._living, tokens, logins)
                    self._ended = {open_ for open_ in self._open if open_[1] not in alive}
                except (SQLAlchemyError, OSError) as problem:
                    _log.warning("tokens can't be checked now", error=str(problem).splitlines()[0])
                self._checked_at = now
        return key not in self._ended
