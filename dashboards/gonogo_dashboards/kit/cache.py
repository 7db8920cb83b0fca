"""A cache for values that change never, or seldom, and are slow to compute."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Hashable
from datetime import timedelta
from typing import Generic, TypeVar

import cachetools

Value = TypeVar("Value")


class LRUCache(Generic[Value]):
    """A thread-safe LRU cache of at most `max_size` values, each for a `lifetime`; None: for ever.

    Two threads may compute the same value once each.
    """

    def __init__(self, max_size: int, lifetime: timedelta | None = None) -> None:
        self._lock = threading.Lock()
        seconds = math.inf if lifetime is None else lifetime.total_seconds()
        self._values: cachetools.TTLCache[Hashable, Value] = cachetools.TTLCache(max_size, seconds)

    def get(self, key: Hashable | None, compute: Callable[[], Value | None]) -> Value | None:
        """Return the value of a key; compute it on a miss.

        None is never stored, nor is a value of the key None: these may still change.
        """
        with self._lock:
            value = None if key is None else self._values.get(key)
        if value is None:
            value = compute()
            if key is not None and value is not None:
                with self._lock:
                    self._values[key] = value
        return value
