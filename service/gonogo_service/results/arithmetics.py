"""The arithmetics that explain stored seeds, by job and output. Bounded reads."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import or_
from sqlalchemy.orm import Session

from gonogo.flakiness.arithmetic_changes import Programs
from gonogo.spec import arithmetic_words
from gonogo.spec.arithmetic_words import OutputArithmetic
from gonogo.spec.verdicts import Explanation
from gonogo_service.kit.database.paging import batched
from gonogo_service.results.rows import SeedResultRow, SeedSourceRow
from gonogo_service.results.seed_rows import slots, stored

MAX_SEEDS = 64
"""The first (seed, repeat) of each job that are read: enough for a majority."""
_AT_ONCE = 500


def of_job(session: Session, job_id: str) -> tuple[OutputArithmetic, ...]:
    """Return the arithmetics of each output of a job, by name; of its first MAX_SEEDS."""
    table = SeedResultRow
    query = stored.query(table.job_id == job_id, table.arrival <= MAX_SEEDS)
    rows: dict[str, list[Mapping[str, Any]]] = {}
    has_numbers = slots.with_numbers(session, [job_id])
    in_order = stored.read(session, query.order_by(table.arrival), *arithmetic_words.READ)
    for seed in in_order if has_numbers else ():
        for output, judged in seed.outputs.items():
            if judged.get("arithmetic"):
                rows.setdefault(output, []).append(judged)
    return tuple(arithmetic_words.of_output(output, rows[output]) for output in sorted(rows))


def of_jobs(
    session: Session,
    job_ids: Sequence[str],
    *,
    min_elements: int = 0,
    without: Collection[str] = (),
) -> dict[str, dict[str, Programs]]:
    """Return job -> output -> the number of seeds that each arithmetic explains.

    Jobs and outputs without any are left out. Of each job the first MAX_SEEDS (seed, repeat) are
    read. min_elements: outputs with fewer are left out. without: devices whose seeds are left out.
    """
    table = SeedResultRow
    jobs: dict[str, dict[str, dict[str, int]]] = {}
    for batch in batched(list(job_ids), _AT_ONCE):
        with_numbers = sorted(slots.with_numbers(session, batch))
        query = stored.query(table.job_id.in_(with_numbers), table.arrival <= MAX_SEEDS)
        if without:
            device = SeedSourceRow.device
            query = query.where(or_(device.is_(None), device.not_in(list(without))))
        for seed in stored.read(session, query, "arithmetic", "count"):
            for output, judged in seed.outputs.items():
                name = judged.get("arithmetic")
                is_explained = judged["explanation"] == Explanation.explained
                if name and is_explained and judged.get("count", -1) >= min_elements:
                    programs = jobs.setdefault(seed.job, {}).setdefault(output, {})
                    programs[name] = programs.get(name, 0) + 1
    return {job: dict(outputs) for job, outputs in jobs.items()}
