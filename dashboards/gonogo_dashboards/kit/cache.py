"""A least-recently-used cache for values that never change and are slow to compute."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class LRUCache(Generic[Value]):
    """A thread-safe LRU cache of at most `max_size` values.

    Two threads may compute the same value once each.
    """

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._lock = threading.Lock()
        self._values: OrderedDict[Hashable, Value] = OrderedDict()

    def get(self, key: Hashable | None, compute: Callable[[], Value | None]) -> Value | None:
        """Return the value of a key; compute it on a miss.

        None is never stored, nor is a value of the key None: these may still change.
        """
        if key is None:
            return compute()
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        value = compute()
        if value is not None:
            with self._lock:
                self._values[key] = value
                while len(self._values) > self._max_size:
                    self._values.popitem(last=False)
        return value
