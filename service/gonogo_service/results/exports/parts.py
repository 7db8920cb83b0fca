"""The data of an export: one job or the jobs of a run, with their rows, read page by page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from sqlalchemy.orm import Session

from gonogo.spec.selections import sample
from gonogo_service.jobs import selection_tests
from gonogo_service.jobs import store as jobs
from gonogo_service.jobs.model import JobRow
from gonogo_service.results import seeds as results

PAGE = 500
Row = dict[str, Any]
Order = Literal["arrival", "seed"]


class Reads(Protocol):
    """The source of rows: the service's context."""

    def reading(self) -> AbstractContextManager[Session]:
        """Open a read transaction."""
        ...


@dataclass(frozen=True)
class Part:
    """One job and its rows, which can be read once."""

    job: JobRow
    name: str | None
    """The job's name in its run; None for a single job."""
    rows: Iterable[Row]
    census: Mapping[tuple[str, str | None], int]
    """(verdict, outcome) -> number of seeds, or of tests of all iterations, when it was read."""


@dataclass(frozen=True)
class Export:
    """A whole file: the exported job or run, and its parts in order."""

    noun: Literal["job", "run"]
    id: str
    parts: Iterable[Part]

    @property
    def title(self) -> str:
        """Return a short title."""
        return f"gonogo {self.noun} {self.id}"


def of_job(reads: Reads, job: JobRow, order: Order | None = None, *, size: int = PAGE) -> Export:
    """Export one job: by default ordered by seed once it is over, and by arrival before."""
    return Export("job", job.id, (_part(reads, job, None, order, size) for job in (job,)))


def of_run(
    reads: Reads, run_id: str, members: Iterable[tuple[str, str]], *, size: int = PAGE
) -> Export:
    """Export a run; `members` are (name, job ID) in order."""
    return Export("run", run_id, _members(reads, members, size))


def _members(reads: Reads, members: Iterable[tuple[str, str]], size: int) -> Iterator[Part]:
    for name, job_id in members:
        with reads.reading() as session:
            job = jobs.get(session, job_id)
        if job is not None:
            yield _part(reads, job, name, None, size)


def _part(reads: Reads, job: JobRow, name: str | None, order: Order | None, size: int) -> Part:
    with reads.reading() as session:
        census = selection_tests.census(session, job)
    return Part(
        job,
        name,
        _rows(reads, job, order or ("seed" if job.state.final else "arrival"), size),
        census,
    )


def _rows(reads: Reads, job: JobRow, order: Order, size: int) -> Iterator[Row]:
    """Yield every result, with one transaction per page.

    So a slow reader holds neither a connection nor a snapshot of the database.
    """
    cursor: str | None = None
    while True:
        with reads.reading() as session:
            page = results.page(session, job.id, limit=size, cursor=cursor, order=order)
            now = jobs.get(session, job.id)
        if now is None or now.seeds_removed_at is not None:
            # the connection breaks: a file that ends early must not look complete
            raise RuntimeError(f"the results of job {job.id} were removed while they were read")
        for row in page.items:
            yield public_row(job, row)
        if page.next is None:
            return
        cursor = page.next


def public_row(job: JobRow, row: Row) -> Row:
    """Return a row as the API shows it: samples of a selection have an iteration, not a seed."""
    return {
        **sample(job.test, row["seed"]),
        **{name: value for name, value in row.items() if name != "seed"},
    }
