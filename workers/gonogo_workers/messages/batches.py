"""Batches of an attempt's rows: the first at once, then every half second or half a mebibyte."""

from __future__ import annotations

import json
import logging
import time
from typing import Any

from gonogo.errors import in_words
from gonogo.judging.columns import in_columns, is_judged
from gonogo.reports import forms
from gonogo_workers.messages.chunk import Work
from gonogo_workers.messages.rows import Place, Row, failed
from gonogo_workers.server.sender import Sender

log = logging.getLogger(__name__)

FLUSH_AFTER_S = 0.5
FLUSH_FROM_BYTES = 512 * 1024
BYTES_PER_NUMBER = 12
"""The size of a number in a column, in base64."""
MAX_PART_BYTES = 8 * 2**20
"""The largest row or artifact as JSON. With what is collected before it, a batch stays below the 32
MiB that the service takes."""


class Batches:
    """The results of one attempt on their way to the sender.

    `sent` lists the (seed, repeat) posted so far.
    """

    def __init__(self, sender: Sender, attempt: str) -> None:
        """`attempt` is the id of the attempt."""
        self._sender = sender
        self._path = f"/attempts/{attempt}/results"
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

        The service waits for all of them before it ends the attempt.
        """
        return self._number

    def add(self, row: Row) -> None:
        """Add a row; the attempt's first row is sent at once, so that a page shows progress.

        A row that the service would refuse, with all others of its batch, becomes an error of its
        own seed.
        """
        try:
            size = _size(row)
        except (ValueError, TypeError, RecursionError) as problem:
            row = _refused(row, problem)
            size = _size(row)
        self._rows.append(row)
        self._grow(size)
        if self._number == 0:
            self.flush()

    def add_artifact(self, artifact: dict[str, Any]) -> None:
        """Add an artifact: {"kind", "seed", "repeat", "output", "content"}.

        One that no message can hold is left out: evidence must not cost a result.
        """
        try:
            size = _checked_size(artifact)
        except (ValueError, TypeError, RecursionError) as problem:
            log.warning("the artifact %s is left out: %s", artifact["kind"], in_words(problem))
            return
        self._artifacts.append(artifact)
        self._grow(size)

    def flush_if_due(self) -> None:
        """Send the batch if its time has come."""
        if self._due is not None and time.monotonic() >= self._due:
            self.flush()

    def flush(self) -> None:
        """Send everything collected so far."""
        if not self._rows and not self._artifacts:
            return
        body = {**in_columns(self._rows), "artifacts": self._artifacts}
        self._sender.post("PUT", f"{self._path}/{self._number}", body)
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
    """Return about how many bytes a row adds to a message.

    Raises ValueError, TypeError or RecursionError for one of a form that the service refuses.
    """
    if not is_judged(row):
        size = _checked_size(row)
        forms.check_rows([row])
        for name, output in (row.get("outputs") or {}).items():
            if "outcome" in output:
                forms.check_test(name, output)
        return size
    statistics = [value for output in row["outputs"].values() for value in output.values()]
    others = [value for value in statistics if type(value) is not float]
    numbers = len(statistics) - len(others)
    return BYTES_PER_NUMBER * numbers + len(json.dumps({**row, "outputs": others}))


def _checked_size(part: dict[str, Any]) -> int:
    """Return the bytes of a row or an artifact as JSON. Raises ValueError for too many."""
    text = json.dumps(part, allow_nan=False)
    if len(text) > MAX_PART_BYTES:
        raise ValueError(f"{len(text)} bytes; allowed: {MAX_PART_BYTES}")
    return len(text)


def _refused(row: Row, problem: Exception) -> Row:
    """Return the row of a seed whose results can't be sent."""
    message = f"its results can't be sent: {in_words(problem)}"
    log.warning("seed %s: %s", row["seed"], message)
    place = Place(row["device"], row["host_run"], row["position"])
    work = (row["seed"], row["repeat"])
    return failed(work, place, row["duration_ms"], "error", message)
