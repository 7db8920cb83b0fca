"""The request for one iteration of a selection, and reading the reports."""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any

from gonogo.errors import JobError
from gonogo.reports import documents
from gonogo.spec.selections import Selection
from gonogo_workers.reports.rows import Report, reports_of

MAX_REPORT_BYTES = 256 * 2**20


def request(selection: Selection, iteration: int, file: Path, deadline_s: float) -> dict[str, Any]:
    """Return the message for a child that reports.

    It answers when `file` holds the reports of the iteration.
    """
    return {
        "op": "report",
        "selection": selection.inner(),
        "iteration": iteration,
        "seed": selection.seed_of(iteration),
        "deadline_s": deadline_s,
        "file": str(file),
    }


def read_reports(file: Path) -> list[Report]:
    """Return the reports that the child wrote and delete the file. Raises JobError."""
    try:
        with open(file, "rb", opener=regular_file) as reports:
            size = os.fstat(reports.fileno()).st_size
            if size > MAX_REPORT_BYTES:
                raise JobError(f"the reports must be a file of at most {MAX_REPORT_BYTES} bytes")
            text = reports.read(size)
        documents.check_size(text)
        data = json.loads(text)
        file.unlink()
    except (OSError, ValueError, RecursionError) as problem:
        raise JobError(f"the executor's reports can't be read: {problem}") from problem
    return reports_of(data)


def regular_file(path: str, flags: int) -> int:
    """Open a file that a kernel made: never a link, which may lead to any file that we may read.

    It is looked at after it is open, so that nobody can change it in between. Raises OSError for
    anything but a regular file. An opener for `open`.
    """
    handle = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not a regular file")
    return handle
