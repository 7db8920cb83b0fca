"""What an export holds: the jobs of a job or of a run, each with its rows, read a page at a
time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from sqlalchemy.orm import Session

from gonogo.spec.selections import sample
from gonogo_storage.jobs import jobs, selection_tests
from gonogo_storage.jobs.job import Job
from gonogo_storage.seeds import results

PAGE = 500
Row = dict[str, Any]
Order = Literal["arrival", "seed"]


class Reads(Protocol):
    """Where rows come from: the context of the service."""

    def reading(self) -> AbstractContextManager[Session]:
        """A read transaction."""
        ...


@dataclass(frozen=True)
class Part:
    """One job and its rows, which can be read once."""

    job: Job
    name: str | None
    """In its run; None of a job by itself."""
    rows: Iterable[Row]
    census: Mapping[tuple[str, str | None], int]
    """(verdict, outcome) -> how many seeds, or tests of all iterations, there were when it was
    asked."""


@dataclass(frozen=True)
class Export:
    """A whole file: what it is of, and its parts one after the other."""

    noun: Literal["job", "run"]
    id: str
    parts: Iterable[Part]

    @property
    def title(self) -> str:
        """In a few words."""
        return f"gonogo {self.noun} {self.id}"


def of_job(reads: Reads, job: Job, order: Order | None = None, *, size: int = PAGE) -> Export:
    """Of one job: by seed once it is over, by arrival before, unless asked otherwise."""
    return Export("job", job.id, (_part(reads, job, None, order, size) for job in (job,)))


def of_run(
    reads: Reads, run_id: str, members: Iterable[tuple[str, str]], *, size: int = PAGE
) -> Export:
    """Of a run; members: (name, job's id) in order."""
    return Export("run", run_id, _members(reads, members, size))


def _members(reads: Reads, members: Iterable[tuple[str, str]], size: int) -> Iterator[Part]:
    for name, job_id in members:
        with reads.reading() as session:
            job = jobs.get(session, job_id)
        if job is not None:
            yield _part(reads, job, name, None, size)


def _part(reads: Reads, job: Job, name: str | None, order: Order | None, size: int) -> Part:
    with reads.reading() as session:
        census = selection_tests.census(session, job)
    return Part(
        job,
        name,
        _rows(reads, job, order or ("seed" if job.state.final else "arrival"), size),
        census,
    )


def _rows(reads: Reads, job: Job, order: Order, size: int) -> Iterator[Row]:
    """Every result, a page per transaction: a slow reader holds no connection and no snapshot of
    the database.
    """
    cursor: str | None = None
    while True:
        with reads.reading() as session:
            page = results.page(session, job.id, limit=size, cursor=cursor, order=order)
        for row in page.items:
            yield shown(job, row)
        if page.next is None:
            return
        cursor = page.next


def shown(job: Job, row: Row) -> Row:
    """A row as the API shows it: what controls a sample of a selection is its iteration."""
    return {
        **sample(job.canonical, row["seed"]),
        **{name: value for name, value in row.items() if name != "seed"},
    }
