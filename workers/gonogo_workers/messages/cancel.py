"""Watches the cancel key of the current attempt: one check a second, on a thread of the worker."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from gonogo_workers import queue
from gonogo_workers.messages.sealing import Sealer

log = logging.getLogger(__name__)

CHECK_EVERY_S = 1.0


class CancelWatcher:
    """Calls back when the key of the watched attempt appears.

    While the broker is down no job can be canceled, so waiting loses nothing.
    """

    def __init__(self, broker_url: str, sealer: Sealer, every_s: float = CHECK_EVERY_S) -> None:
        self._client = queue.redis_client(broker_url)
        self._sealer = sealer
        self._every_s = every_s
        self._watched: tuple[str, Callable[[], None]] | None = None
        self._changed = threading.Condition()
        self._closed = False
        self._warned: str | None = None
        self._thread = threading.Thread(target=self._run, name="cancel-watcher", daemon=True)
        self._thread.start()

    def watch(self, attempt: str, cancelled: Callable[[], None]) -> None:
        """Check this attempt's key, at once and then every second, until `forget`."""
        with self._changed:
            self._watched = (attempt, cancelled)
            self._changed.notify_all()

    def forget(self) -> None:
        """Stop watching: the attempt is over."""
        with self._changed:
            self._watched = None

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(1.0)
        self._client.close()

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._closed:
                    return
                watched = self._watched
            if watched is not None and self._is_cancelled(watched[0]):
                with self._changed:
                    still = self._watched is watched
                    if still:  # else the next attempt is watched by now
                        self._watched = None
                if still:
                    watched[1]()
                continue
            with self._changed:
                self._changed.wait_for(partial(self._new, watched), self._every_s)

    def _new(self, seen: tuple[str, Callable[[], None]] | None) -> bool:
        return self._closed or self._watched is not seen

    def _is_cancelled(self, attempt: str) -> bool:
        try:
            item: Any = self._client.getrange(queue.cancel_key(attempt), 0, queue.MAX_ORDER_BYTES)
        except Exception as problem:  # any error of the client: it reconnects by itself
            log.debug("can't check the cancel key: %s", problem)
            return False
        if not item:
            return False
        try:
            message = self._sealer.unseal(queue.CANCEL, item.decode("ascii", "replace"))
        except queue.MessageRefused as problem:
            self._refused(attempt, str(problem))
            return False
        if message.body.get("attempt") != attempt:
            self._refused(attempt, "it is for another attempt")
            return False
        return True

    def _refused(self, attempt: str, words: str) -> None:
        if attempt != self._warned:
            log.warning("the request to cancel attempt %s was refused: %s", attempt, words)
        self._warned = attempt
