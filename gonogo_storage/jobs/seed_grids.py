"""A job's seeds as a line of letters, one for each (seed, repeat): kept by ingest, so that a page
reads one row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo.spec.verdicts import Verdict
from gonogo_storage.seeds.seed_order import SeedOrder
from gonogo_storage.tables import JobRow, SeedGridRow, SeedResultRow

if TYPE_CHECKING:
    from gonogo_storage.jobs.job import Job

NONE_YET = "."
LETTERS: Mapping[str, str] = {
    Verdict.error: "e",
    Verdict.crash: "c",
    Verdict.hang: "h",
    Verdict.fail: "f",
    Verdict.pass_by_tolerance: "t",
    Verdict.fail_by_tolerance: "r",
    Verdict.suspect: "s",
    Verdict.inconclusive: "o",
    Verdict.not_judged: "u",
    Verdict.skipped: "k",
    Verdict.not_run: "a",
    Verdict.pass_: "p",
}
"""They are stored: a letter keeps its meaning for ever."""

Told = tuple[int, int, str]
"""(seed, repeat, verdict)."""


def fill(session: Session, job: JobRow, rows: Iterable[Mapping[str, Any]]) -> None:
    """Take rows that are new into the job's line; the caller holds the job's lock and has stored
    the rows.
    """
    order = SeedOrder.of(job.request, job.suspects)
    row = session.get(SeedGridRow, job.id, populate_existing=True)
    if (
        row is None
        # the first rows, or a job that ran while the table came: what is stored already is read once
    ):
        row = SeedGridRow(job_id=job.id, letters=_from_rows(session, job.id, order))
        session.add(row)
    row.letters = _with(
        row.letters, order, ((each["seed"], each["repeat"], each["verdict"]) for each in rows)
    )


def read(session: Session, job: Job) -> str:
    """The letters of a job as far as its results go; shorter than the job where the last ones have
    not come.
    """
    kept = session.scalar(select(SeedGridRow.letters).where(SeedGridRow.job_id == job.id))
    if kept is not None or not job.done:
        return kept or ""
    return _from_rows(session, job.id, SeedOrder.of(job.request, job.suspects))


def _from_rows(session: Session, job_id: str, order: SeedOrder) -> str:
    table = SeedResultRow
    query = (
        select(table.seed, table.repeat, table.seed_verdict)
        .where(table.job_id == job_id)
        .distinct()
    )
    return _with(
        "", order, ((seed, repeat, verdict) for seed, repeat, verdict in session.execute(query))
    )


def _with(letters: str, order: SeedOrder, told: Iterable[Told]) -> str:
    line = bytearray(letters, "ascii")
    for seed, repeat, verdict in told:
        place = order.place(int(seed), int(repeat))
        if place is None:
            continue
        if place >= len(line):
            line.extend(NONE_YET.encode() * (place + 1 - len(line)))
        line[place] = ord(LETTERS[verdict])
    return line.decode("ascii")
