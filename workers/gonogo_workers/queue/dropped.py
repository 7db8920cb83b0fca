"""Counts the texts of queues that are no messages, and that nobody has read."""

from __future__ import annotations

import logging
from threading import Lock
from typing import ClassVar, Final

log = logging.getLogger(__name__)

MAX_REASONS: Final = 20


class Dropped:
    """The texts that this process has dropped unread: how many, by why."""

    _counts: ClassVar[dict[str, int]] = {}
    _lock: ClassVar[Lock] = Lock()

    @classmethod
    def add(cls, queue: str, words: str) -> None:
        """Count a dropped text; log the first, so that a flood can't fill a disk."""
        key = f"a text on the queue {queue} {words}"
        with cls._lock:
            is_first = key not in cls._counts
            if is_first and len(cls._counts) >= MAX_REASONS:
                key = "a text on some queue isn't a sealed message"
            cls._counts[key] = cls._counts.get(key, 0) + 1
        if is_first:
            log.warning("dropped unread: %s", key)

    @classmethod
    def take(cls) -> dict[str, int]:
        """Return the counts by why, and begin again."""
        with cls._lock:
            counts, cls._counts = cls._counts, {}
        return counts
