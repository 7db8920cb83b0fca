"""Live events of jobs: one poll of the database, shared by every stream of this process.

A stream reads what it missed from the database, then waits until the hub has seen a higher number.
The hub asks for all watched jobs in one query, four times a second, in a thread: a thousand open
pages cost as much as one. Streams end when their job is final, and at shutdown.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from types import FrameType
from typing import Any

import structlog
from anyio import to_thread
from sqlalchemy.exc import SQLAlchemyError

from gonogo_storage.messages.event_positions import Position

POLL_S = 0.25
Positions = Callable[[Collection[str]], dict[str, Position]]
Read = Callable[[str, int], list[dict[str, Any]]]
_log = structlog.get_logger("gonogo.service")


class _Watched:
    """A job that streams wait for."""

    def __init__(self) -> None:
        self.streams = 0
        self.position: Position | None = None  # None: not asked yet
        self.changed = asyncio.Event()

    def wake(self) -> None:
        """Wake every stream of the job; those that come back to wait do so on a fresh event."""
        self.changed.set()
        self.changed = asyncio.Event()


class Hub:
    """`positions` and `read` are blocking reads of the database; they run in threads. Everything
    else runs on one event loop.
    """

    def __init__(self, positions: Positions, read: Read, *, poll_s: float = POLL_S) -> None:
        self._positions, self._read, self._poll_s = positions, read, poll_s
        self._watched: dict[str, _Watched] = {}
        self._poller: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()  # set: someone new waits, poll at once
        self.closed = False

    @property
    def streams(self) -> int:
        """How many streams are open."""
        return sum(watched.streams for watched in self._watched.values())

    async def follow(self, job_id: str, after: int) -> AsyncIterator[dict[str, Any]]:
        """The events of a job later than number `after`, as they come; ends when the job is final
        or the hub is closed.
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
                if not events:  # not asked yet, or a position that is ahead of what this read saw
                    await changed.wait()
                    continue
                for event in events:
                    yield event
                    after = event["number"]

    def close(self) -> None:
        """End every stream (call on the event loop); new ones end at once."""
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
        watched.position = None  # ask again: the job may have moved since its last poll
        self._hurry.set()
        if self._poller is None and not self.closed:
            self._poller = asyncio.create_task(self._poll(), name="event hub")
        try:
            yield watched
        finally:
            watched.streams -= 1
            if watched.streams == 0:
                self._watched.pop(job_id, None)

    async def _poll(self) -> None:
        """Runs while there is anything to watch."""
        while self._watched:
            self._hurry.clear()
            wanted = [
                job_id
                for job_id, watched in self._watched.items()
                if watched.position is None or not watched.position.final
            ]
            try:
                found = await to_thread.run_sync(self._positions, wanted) if wanted else {}
            except (SQLAlchemyError, OSError) as problem:
                _log.warning(
                    "events can't be read now; streams wait", error=str(problem).splitlines()[0]
                )
                found = {}
            for job_id, position in found.items():
                watched = self._watched.get(job_id)
                if watched is not None and watched.position != position:
                    watched.position = position
                    watched.wake()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), self._poll_s)
        self._poller = None


@contextlib.contextmanager
def closing_on_signals(close: Callable[[], None]) -> Iterator[None]:
    """Call `close` on the event loop when SIGINT or SIGTERM arrives, before the server's own
    handler runs.

    A server waits for open responses before it shuts the application down, so a stream that ended
    only then would hold it up for good. Off the main thread signals belong to someone else, and
    nothing is done.
    """
    loop = asyncio.get_running_loop()
    previous: dict[signal.Signals, Any] = {}

    def handle(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(close)
        before = previous[signal.Signals(number)]
        if callable(before):
            before(number, frame)

    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            before = signal.getsignal(number)
            if callable(before):  # a server's handler; without one the default action is right
                previous[number] = before
                signal.signal(number, handle)
    except ValueError:  # not the main thread
        previous.clear()
    try:
        yield
    finally:
        for number, before in previous.items():
            signal.signal(number, before)
