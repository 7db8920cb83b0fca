"""Sends a worker's requests in order and loses none: memory first, then disk.

Each request is kept until the service has taken it.
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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gonogo_workers.server.client import Answer, Away, Refused, Server, packed, unpacked

log = logging.getLogger(__name__)

MEMORY_BYTES = 64 * 2**20
SPOOL_BYTES = 2 * 2**30
REFUSED_BYTES = 64 * 2**20
"""The newest refused requests are kept up to this size, for people to look at."""
FIRST_DELAY_S, MAX_DELAY_S = 0.1, 5.0
GONE = frozenset({404, 409, 410})
"""The attempt is over, is somebody else's, or has this batch with another content."""


@dataclass(frozen=True)
class Request:
    """One request on its way; names sort by the time of `post`."""

    method: str
    path: str
    content: bytes
    name: str
    is_replacement: bool = False

    @property
    def size(self) -> int:
        """The approximate number of bytes that it occupies."""
        return len(self.content) + 200

    def write(self, folder: Path) -> Path:
        """Write it to a folder. Raises OSError."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / self.name
        part = path.with_suffix(".part")
        head = {"method": self.method, "path": self.path, "replacement": self.is_replacement}
        try:
            part.write_bytes(json.dumps(head).encode() + b"\n" + self.content)
            os.replace(part, path)
        except OSError:  # what a full disk took of it would keep the disk full
            part.unlink(missing_ok=True)
            raise
        return path

    @classmethod
    def read(cls, path: Path) -> Request:
        """Return the request of a file. Raises OSError, ValueError or KeyError."""
        head, _, content = path.read_bytes().partition(b"\n")
        fields = json.loads(head)
        unpacked(content)  # a power loss may have cut it
        return cls(fields["method"], fields["path"], content, path.name, fields["replacement"])


def replacement(request: Request, detail: str) -> Request | None:
    """Return the request that replaces a refused one; None for nothing.

    A batch of results becomes a row `error` for each of its seeds: none may be lost. The end of an
    attempt becomes one without details.
    """
    if request.is_replacement:
        return None
    body = unpacked(request.content)
    words = f"the service refuses what this seed gave: {detail}"
    if "/results/" in request.path:
        copied = ("seed", "repeat", "device", "host_run", "position", "duration_ms")
        empty: dict[str, Any] = {"verdict": "error", "explanation": "not_judged"}
        empty |= {"arithmetic": None, "judge": None, "outputs": {}, "message": words[:1000]}
        rows = [{name: row.get(name) for name in copied} | empty for row in body.get("rows", [])]
        body = {"rows": rows, "columns": [], "artifacts": []}
    elif request.path.endswith(":finish"):
        sent = {"sent": body.get("sent", []), "batches": body.get("batches", 0)}
        body = {"outcome": "error", "log_tail": "", "error": words[:1000], "telemetry": {}, **sent}
    else:
        return None
    return replace(request, content=packed(body), is_replacement=True)


class Sender:
    """A thread with an ordered queue.

    `post` returns at once unless memory and spool are both full: then the worker has to wait.
    """

    def __init__(
        self,
        server: Server,
        spool: Path,
        *,
        answered: Callable[[str, Answer], None] = lambda path, answer: None,
        over: Callable[[str], None] = lambda path: None,
        memory_bytes: int = MEMORY_BYTES,
        spool_bytes: int = SPOOL_BYTES,
        refused_bytes: int = REFUSED_BYTES,
    ) -> None:
        """Start the thread; requests that an earlier process left in `spool` go first.

        spool: this worker's private folder.
        answered: gets the path and the answer of each request.
        over: gets the path of a request whose attempt is over.
        """
        self._server, self._answered, self._over = server, answered, over
        self._folder = spool
        for part in spool.glob("*.part"):  # a worker was killed while it wrote
            part.unlink()
        self._memory_bytes, self._spool_bytes = memory_bytes, spool_bytes
        self._refused_bytes = refused_bytes
        self._in_memory: deque[Request] = deque()
        self._size = 0
        self._spooled: deque[tuple[Path, int]] = deque(
            (path, path.stat().st_size) for path in sorted(spool.glob("*.request"))
        )
        self._spooled_size = sum(size for _, size in self._spooled)
        self._number = 0
        self._closing = self._hurried = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="sender", daemon=True)
        if self._spooled:
            words = "sending %d requests that an earlier worker left in %s"
            log.warning(words, len(self._spooled), spool)
        self._thread.start()

    def post(self, method: str, path: str, body: Mapping[str, Any]) -> None:
        """Queue a request. Raises ValueError for a body that is no JSON."""
        content = packed(body)
        with self._changed:
            # with the lock: numbers rise in the order of the queue
            self._number = max(self._number + 1, time.time_ns())
            request = Request(method, path, content, f"{self._number:020d}.request")
            while True:
                # they must arrive in order: once the spool has one, newer ones queue behind it
                if not self._spooled and (
                    self._size + request.size <= self._memory_bytes or not self._in_memory
                ):
                    break
                if self._spooled_size < self._spool_bytes and self._spool(request):
                    return
                if self._closing or self._hurried:
                    break
                self._changed.wait(1.0)
            self._in_memory.append(request)
            self._size += request.size
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
        """Send what fits into this time, and write the rest to disk for the next worker."""
        self.flush(seconds)
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(3.0)
        with self._changed:
            for request in self._in_memory:
                if not self._spool(request):
                    words = "a request of %d bytes is lost: neither service nor disk took it"
                    log.error(words, request.size)
            self._in_memory.clear()

    def _spool(self, request: Request) -> bool:
        """Write a request to disk; return False where there is no room."""
        try:
            path = request.write(self._folder)
        except OSError as problem:
            log.error("can't write a request to %s: %s", self._folder, problem.strerror)
            return False
        self._spooled.append((path, request.size))
        self._spooled_size += request.size
        return True

    def _next(self) -> tuple[Request, Path | None] | None:
        """Return the oldest request and, when it is on disk, its file. None: closing.

        Waits for a request.
        """
        with self._changed:
            while not self._closing:
                if self._in_memory and not (
                    self._spooled and self._spooled[0][0].name < self._in_memory[0].name
                ):
                    return self._in_memory[0], None
                if self._spooled:
                    path, _ = self._spooled[0]
                    try:
                        return Request.read(path), path
                    except (OSError, ValueError, TypeError, KeyError):
                        log.error("the spooled request %s is unreadable and was dropped", path)
                        self._drop(path)
                        continue
                self._changed.wait()
        return None

    def _run(self) -> None:
        delay = FIRST_DELAY_S
        while (item := self._next()) is not None:
            request, path = item
            problem = self._sent(request, path)
            if problem is None:
                delay = FIRST_DELAY_S
                continue
            if delay == FIRST_DELAY_S:
                log.warning("%s; keeping what this worker has to send", problem)
            with self._changed:
                self._changed.wait_for(lambda: self._closing, delay)
            delay = min(delay * 2, MAX_DELAY_S)

    def _sent(self, request: Request, path: Path | None) -> str | None:
        """Send a request; return why it has to be sent again, or None: it is done."""
        try:
            answer = self._server.send(request.method, request.path, request.content)
        except Away as problem:
            return str(problem)
        except Refused as problem:
            if problem.is_of_token:
                return str(problem)
            if problem.status in GONE:
                log.warning("%s is dropped: %s", request.path, problem)
                self._over(request.path)
            else:
                return self._set_aside(request, path, problem)
        else:
            self._answered(request.path, answer)
        self._done(path)
        return None

    def _set_aside(self, request: Request, path: Path | None, problem: Refused) -> str | None:
        """Keep a request that can't be taken for people to look at, and send what replaces it.

        Returns why that has to wait, or None.
        """
        log.error("%s: %s", request.path, problem)
        with contextlib.suppress(OSError):
            self._keep_refused(request)
        instead = replacement(request, problem.detail)
        if instead is None:
            self._done(path)
            return None
        with self._changed:
            if path is None:
                self._size += instead.size - request.size
                self._in_memory[0] = instead
                return None
            try:
                instead.write(self._folder)
            except OSError as full:
                return f"can't write to {self._folder}: {full.strerror}"
        return None

    def _keep_refused(self, request: Request) -> None:
        """Write a refused request, and delete the oldest beyond the limit. Raises OSError."""
        folder = self._folder / "refused"
        request.write(folder)
        left = self._refused_bytes
        for path in sorted(folder.glob("*.request"), reverse=True):
            left -= path.stat().st_size
            if left < 0:
                path.unlink()
                words = "%s is deleted: refused requests may take %d bytes, and it is the oldest"
                log.warning(words, path, self._refused_bytes)

    def _done(self, path: Path | None) -> None:
        with self._changed:
            if path is None:
                self._size -= self._in_memory.popleft().size
            else:
                self._drop(path)
            self._changed.notify_all()

    def _drop(self, path: Path) -> None:
        with contextlib.suppress(OSError):
            path.unlink()
        self._spooled_size -= self._spooled.popleft()[1]
