"""Refused messages: counted in memory, stored and logged once per pass.

A flood of forged messages then costs no transaction and no line of the log each.
"""

from __future__ import annotations

from functools import partial
from threading import Lock

from gonogo_service.hosts import refused_messages
from gonogo_service.kit.background_context import BackgroundContext, log
from gonogo_service.kit.database.encoding import utcnow
from gonogo_workers.queue import Dropped

Key = tuple[str, str]
"""(sender, reason)"""


class Refusals:
    """The refused messages since the last `store`; `add` may come from any thread."""

    def __init__(self, context: BackgroundContext) -> None:
        self._context = context
        self._counts: dict[Key, tuple[int, str]] = {}
        self._lock = Lock()

    def add(self, sender: str, reason: str, words: str) -> bool:
        """Count a refused message; the sender is empty for an unknown one.

        Returns whether it is the first of this sender and reason since the last `store`.
        """
        with self._lock:
            count, _ = self._counts.get((sender, reason), (0, ""))
            self._counts[sender, reason] = count + 1, words
            return count == 0

    def store(self) -> None:
        """Store the counts. Raises the AWAY errors; then the counts are stored the next time."""
        for words, count in Dropped.take().items():
            with self._lock:
                before, _ = self._counts.get(("", "form"), (0, ""))
                self._counts["", "form"] = before + count, words
        with self._lock:
            counts, self._counts = self._counts, {}
        now = utcnow()
        for key in list(counts):
            (sender, reason), (count, words) = key, counts[key]
            try:
                self._context.session(
                    partial(
                        refused_messages.record,
                        sender=sender,
                        reason=reason,
                        detail=words,
                        now=now,
                        count=count,
                    )
                )
            except BaseException:
                with self._lock:
                    for left, (number, text) in counts.items():
                        before, _ = self._counts.get(left, (0, ""))
                        self._counts[left] = before + number, text
                raise
            del counts[key]
            log.warning(
                "messages refused", sender=sender or None, reason=reason, count=count, last=words
            )
