"""Sends a worker's messages in order and gives up none: memory first, then disk, until the broker
has taken them.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from celery import Celery

from gonogo_workers import queue

log = logging.getLogger(__name__)

MEMORY_BYTES = 64 * 2**20
SPOOL_BYTES = 2 * 2**30
FIRST_DELAY_S, MOST_DELAY_S = 0.1, 5.0

Publish = Callable[[str, str, str, str], None]


@dataclass(frozen=True)
class Letter:
    """One sealed message on its way."""

    queue: str
    task: str
    message: str
    signature: str

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        return len(self.message) + 200


class Postman:
    """A thread with an ordered queue. `post` returns at once unless memory and spool are both full:
    then the worker has to wait.

    Everything is sealed when posted, so a message from the spool is as good, days later, by another
    process with the same key.
    """

    def __init__(
        self,
        app: Celery,
        key: str,
        spool: Path,
        *,
        memory_bytes: int = MEMORY_BYTES,
        spool_bytes: int = SPOOL_BYTES,
    ) -> None:
        """`spool` is this worker's own folder; what an earlier life left in it goes first."""
        self._publish: Publish = lambda *letter: queue.publish(app, *letter)
        self._key = key
        self._folder = spool
        self._memory_bytes, self._spool_bytes = memory_bytes, spool_bytes
        self._letters: deque[Letter] = deque()
        self._size = 0
        self._spooled: deque[tuple[Path, int]] = deque(
            (path, path.stat().st_size) for path in sorted(spool.glob("*.json"))
        )
        self._spooled_size = sum(size for _, size in self._spooled)
        self._number = 0
        self._closing = self._hurried = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="postman", daemon=True)
        if self._spooled:
            log.warning("sending %d messages again that were kept in %s", len(self._spooled), spool)
        self._thread.start()

    def post(self, to: str, task: str, body: Mapping[str, Any]) -> None:
        """Take a message for delivery."""
        letter = Letter(to, task, *queue.seal(self._key, task, body))
        with self._changed:
            while not (self._closing or self._hurried):
                # Once something is in the spool, newer messages must queue behind it: order is part
                # of the promise
                if not self._spooled and (
                    self._size + letter.size <= self._memory_bytes or not self._letters
                ):
                    break
                if self._spooled_size < self._spool_bytes and self._spool(letter):
                    return
                self._changed.wait(1.0)
            self._letters.append(letter)
            self._size += letter.size
            self._changed.notify_all()

    def hurry(self) -> None:
        """The worker is about to end: `post` never waits any more (safe in a signal handler)."""
        self._hurried = True

    def flush(self, seconds: float) -> bool:
        """Wait until everything is sent; False when the time is over first."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while self._letters or self._spooled:
                left = deadline - time.monotonic()
                if left <= 0 or not self._thread.is_alive():
                    return False
                self._changed.wait(left)
        return True

    def close(self, seconds: float) -> None:
        """Send what can be sent in this time and put the rest on disk, for the next worker of this
        device.
        """
        self.flush(seconds)
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(3.0)
        with self._changed:
            for letter in self._letters:
                if not self._spool(letter, ahead=True):
                    log.error(
                        "a message of %d bytes is lost: neither the broker nor the disk took it",
                        letter.size,
                    )
            self._letters.clear()

    def _spool(self, letter: Letter, *, ahead: bool = False) -> bool:
        """Write a letter to disk; `ahead` puts it before what lies there (it is older)."""
        self._number += 1
        # Names sort by time; "0" before "1": what was still in memory when the worker ended is
        # older than anything spooled by it
        path = self._folder / f"{0 if ahead else 1}-{time.time_ns():020d}-{self._number:06d}.json"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(".part")
            part.write_text(
                json.dumps([letter.queue, letter.task, letter.message, letter.signature])
            )
            os.replace(part, path)
        except OSError as problem:
            log.error("can't keep a message in %s: %s", self._folder, problem.strerror)
            return False
        self._spooled.append((path, letter.size))
        self._spooled_size += letter.size
        return True

    def _next(self) -> tuple[Letter, Path | None] | None:
        """The oldest message and, when it is on disk, its file; waits for one. None: closing."""
        with self._changed:
            while not self._closing:
                # In memory is older: nothing goes to memory while the spool holds something, except
                # at the very start
                if self._letters:
                    return self._letters[0], None
                if self._spooled:
                    path, size = self._spooled[0]
                    try:
                        return Letter(*json.loads(path.read_text())), path
                    except (OSError, ValueError, TypeError):
                        log.error("the kept message %s is unreadable and dropped", path)
                        self._drop_spooled(path, size)
                        continue
                self._changed.wait()
        return None

    def _drop_spooled(self, path: Path, size: int) -> None:
        with contextlib.suppress(OSError):
            path.unlink()
        self._spooled.popleft()
        self._spooled_size -= size

    def _run(self) -> None:
        delay = FIRST_DELAY_S
        while (item := self._next()) is not None:
            letter, path = item
            try:
                self._publish(letter.queue, letter.task, letter.message, letter.signature)
            # whatever the broker's client raises: the message stays and is sent again
            except Exception as problem:
                if delay == FIRST_DELAY_S:
                    log.warning("the broker does not take messages (%s); keeping them", problem)
                with self._changed:
                    self._changed.wait_for(lambda: self._closing, delay)
                delay = min(delay * 2, MOST_DELAY_S)
                continue
            delay = FIRST_DELAY_S
            with self._changed:
                if path is None:
                    self._letters.popleft()
                    self._size -= letter.size
                else:
                    self._drop_spooled(path, self._spooled[0][1])
                self._changed.notify_all()
