"""The stored counts of flips of jobs that compare two builds (gonogo.judging.flips). Reads only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo.judging.factors import Flips, pooled
from gonogo_storage.tables import JobRow, SeedResultRow

MAX_ROWS = 4_000
"""Rows, one for each output of a seed, that are pooled: the first 1,000 seeds of a LayerNorm. More
seeds would make the interval narrower and the page slower."""


def of_job(session: Session, job_id: str) -> tuple[Flips, ...]:
    """Return the flips of each output of a job, by name, pooled over its seeds.

    Repeats of a seed aren't independent: only the first counts. Empty for a job without a reference
    build, and for one whose results have no numbers.
    """
    table = SeedResultRow
    entry = table.statistics[("reference", "flips")]
    job = session.get(JobRow, job_id)
    if job is None or job.reference is None:
        return ()
    rows = session.execute(
        select(table.output, entry)
        .where(table.job_id == job_id, table.repeat == 0, table.output != "")
        .order_by(table.seed, table.output)
        .limit(MAX_ROWS)
    )
    counts: dict[str, list[Mapping[str, Any]]] = {}
    for output, flips in rows:
        if flips:
            counts.setdefault(output, []).append(flips)
    return pooled(counts)
