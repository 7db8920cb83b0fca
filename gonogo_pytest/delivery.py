"""A run reaches its server or its SQLite file exactly once, now or later."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

from gonogo import urls
from gonogo_pytest import server, spool
from gonogo_pytest.local import LocalFile
from gonogo_pytest.records import encoded
from gonogo_pytest.spool import Run


class Undelivered(Exception):
    """Says where to, and why not. `refused`: trying again would not help."""

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused


def is_server(to: str) -> bool:
    """Return whether a destination is a server's address; else it is a file."""
    return to.startswith(("http://", "https://"))


def deliver(run: Run) -> list[str]:
    """Where its numbers are, in words.

    The same run delivered again is stored once. Raises Undelivered.
    """
    if is_server(run.to):
        try:
            answers = server.send(
                run.to,
                run.id,
                encoded(run.header),
                (encoded(each.to_json()) for each in run.records),
            )
        except server.Unsent as problem:
            raise Undelivered(str(problem), refused=problem.refused) from None
        return [
            f"{run.to.rstrip('/')}{urls.job(each['id'])} ({each.get('verdict')})"
            for each in answers
        ]
    try:
        with LocalFile(Path(run.to)) as file:
            file.add(run)
    except (OSError, ValueError, sqlite3.Error) as problem:
        raise Undelivered(f"{run.to}: {problem}") from None
    return [f"{run.to}, run {run.id}"]


def catch_up(
    folder: Path, *, only: str | None = None, but: str | None = None, to: str | None = None
) -> Iterator[tuple[bool, str]]:
    """Deliver what earlier runs left over in a folder, each where it was to go: (whether that
    worked, words) for each.

    only: just those for this destination, and none that was refused before. but: not this run,
    which goes on here. to: all of them there. After the first that can't be delivered others to the
    same place aren't tried.
    """
    away: set[str] = set()
    for left in spool.left_over(folder, but=but, refused=only is None):
        try:
            run = left.read()
        except ValueError as problem:
            yield False, f"{left.path.name} can't be read: {problem}"
            continue
        if to is not None:
            run = Run(run.id, to, run.header, run.records, run.exit_status, run.finished_at)
        if run.to in away or only not in (None, run.to):
            continue
        try:
            words = deliver(run) if run.records else ["no test of it had begun"]
        except Undelivered as problem:
            if problem.refused:
                left.refused()
            else:
                away.add(run.to)
            yield (
                False,
                f"the run of {run.header['started_at']} is still in {left.path.name}: {problem}",
            )
            continue
        left.delete()
        died = "" if run.finished_at else ", which was killed"
        for each in words:
            yield True, f"the run of {run.header['started_at']}{died}: {each}"
