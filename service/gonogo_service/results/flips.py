"""The stored counts of flips of jobs that compare two builds (gonogo.judging.flips). Reads only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy.orm import Session

from gonogo.judging.flip_summary import FlipsSummary, pooled
from gonogo_service.results import seeds as stored
from gonogo_service.results.model import ResultRow

MAX_SEEDS = 1_000
"""Number of seeds that are pooled. More would make the test sharper and the page slower."""


def of_job(session: Session, job_id: str) -> tuple[FlipsSummary, ...]:
    """Return the flips of each output of a job, by name, pooled over its seeds.

    Repeats of a seed aren't independent: only the first counts. Empty for a job whose results have
    no numbers.
    """
    table = ResultRow
    first = table.job_id == job_id, table.repeat == 0
    counts: dict[str, list[Mapping[str, Any]]] = {}
    for seed in stored.read(session, *first, statistics=("reference",), limit=MAX_SEEDS):
        for output, judged in seed.outputs.items():
            if flips := (judged.get("reference") or {}).get("flips"):
                counts.setdefault(output, []).append(flips)
    return pooled(counts)
