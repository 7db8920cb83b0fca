"""A run on disk as it happens: a line for everything that is worth keeping, so that neither kill -9
nor a server that is away loses it.

One file for each run in the root folder, `.gonogo-unsent-RUN.jsonl`, deleted once the run is
delivered. Who runs or delivers it holds a lock of the file (fcntl's, which ends with the process,
however that ends, and which a process that a test forks doesn't inherit): what is there without a
lock was left over by a run that died, or that nobody took.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from gonogo_pytest.records import Record

VERSION = 1
PREFIX, SUFFIX = ".gonogo-unsent-", ".jsonl"
REFUSED = ".refused"
"""At the end of the name of one that its server won't take: later runs leave it alone, `python -m
gonogo_pytest` tries again."""
KILLED = "the run was killed before the end of this test was heard of"


@dataclass(frozen=True)
class Run:
    """Everything that is delivered of a run."""

    id: str
    to: str
    """A server's address, or the absolute path of an SQLite file."""
    header: dict[str, Any]
    """The first line of format "gonogo"."""
    records: list[Record]
    exit_status: int | None = None
    """pytest's; None of one that died."""
    finished_at: str | None = None


class Spool:
    """The file of the run that goes on here. A child that a test forked writes nothing."""

    def __init__(self, folder: Path, run: str, to: str, header: dict[str, Any]) -> None:
        """Makes it.

        Raises OSError, also where the file system has no locks: others could take a run that goes
        on for a dead one.
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
        """A test runs from here on."""
        self._write({"node": node})

    def heard(self, node: str | None, record: Record, *, done: bool) -> None:
        """What became of it up to now, or at all."""
        self._write({"node": node, "record": record.kept(), "done": done})

    def ended(self, exit_status: int, at: str) -> None:
        """All tests are over."""
        self._write({"exit_status": exit_status, "at": at})

    def refused(self) -> Path:
        """Set aside what its server won't ever take."""
        self.path = self.path.rename(f"{self.path}{REFUSED}")
        return self.path

    def close(self, *, keep: bool) -> None:
        """Give the lock back, and the file too unless it is to be kept for another try."""
        if not keep and os.getpid() == self._pid:
            self.path.unlink(missing_ok=True)
        os.close(self._file)

    def _write(self, line: dict[str, Any]) -> None:
        """In one write: a crash cuts no line.

        Raises OSError, also where the disk was full in the middle of it: then it is the last.
        """
        if os.getpid() == self._pid:
            data = json.dumps(line, separators=(",", ":")).encode("ascii") + b"\n"
            if os.write(self._file, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))


class Left:
    """A file that a run left over, locked."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self.path, self._file = path, file

    def read(self) -> Run:
        """Return the run; tests that weren't over are crashes.

        Raises ValueError for a file that is none, or a later version's.
        """
        lines = [line for line in self._file.read().split(b"\n") if line]
        try:
            first, *rest = [json.loads(line) for line in lines[:-1]] + _last(lines)
            if first["version"] != VERSION:
                raise ValueError(f"it is of version {first['version']}, known: {VERSION}")
            return _folded(
                Run(str(first["run"]), str(first["to"]), dict(first["header"]), []), rest
            )
        except (KeyError, TypeError, AttributeError) as problem:
            raise ValueError(f"not what a run of pytest leaves: {problem!r}") from problem

    def delete(self) -> None:
        """It is delivered."""
        self.path.unlink(missing_ok=True)

    def refused(self) -> None:
        """As `Spool.refused`."""
        if self.path.suffix != REFUSED:
            self.path = self.path.rename(f"{self.path}{REFUSED}")


def left_over(folder: Path, *, but: str | None = None, refused: bool = False) -> Iterator[Left]:
    """What runs in this folder left over, oldest first, one locked at a time; runs that go on, and
    `but`, are left alone.

    refused: those as well that their server did not take.
    """
    for path in sorted(folder.glob(f"{PREFIX}*{SUFFIX}*" if refused else f"{PREFIX}*{SUFFIX}")):
        if but is not None and path.name.startswith(
            f"{PREFIX}{but}"
        ):  # a lock ends with any file of this process that is closed
            continue
        try:
            file = path.open("r+b")
        except OSError:  # delivered meanwhile by another process, or not ours
            continue
        with file:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                continue
            if os.fstat(file.fileno()).st_nlink:
                yield Left(path, file)


def _last(lines: list[bytes]) -> list[Any]:
    """Return the last line, unless it was cut by a full disk or a loss of power."""
    try:
        return [json.loads(lines[-1])] if lines else []
    except ValueError:
        return []


def _folded(run: Run, lines: list[dict[str, Any]]) -> Run:
    open_: dict[str | None, Record] = {}
    ended: dict[str, Any] = {}
    for line in lines:
        if "exit_status" in line:
            ended = line
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
    return Run(run.id, run.to, run.header, run.records, ended.get("exit_status"), ended.get("at"))
