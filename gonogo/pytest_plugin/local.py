"""Store runs in an SQLite file, if there is no server: tests, comparisons and numbers.

A run also has the lines that a server would get. This is SQL outside of the service, because it
runs in a user's repository, without the rest of GoNoGo.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gonogo.pytest_plugin.records import Record, encoded
from gonogo.pytest_plugin.spool import Run

BUSY_S = 30.0
VERSION = 1
SCHEMA = (
    """CREATE TABLE IF NOT EXISTS runs (
        id TEXT PRIMARY KEY, started_at TEXT NOT NULL, finished_at TEXT, exit_status INTEGER,
        suite TEXT NOT NULL, build TEXT, header TEXT NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS tests (
        run TEXT NOT NULL REFERENCES runs (id), number INTEGER NOT NULL, name TEXT NOT NULL,
        seed INTEGER, repeat INTEGER NOT NULL, outcome TEXT NOT NULL, duration_ms REAL,
        message TEXT NOT NULL, line TEXT NOT NULL, PRIMARY KEY (run, number))""",
    """CREATE TABLE IF NOT EXISTS outputs (
        run TEXT NOT NULL, test INTEGER NOT NULL, comparison INTEGER NOT NULL, name TEXT,
        output TEXT NOT NULL, verdict TEXT NOT NULL, explanation TEXT NOT NULL,
        within INTEGER NOT NULL, tolerance TEXT NOT NULL, spec TEXT, max_abs REAL,
        tolerance_ratio REAL, rounding_ratio REAL, tolerance_roundings REAL,
        statistics TEXT NOT NULL, PRIMARY KEY (run, test, comparison, output),
        FOREIGN KEY (run, test) REFERENCES tests (run, number))""",
    "CREATE INDEX IF NOT EXISTS tests_by_name ON tests (name, seed)",
)
COLUMNS = ("max_abs", "tolerance_ratio", "rounding_ratio", "tolerance_roundings")


class LocalFile:
    """One file with any number of runs; processes may write to it at the same time."""

    def __init__(self, path: Path) -> None:
        """Make the file and its tables.

        Raises OSError or sqlite3.Error if that fails, ValueError for a later version's file.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
        try:
            (version,) = self._connection.execute("PRAGMA user_version").fetchone()
            if version > VERSION:
                raise ValueError(
                    f"{path} was written by a later version of GoNoGo (format {version},"
                    f" known: {VERSION})"
                )
            with self._writing():
                for statement in SCHEMA:
                    self._connection.execute(statement)
                self._connection.execute(f"PRAGMA user_version = {VERSION}")
        except BaseException:
            self._connection.close()
            raise

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Open a transaction that waits for other writers at its start, if SQLite can."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def add(self, run: Run) -> None:
        """Store the run in one transaction; a run that is there already stays as it is."""
        header, insert = run.header, self._connection.execute
        with self._writing():
            values = (
                run.id,
                header["started_at"],
                run.finished_at,
                run.exit_status,
                header["suite"],
                header.get("build"),
                json.dumps(header),
            )
            if insert(f"INSERT OR IGNORE INTO runs VALUES ({_marks(7)})", values).rowcount == 0:
                return
            for number, record in enumerate(run.records):
                test = (
                    run.id,
                    number,
                    record.name,
                    record.seed,
                    record.repeat,
                    record.outcome,
                    record.duration_ms,
                    record.message,
                    encoded(record.to_json()).decode(),
                )
                insert(f"INSERT INTO tests VALUES ({_marks(9)})", test)
                outputs = _rows(run.id, number, record)
                self._connection.executemany(f"INSERT INTO outputs VALUES ({_marks(15)})", outputs)

    def __enter__(self) -> LocalFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()


def _marks(count: int) -> str:
    return ", ".join("?" * count)


def _rows(run: str, number: int, record: Record) -> Iterator[tuple[Any, ...]]:
    for place, comparison in enumerate(record.comparisons):
        spec = comparison.spec
        gate = comparison.tolerance if spec is None else spec.get("tolerance", {})
        for output, statistics in comparison.outputs.items():
            yield (
                run,
                number,
                place,
                comparison.name,
                output,
                comparison.verdict,
                comparison.explanation,
                int(comparison.within),
                json.dumps(gate),
                None if spec is None else json.dumps(spec),
                *(statistics.get(name) for name in COLUMNS),
                json.dumps(statistics),
            )
