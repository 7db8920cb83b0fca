"""Counts the items of queues that are no ids of attempts."""

from __future__ import annotations

import logging
from threading import Lock
from typing import ClassVar, Final

log = logging.getLogger(__name__)

MAX_REASONS: Final = 20


class Dropped:
    """The items that this process has dropped: how many, by why."""

    _counts: ClassVar[dict[str, int]] = {}
    _lock: ClassVar[Lock] = Lock()

    @classmethod
    def add(cls, queue: str, words: str) -> None:
        """Count a dropped item; log the first, so that a flood can't fill a disk."""
        key = f"an item of the queue {queue} {words}"
        with cls._lock:
            is_first = key not in cls._counts
            if is_first and len(cls._counts) >= MAX_REASONS:
                key = "an item of some queue isn't the id of an attempt"
            cls._counts[key] = cls._counts.get(key, 0) + 1
        if is_first:
            log.warning("dropped: %s", key)

    @classmethod
    def take(cls) -> dict[str, int]:
        """Return the counts by why, and begin again."""
        with cls._lock:
            counts, cls._counts = cls._counts, {}
        return counts
