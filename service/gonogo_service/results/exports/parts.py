"""The data of an export: one job or the jobs of a run, with their rows, read page by page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gonogo.spec.selections import sample
from gonogo_service.jobs import store as jobs
from gonogo_service.jobs.model import JobRow
from gonogo_service.people.context import Context
from gonogo_service.results import seeds, selection_tests
from gonogo_service.results.seeds import Order

PAGE = 500
Row = dict[str, Any]


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


def parts(
    context: Context, members: Iterable[tuple[str | None, str]], order: Order | None = None
) -> Iterator[Part]:
    """Yield jobs, given as (name, id): by default by seed once one is over, by arrival before."""
    for name, job_id in members:
        with context.reading() as session:
            job = jobs.get(session, job_id)
            census = {} if job is None else selection_tests.census(session, job)
        if job is not None:
            by: Order = order or ("seed" if job.state.final else "arrival")
            yield Part(job, name, _rows(context, job, by), census)


def _rows(context: Context, job: JobRow, order: Order) -> Iterator[Row]:
    """Yield every result, with one transaction per page.

    So a slow reader holds neither a connection nor a snapshot of the database.
    """
    cursor: str | None = None
    while True:
        with context.reading() as session:
            page = seeds.page(session, job.id, limit=PAGE, cursor=cursor, order=order)
            now = jobs.get(session, job.id)
        if now is None or now.seeds_removed_at is not None:
            # the connection breaks: a file that ends early must not look complete
            raise RuntimeError(f"the results of job {job.id} were removed while they were read")
        yield from (public_row(job, row) for row in page.items)
        if page.next is None:
            return
        cursor = page.next


def public_row(job: JobRow, row: Row) -> Row:
    """Return a row as the API shows it: outputs by name; a selection has iterations, not seeds."""
    rest = {name: value for name, value in row.items() if name != "seed"}
    rest["outputs"] = dict(sorted(row["outputs"].items()))
    return {**sample(job.test, row["seed"]), **rest}
