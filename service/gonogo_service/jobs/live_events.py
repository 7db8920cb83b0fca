"""Live events of jobs: one poll of the database serves every stream of this process.

A stream reads the events that it missed from the database, then waits until the hub sees a higher
number. The hub queries all watched jobs at once, four times a second, in a thread: a thousand open
pages cost as much as one. Streams end when their job is final, and at shutdown.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Collection, Iterator
from typing import Any

import structlog
from anyio import to_thread
from sqlalchemy.exc import SQLAlchemyError

from gonogo_service.jobs.events import Event, Position

POLL_S = 0.25
Positions = Callable[[Collection[str]], dict[str, Position]]
Read = Callable[[str, int], list[Event[Any]]]
_log = structlog.get_logger("gonogo.service")


class _Watched:
    """A job that streams wait for."""

    def __init__(self) -> None:
        self.streams = 0
        self.position: Position | None = None  # None: not polled yet
        self.changed = asyncio.Event()

    def wake(self) -> None:
        """Wake every stream of the job; streams that wait again use a fresh event."""
        self.changed.set()
        self.changed = asyncio.Event()


class Hub:
    """Serves the live events of jobs to any number of streams.

    `positions` and `read` are blocking reads of the database; they run in threads. Everything else
    runs on one event loop.
    """

    def __init__(self, positions: Positions, read: Read, *, poll_s: float = POLL_S) -> None:
        self._positions, self._read, self._poll_s = positions, read, poll_s
        self._watched: dict[str, _Watched] = {}
        self._poller: asyncio.Task[None] | None = None
        self._poll_now = asyncio.Event()  # set when a new stream waits
        self.closed = False

    @property
    def streams(self) -> int:
        """Return the number of open streams."""
        return sum(watched.streams for watched in self._watched.values())

    async def follow(self, job_id: str, after: int) -> AsyncGenerator[Event[Any]]:
        """Yield the events of a job after number `after`, as they are stored.

        Ends when the job is final or the hub is closed.
        """
        with self._watch(job_id) as watched:
            while not self.closed:
                changed, position = watched.changed, watched.position
                if position is not None and after >= position.last:
                    if position.final:
                        return
                    await changed.wait()
                    continue
                events = (
                    await to_thread.run_sync(self._read, job_id, after)
                    if position is not None
                    else []
                )
                if not events:  # not polled yet, or the position is newer than this read's snapshot
                    await changed.wait()
                    continue
                for event in events:
                    yield event
                    after = event.number

    def close(self) -> None:
        """End every stream; new ones end at once. Call this on the event loop."""
        self.closed = True
        if self._poller is not None:
            self._poller.cancel()
            self._poller = None
        for watched in self._watched.values():
            watched.wake()

    @contextlib.contextmanager
    def _watch(self, job_id: str) -> Iterator[_Watched]:
        watched = self._watched.setdefault(job_id, _Watched())
        watched.streams += 1
        watched.position = None  # poll again: the job may have advanced since the last poll
        self._poll_now.set()
        if self._poller is None and not self.closed:
            self._poller = asyncio.create_task(self._poll(), name="event hub")
        try:
            yield watched
        finally:
            watched.streams -= 1
            if watched.streams == 0:
                self._watched.pop(job_id, None)

    async def _poll(self) -> None:
        """Poll the watched jobs until none is left."""
        while self._watched:
            self._poll_now.clear()
            open_jobs = [
                job_id
                for job_id, watched in self._watched.items()
                if watched.position is None or not watched.position.final
            ]
            try:
                positions = (
                    await to_thread.run_sync(self._positions, open_jobs) if open_jobs else {}
                )
            except (SQLAlchemyError, OSError) as problem:
                _log.warning(
                    "events can't be read now; streams wait", error=str(problem).splitlines()[0]
                )
                positions = {}
            for job_id, position in positions.items():
                watched = self._watched.get(job_id)
                if watched is not None and watched.position != position:
                    watched.position = position
                    watched.wake()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._poll_now.wait(), self._poll_s)
        self._poller = None
