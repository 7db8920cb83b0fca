"""What never changes again and takes long to make, kept in the process: the last few, least used
out first.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Kept(Generic[Value]):
    """At most `most` values by key; safe between threads, two of which may make the same value once
    each.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._values: OrderedDict[Hashable, Value] = OrderedDict()

    def get(self, key: Hashable | None, make: Callable[[], Value | None]) -> Value | None:
        """The value of a key, made if it isn't there; None is not kept, nor is anything of the key
        None: that may still change.
        """
        if key is None:
            return make()
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        made = make()
        if made is not None:
            with self._lock:
                self._values[key] = made
                while len(self._values) > self._most:
                    self._values.popitem(last=False)
        return made
