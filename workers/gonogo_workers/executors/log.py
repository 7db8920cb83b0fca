"""What a child prints: read all the time, so that it never blocks, and only the last 64 KiB kept,
so that it never fills a disk.
"""

from __future__ import annotations

import os
import select
import threading

KEPT_BYTES = 64 * 1024
_READ_BYTES = 1 << 18


class ChildLog:
    """A pipe for stdout and stderr, and the thread that empties it.

    In memory, not in a file: a child that prints without end would have to be watched and its file
    cut under its feet.
    """

    def __init__(self) -> None:
        self._reader, self.writer = os.pipe()
        os.set_blocking(self._reader, False)
        self._kept = bytearray()
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._drain, name="child-log", daemon=True)

    def start(self) -> None:
        """Begin to read; called once the child has the pipe's other end."""
        os.close(self.writer)
        self._thread.start()

    def tail(self) -> str:
        """The last 64 KiB of all that was printed before this call, as text, without bytes that are
        no UTF-8.
        """
        with self._lock:
            if not self._closed:
                self._take()  # the thread may not have had its turn since the child wrote
            return bytes(self._kept[-KEPT_BYTES:]).decode("utf-8", "replace").replace("\x00", "")

    def settle(self, seconds: float = 0.5) -> None:
        """Wait until the pipe is empty because everyone who could write is dead (at most `seconds`:
        a grandchild may live).
        """
        self._thread.join(seconds)

    def finish(self) -> None:
        """The child is dead: read what is left, then stop."""
        self._thread.join(1.0)

    def close(self) -> None:
        """There never was a child."""
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
        """Keep what is in the pipe (one read empties it); False when nobody can write to it any
        more.
        """
        try:
            chunk = os.read(self._reader, _READ_BYTES)
        except BlockingIOError:
            return True
        self._kept += chunk[-KEPT_BYTES:]
        if len(self._kept) > 4 * KEPT_BYTES:  # cut rarely: each cut moves the kept bytes
            del self._kept[:-KEPT_BYTES]
        return bool(chunk)
