"""Batches of an attempt's rows: the first at once, then every half second or half a mebibyte."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from gonogo.judging.columns import in_columns, is_judged
from gonogo_workers import queue
from gonogo_workers.messages.chunk import Work
from gonogo_workers.messages.result_sender import ResultSender
from gonogo_workers.messages.rows import Row

FLUSH_AFTER_S = 0.5
FLUSH_FROM_BYTES = 512 * 1024
BYTES_PER_STATISTIC = 12
"""The size of a number in a column, in base64."""


class Batches:
    """The results of one attempt on their way to the sender.

    `sent` lists the (seed, repeat) posted so far.
    """

    def __init__(self, sender: ResultSender, place: Mapping[str, str]) -> None:
        """`place` is what every message of the attempt says: attempt, worker, device."""
        self._sender = sender
        self._place = place
        self._rows: list[Row] = []
        self._artifacts: list[dict[str, Any]] = []
        self._bytes = 0
        self._number = 0
        self._due: float | None = None
        self.sent: list[Work] = []

    @property
    def due(self) -> float | None:
        """The monotonic time at which the next batch must go; None without anything to send."""
        return self._due

    @property
    def count(self) -> int:
        """The number of batches posted.

        Ingest waits for all of them before it believes "finished".
        """
        return self._number

    def add(self, row: Row) -> None:
        """Add a row; the attempt's first row is sent at once, so that a page shows progress."""
        self._rows.append(row)
        self._grow(_size(row))
        if self._number == 0:
            self.flush()

    def add_artifact(self, artifact: dict[str, Any]) -> None:
        """Add an artifact: {"kind", "seed", "repeat", "output", "content"}."""
        self._artifacts.append(artifact)
        self._grow(len(json.dumps(artifact)))

    def flush_if_due(self) -> None:
        """Send the batch if its time has come."""
        if self._due is not None and time.monotonic() >= self._due:
            self.flush()

    def flush(self) -> None:
        """Send everything collected so far."""
        if not self._rows and not self._artifacts:
            return
        body = {
            **self._place,
            "batch": self._number,
            **in_columns(self._rows),
            "artifacts": self._artifacts,
        }
        self._sender.post(queue.BACKGROUND_QUEUE, queue.RESULTS, body)
        self.sent += [(row["seed"], row["repeat"]) for row in self._rows]
        self._number += 1
        self._rows, self._artifacts, self._bytes, self._due = [], [], 0, None

    def _grow(self, size: int) -> None:
        self._bytes += size
        if self._due is None:
            self._due = time.monotonic() + FLUSH_AFTER_S
        if self._bytes >= FLUSH_FROM_BYTES:
            self.flush()


def _size(row: Row) -> int:
    """Return about how many bytes a row adds to a message."""
    if not is_judged(row):
        return len(json.dumps(row))
    statistics = sum(map(len, row["outputs"].values()))
    return BYTES_PER_STATISTIC * statistics + len(json.dumps({**row, "outputs": None}))
