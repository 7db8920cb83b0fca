"""Store a run on disk as it happens, so that neither kill -9 nor an absent server loses it.

Each run has a file in the root folder, `.gonogo-unsent-RUN.jsonl`, with a line for each event. It
is deleted once the run is delivered. The process that runs or delivers it holds a lock of the file:
fcntl's, which ends with the process, however that ends, and which a forked process doesn't inherit.
A file without a lock was left over by a run that died, or that was not delivered.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from gonogo.pytest_plugin.records import Record, encoded

VERSION = 1
PREFIX, SUFFIX = ".gonogo-unsent-", ".jsonl"
REFUSED = ".refused"
"""The suffix of a file that its server refuses: later runs leave it alone, `python -m
gonogo.pytest_plugin` tries again."""
DAMAGES = (KeyError, TypeError, AttributeError, ArithmeticError, RecursionError)
KILLED = "the run was killed before the end of this test was heard of"


class Undelivered(Exception):
    """A run could not be delivered; the message has the destination and the reason.

    `refused`: trying again would not help.
    """

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused


@dataclass(frozen=True)
class SpooledRun:
    """The parts of a run that are delivered."""

    id: str
    to: str
    """A server's address, or the absolute path of a folder."""
    header: dict[str, Any]
    """The first line of format "gonogo"."""
    records: list[Record]
    finished_at: str | None = None
    """None if the run died."""


class Spool:
    """The file of the current run. A child that a test forked writes nothing."""

    def __init__(self, folder: Path, run: str, to: str, header: dict[str, Any]) -> None:
        """Make the file.

        Raises OSError, also if the file system has no locks: others could take a live run for a
        dead one.
        """
        self.path = folder / f"{PREFIX}{run}{SUFFIX}"
        self._pid = os.getpid()
        self._file = os.open(
            self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600
        )
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._write({"version": VERSION, "run": run, "to": to, "header": header})
        except BaseException:
            self.close(keep=False)
            raise

    def began(self, node: str) -> None:
        """Write that a test begins."""
        self._write({"node": node})

    def write_record(self, node: str | None, record: Record, *, done: bool) -> None:
        """Write a test's record, final if `done`."""
        self._write({"node": node, "record": record.stored(), "done": done})

    def ended(self, at: str) -> None:
        """Write that all tests are finished."""
        self._write({"at": at})

    def refused(self) -> Path:
        """Rename the file of a run that its server will never accept; return its path."""
        self.path = self.path.rename(f"{self.path}{REFUSED}")
        return self.path

    def close(self, *, keep: bool) -> None:
        """Release the lock, and delete the file unless `keep`."""
        if not keep and os.getpid() == self._pid:
            self.path.unlink(missing_ok=True)
        os.close(self._file)

    def _write(self, line: dict[str, Any]) -> None:
        """Write a line at once, so that a crash cuts none.

        Raises OSError, also if the disk became full in the middle of it: then it is the last line.
        """
        if os.getpid() == self._pid:
            data = json.dumps(line, separators=(",", ":")).encode("ascii") + b"\n"
            if os.write(self._file, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))


class Left:
    """A leftover file of a run, locked."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self.path, self._file = path, file

    def read(self) -> SpooledRun:
        """Return the run; unfinished tests are crashes.

        Raises ValueError for other files, or a later version's.
        """
        lines = [line for line in self._file.read().split(b"\n") if line]
        try:
            first, *rest = [json.loads(line) for line in lines[:-1]] + _last(lines)
            if first["version"] != VERSION:
                raise ValueError(f"its version is {first['version']}, known: {VERSION}")
            run = _folded(
                SpooledRun(str(first["run"]), str(first["to"]), dict(first["header"]), []), rest
            )
            encoded([run.header, *(record.to_json() for record in run.records)])
        except DAMAGES as problem:
            raise ValueError(f"not a file of a pytest run: {problem!r}") from problem
        return run

    def delete(self) -> None:
        """Delete the file after the delivery."""
        self.path.unlink(missing_ok=True)

    def refused(self) -> None:
        """Rename the file; see `Spool.refused`."""
        if self.path.suffix != REFUSED:
            self.path = self.path.rename(f"{self.path}{REFUSED}")


def left_over(folder: Path, *, but: str | None = None, refused: bool = False) -> Iterator[Left]:
    """Yield the leftover files of runs in this folder, oldest first, one locked at a time.

    Running ones, and `but`, are left out. refused: include those that their server refused.
    """
    for path in sorted(folder.glob(f"{PREFIX}*{SUFFIX}*" if refused else f"{PREFIX}*{SUFFIX}")):
        # closing any descriptor of the file would end this process's lock
        if but is not None and path.name.startswith(f"{PREFIX}{but}"):
            continue
        try:
            file = path.open("r+b")
        except OSError:  # delivered by another process in the meantime, or not ours
            continue
        with file:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                continue
            if os.fstat(file.fileno()).st_nlink:
                yield Left(path, file)


def _last(lines: list[bytes]) -> list[Any]:
    """Return the last line, unless a full disk or a power loss cut it."""
    try:
        return [json.loads(lines[-1])] if lines else []
    except ValueError:
        return []


def _folded(run: SpooledRun, lines: list[dict[str, Any]]) -> SpooledRun:
    open_: dict[str | None, Record] = {}
    at: str | None = None
    for line in lines:
        if "at" in line:
            at = line["at"]
        elif "record" not in line:
            open_[line["node"]] = Record(line["node"], "crash")
        elif line["done"]:
            open_.pop(line["node"], None)
            run.records.append(Record.of(line["record"]))
        else:
            open_[line["node"]] = Record.of(line["record"])
    seen = Counter((record.name, record.seed) for record in run.records)
    for record in open_.values():
        record.outcome, record.message, record.repeat = (
            "crash",
            KILLED,
            seen[record.name, record.seed],
        )
        run.records.append(record)
    return replace(run, finished_at=at)
