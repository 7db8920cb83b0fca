"""A job's seeds as a line of letters, one for each (seed, repeat).

Ingest updates the line, so that a page reads one row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo.spec.verdicts import Verdict
from gonogo_service.jobs.model import JobRow
from gonogo_service.results.rows import SeedGridRow, SeedResultRow
from gonogo_service.results.seed_order import SeedOrder

if TYPE_CHECKING:
    from gonogo_service.jobs.job import Job

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
"""These letters are stored, so a letter's meaning never changes."""

SeedVerdict = tuple[int, int, str]
"""(seed, repeat, verdict)."""


def fill(session: Session, job: JobRow, rows: Iterable[Mapping[str, Any]]) -> None:
    """Add new rows to the job's line.

    The caller holds the job's lock and has stored the rows.
    """
    order = SeedOrder.of(
        job.request["seeds"], job.request["repeats"], (job.suspects or {}).get("added", ())
    )
    row = session.get(SeedGridRow, job.id, populate_existing=True)
    # the first rows, or a job that ran when the table was added: stored rows are read once
    if row is None:
        row = SeedGridRow(job_id=job.id, letters=_from_rows(session, job.id, order))
        session.add(row)
    row.letters = _with_verdicts(
        row.letters,
        order,
        ((new_row["seed"], new_row["repeat"], new_row["verdict"]) for new_row in rows),
    )


def read(session: Session, job: Job) -> str:
    """Return the letters of a job, up to its last result; missing results are `NONE_YET`."""
    letters = session.scalar(select(SeedGridRow.letters).where(SeedGridRow.job_id == job.id))
    if letters is not None or not job.done:
        return letters or ""
    order = SeedOrder.of(job.seeds, job.repeats, job.added_seeds)
    return _from_rows(session, job.id, order)


def _from_rows(session: Session, job_id: str, order: SeedOrder) -> str:
    table = SeedResultRow
    query = select(table.seed, table.repeat, table.verdict).where(table.job_id == job_id)
    return _with_verdicts(
        "", order, ((seed, repeat, verdict) for seed, repeat, verdict in session.execute(query))
    )


def _with_verdicts(letters: str, order: SeedOrder, verdicts: Iterable[SeedVerdict]) -> str:
    line = bytearray(letters, "ascii")
    for seed, repeat, verdict in verdicts:
        place = order.place(int(seed), int(repeat))
        if place is None:
            continue
        if place >= len(line):
            line.extend(NONE_YET.encode() * (place + 1 - len(line)))
        line[place] = ord(LETTERS[verdict])
    return line.decode("ascii")
