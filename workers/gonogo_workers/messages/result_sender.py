"""Sends a worker's messages in order and loses none: memory first, then disk.

Each message is kept until the broker has accepted it.
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

from redis import Redis

from gonogo_workers import queue
from gonogo_workers.messages.sealing import Sealer

log = logging.getLogger(__name__)

MEMORY_BYTES = 64 * 2**20
SPOOL_BYTES = 2 * 2**30
FIRST_DELAY_S, MAX_DELAY_S = 0.1, 5.0

Publish = Callable[[str, str], None]


@dataclass(frozen=True)
class SealedMessage:
    """One sealed message on its way to the broker."""

    queue: str
    text: str
    name: str
    """The name of its file, should it need one; names sort by the time of `post`."""

    @property
    def size(self) -> int:
        """The approximate number of bytes that it occupies."""
        return len(self.text) + 200


class ResultSender:
    """A thread with an ordered queue.

    `post` returns at once unless memory and spool are both full: then the worker has to wait.
    Everything is sealed when posted. So another process can send a spooled message days later, and
    it keeps its number.
    """

    def __init__(
        self,
        client: Redis,
        sealer: Sealer,
        spool: Path,
        *,
        memory_bytes: int = MEMORY_BYTES,
        spool_bytes: int = SPOOL_BYTES,
    ) -> None:
        """Start the thread; messages that an earlier process left in `spool` go first.

        `spool` is this worker's private folder.
        """
        self._publish: Publish = lambda to, text: queue.publish(client, to, text)
        self._sealer = sealer
        self._folder = spool
        self._memory_bytes, self._spool_bytes = memory_bytes, spool_bytes
        self._in_memory: deque[SealedMessage] = deque()
        self._size = 0
        self._spooled: deque[tuple[Path, int]] = deque(
            (path, path.stat().st_size) for path in sorted(spool.glob("*.json"))
        )
        self._spooled_size = sum(size for _, size in self._spooled)
        self._number = 0
        self._closing = self._hurried = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="result-sender", daemon=True)
        if self._spooled:
            log.warning(
                "sending %d messages that an earlier worker left in %s", len(self._spooled), spool
            )
        self._thread.start()

    def post(self, to: str, task: str, body: Mapping[str, Any]) -> None:
        """Queue a message for delivery."""
        with self._changed:
            # with the lock: numbers rise in the order of the queue
            self._number = max(self._number + 1, time.time_ns())
            name = f"{self._number:020d}.json"
            sealed = SealedMessage(to, self._sealer.seal(task, body), name)
            while True:
                # Messages must arrive in order: once the spool has one, newer ones queue behind it
                if not self._spooled and (
                    self._size + sealed.size <= self._memory_bytes or not self._in_memory
                ):
                    break
                if self._spooled_size < self._spool_bytes and self._spool(sealed):
                    return
                if self._closing or self._hurried:
                    break
                self._changed.wait(1.0)
            self._in_memory.append(sealed)
            self._size += sealed.size
            self._changed.notify_all()

    def hurry(self) -> None:
        """Never wait in `post` any more: the worker is about to end (safe in a signal handler)."""
        self._hurried = True

    def flush(self, seconds: float) -> bool:
        """Wait until everything is sent; return False when the time runs out first."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while self._in_memory or self._spooled:
                left = deadline - time.monotonic()
                if left <= 0 or not self._thread.is_alive():
                    return False
                self._changed.wait(left)
        return True

    def close(self, seconds: float) -> None:
        """Send what fits into this time, and write the rest to disk.

        The next worker of this device sends it.
        """
        self.flush(seconds)
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(3.0)
        with self._changed:
            for sealed in self._in_memory:
                if not self._spool(sealed):
                    log.error(
                        "a message of %d bytes is lost: neither broker nor disk accepted it",
                        sealed.size,
                    )
            self._in_memory.clear()

    def _spool(self, sealed: SealedMessage) -> bool:
        """Write a message to disk; return False where there is no room."""
        path = self._folder / sealed.name
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(".part")
            part.write_text(json.dumps([sealed.queue, sealed.text]))
            os.replace(part, path)
        except OSError as problem:
            log.error("can't write a message to %s: %s", self._folder, problem.strerror)
            return False
        self._spooled.append((path, sealed.size))
        self._spooled_size += sealed.size
        return True

    def _next(self) -> tuple[SealedMessage, Path | None] | None:
        """Return the oldest message and, when it is on disk, its file. None: closing.

        Waits for a message.
        """
        with self._changed:
            while not self._closing:
                if self._in_memory and not (
                    self._spooled and self._spooled[0][0].name < self._in_memory[0].name
                ):
                    return self._in_memory[0], None
                if self._spooled:
                    path, size = self._spooled[0]
                    try:
                        to, text = json.loads(path.read_text())
                        return SealedMessage(to, text, path.name), path
                    except (OSError, ValueError, TypeError):
                        log.error("the spooled message %s is unreadable and was dropped", path)
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
            sealed, path = item
            try:
                self._publish(sealed.queue, sealed.text)
            # any error of the broker's client: the message stays and is sent again
            except Exception as problem:
                if delay == FIRST_DELAY_S:
                    log.warning("the broker does not accept messages (%s); keeping them", problem)
                with self._changed:
                    self._changed.wait_for(lambda: self._closing, delay)
                delay = min(delay * 2, MAX_DELAY_S)
                continue
            delay = FIRST_DELAY_S
            with self._changed:
                if path is None:
                    self._in_memory.popleft()
                    self._size -= sealed.size
                else:
                    self._drop_spooled(path, self._spooled[0][1])
                self._changed.notify_all()
