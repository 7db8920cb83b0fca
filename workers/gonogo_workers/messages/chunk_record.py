"""Remembers the attempts that ran on this host, so that a repeated message runs none again."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from gonogo_workers.queue import MAX_AGE_S

log = logging.getLogger(__name__)

FILE = "attempts.sqlite"
FORGET_AFTER_S = 2 * MAX_AGE_S
"""Longer than a message that runs a chunk is taken."""
FORGET_EVERY = 1000


class ChunkRecord:
    """The attempts of all workers of this host, in one file that outlives them.

    Where the file can't be written, this process remembers its own.
    """

    def __init__(self, folder: Path, clock: Callable[[], float]) -> None:
        self._path = folder / FILE
        self._clock = clock
        self._in_memory: dict[str, float] = {}
        self._lock = threading.Lock()

    def add(self, attempt: str) -> bool:
        """Record an attempt; return False if it was recorded before."""
        with self._lock:
            now = self._clock()
            if attempt in self._in_memory:
                return False
            if len(self._in_memory) % FORGET_EVERY == 0:
                self._in_memory = {
                    name: at for name, at in self._in_memory.items() if at > now - FORGET_AFTER_S
                }
            self._in_memory[attempt] = now
            try:
                return self._store(attempt, now)
            except (sqlite3.Error, OSError) as problem:
                log.warning("can't write %s: %s", self._path, problem)
                return True

    def _store(self, attempt: str, now: float) -> bool:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(self._path, timeout=5.0)) as database, database:
            # a lost record costs at most a chunk that runs twice
            database.execute("PRAGMA synchronous = OFF")
            database.execute(
                "CREATE TABLE IF NOT EXISTS attempts (attempt TEXT PRIMARY KEY, at REAL NOT NULL)"
                " WITHOUT ROWID"
            )
            if len(self._in_memory) % FORGET_EVERY == 1:
                database.execute("DELETE FROM attempts WHERE at < ?", (now - FORGET_AFTER_S,))
            inserted = database.execute(
                "INSERT INTO attempts VALUES (?, ?) ON CONFLICT DO NOTHING", (attempt, now)
            )
            return inserted.rowcount == 1
