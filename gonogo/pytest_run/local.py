"""Runs in an SQLite file, where there is no server: tests, comparisons and numbers, and what a server would be told of them.

The one file of the domain with SQL: it stands in a user's repository, without the rest of GoNoGo.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gonogo.pytest_run.records import Record, encoded

BUSY_S = 30.0
VERSION = 1
SCHEMA = (
    """CREATE TABLE IF NOT EXISTS runs (
        id TEXT PRIMARY KEY, started_at TEXT NOT NULL, finished_at TEXT, exit_status INTEGER,
        suite TEXT NOT NULL, build TEXT, header TEXT NOT NULL, server TEXT, jobs TEXT)""",
    """CREATE TABLE IF NOT EXISTS tests (
        run TEXT NOT NULL REFERENCES runs (id), number INTEGER NOT NULL, name TEXT NOT NULL, seed INTEGER, repeat INTEGER NOT NULL,
        outcome TEXT NOT NULL, duration_ms REAL, message TEXT NOT NULL, line TEXT NOT NULL, PRIMARY KEY (run, number))""",
    """CREATE TABLE IF NOT EXISTS outputs (
        run TEXT NOT NULL, test INTEGER NOT NULL, comparison INTEGER NOT NULL, name TEXT, output TEXT NOT NULL,
        verdict TEXT NOT NULL, explanation TEXT NOT NULL, within INTEGER NOT NULL, tolerance TEXT NOT NULL, spec TEXT,
        max_abs REAL, tolerance_ratio REAL, budget_ratio REAL, tolerance_roundings REAL, statistics TEXT NOT NULL,
        PRIMARY KEY (run, test, comparison, output), FOREIGN KEY (run, test) REFERENCES tests (run, number))""",
    "CREATE INDEX IF NOT EXISTS tests_by_name ON tests (name, seed)",
)
COLUMNS = ("max_abs", "tolerance_ratio", "budget_ratio", "tolerance_roundings")


class LocalFile:
    """One file; any number of runs, also of processes that write at the same time."""

    def __init__(self, path: Path) -> None:
        """Makes the file and its tables. Raises OSError or sqlite3.Error where that can't be, ValueError for a later version's file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
        try:
            (version,) = self._connection.execute("PRAGMA user_version").fetchone()
            if version > VERSION:
                raise ValueError(f"{path} is of a later version of GoNoGo ({version}, known: {VERSION})")
            with self._writing():
                for statement in SCHEMA:
                    self._connection.execute(statement)
                self._connection.execute(f"PRAGMA user_version = {VERSION}")
        except BaseException:
            self._connection.close()
            raise

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """A transaction that waits for other writers at its start, where SQLite can."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def start(self, run: str, header: dict[str, Any], server: str | None = None) -> None:
        """A run begins; `server`: the one that should have it and couldn't be told."""
        with self._writing():
            self._connection.execute(
                "INSERT INTO runs (id, started_at, suite, build, header, server) VALUES (?, ?, ?, ?, ?, ?)",
                (run, header["started_at"], header["suite"], header.get("build"), json.dumps(header), server),
            )

    def add(self, run: str, records: list[tuple[int, Record]]) -> None:
        """Tests that ended, each with its number in the run; one transaction."""
        with self._writing():
            for number, record in records:
                self._connection.execute(
                    "INSERT INTO tests VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (run, number, record.name, record.seed, record.repeat, record.outcome, record.duration_ms, record.message,
                     encoded(record.to_json()).decode()),
                )  # fmt: skip
                self._connection.executemany(
                    "INSERT INTO outputs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", _rows(run, number, record)
                )

    def finish(self, run: str, exit_status: int) -> None:
        """The run ended."""
        ended = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        with self._writing():
            self._connection.execute("UPDATE runs SET finished_at = ?, exit_status = ? WHERE id = ?", (ended, exit_status, run))

    def sent(self, run: str, jobs: list[str]) -> None:
        """The server has it, as these jobs."""
        with self._writing():
            self._connection.execute("UPDATE runs SET jobs = ? WHERE id = ?", (json.dumps(jobs), run))

    def unsent(self, server: str) -> list[str]:
        """Runs that this server should have and hasn't, oldest first."""
        found = self._connection.execute(
            "SELECT id FROM runs WHERE server = ? AND jobs IS NULL AND finished_at IS NOT NULL ORDER BY id", (server,)
        )
        return [str(run) for (run,) in found]

    def lines(self, run: str) -> Iterator[bytes]:
        """The run in format "gonogo": the header, then a line for each test."""
        (header,) = self._connection.execute("SELECT header FROM runs WHERE id = ?", (run,)).fetchone()
        yield encoded(json.loads(header))
        for (line,) in self._connection.execute("SELECT line FROM tests WHERE run = ? ORDER BY number", (run,)):
            yield str(line).encode()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


def _rows(run: str, number: int, record: Record) -> Iterator[tuple[Any, ...]]:
    for place, each in enumerate(record.comparisons):
        spec = None if each.spec is None else json.dumps(each.spec)
        gate = json.dumps(each.tolerance if each.spec is None else each.spec.get("tolerance", {}))
        for output, statistics in each.outputs.items():
            said = (each.verdict, each.explanation, int(each.within), gate, spec)
            numbers = [statistics.get(name) for name in COLUMNS]
            yield (run, number, place, each.name, output, *said, *numbers, json.dumps(statistics))


def new_id() -> str:
    """A UUIDv7 (RFC 9562): sortable by time."""
    milliseconds, chance = time.time_ns() // 1_000_000, int.from_bytes(os.urandom(10), "big")
    value = milliseconds << 80 | 0x7 << 76 | (chance >> 68) << 64 | 0b10 << 62 | chance & (1 << 62) - 1
    text = f"{value:032x}"
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
