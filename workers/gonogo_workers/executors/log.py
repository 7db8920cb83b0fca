"""A child's output: read all the time, with only the last 64 KiB kept.

So the child never blocks on a full pipe, and its output never fills a disk.
"""

from __future__ import annotations

import os
import select
import threading

KEPT_BYTES = 64 * 1024
_READ_BYTES = 1 << 18
SETTLE_S = 0.5
"""How long the end of a child's output is waited for: what it wrote is in the pipe already."""


class ChildLog:
    """A pipe for stdout and stderr, and the thread that empties it.

    The output is kept in memory, not in a file: a file would have to be watched and truncated while
    a child prints without end.
    """

    def __init__(self) -> None:
        self._reader, self.writer = os.pipe()
        os.set_blocking(self._reader, False)
        self._tail = bytearray()
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._drain, name="child-log", daemon=True)

    def start(self) -> None:
        """Begin to read; called once the child has the pipe's other end."""
        os.close(self.writer)
        self._thread.start()

    def tail(self) -> str:
        """Return the last 64 KiB of everything printed before this call.

        Bytes that are not UTF-8 are replaced.
        """
        with self._lock:
            if not self._closed:
                self._take()  # the thread may not have run since the child wrote
            return bytes(self._tail[-KEPT_BYTES:]).decode("utf-8", "replace").replace("\x00", "")

    def settle(self) -> None:
        """Wait until the pipe is empty because all writers are dead.

        It waits at most SETTLE_S: a grandchild may live.
        """
        self._thread.join(SETTLE_S)

    def finish(self) -> None:
        """Read the rest and stop: the child is dead."""
        self._thread.join(1.0)

    def close(self) -> None:
        """Close the pipe: no child was started."""
        os.close(self.writer)
        self._closed = True
        os.close(self._reader)

    def _drain(self) -> None:
        ready = select.poll()
        ready.register(self._reader, select.POLLIN)
        try:
            open_ = True
            while open_:
                ready.poll()
                with self._lock:
                    open_ = self._take()
        finally:
            with self._lock:
                self._closed = True
                os.close(self._reader)

    def _take(self) -> bool:
        """Read once from the pipe, which empties it.

        Return False when the last writer has closed it.
        """
        try:
            chunk = os.read(self._reader, _READ_BYTES)
        except BlockingIOError:
            return True
        self._tail += chunk[-KEPT_BYTES:]
        if len(self._tail) > 4 * KEPT_BYTES:  # cut rarely: each cut moves the bytes kept
            del self._tail[:-KEPT_BYTES]
        return bool(chunk)
