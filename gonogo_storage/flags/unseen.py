"""Terms that a job's inconclusive seeds could not have seen, and that its other seeds may have.

Reads only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo.spec import unseen_terms
from gonogo.spec.verdicts import Explanation, Verdict
from gonogo_storage.tables import SeedResultRow


def outputs(session: Session, job_id: str) -> dict[str, tuple[str, ...]]:
    """Return output -> the terms that no seed of a job could have seen.

    Outputs with a red seed that is inconclusive for such terms; () where other seeds have seen all.
    """
    causes = {name for name, _, row in _inconclusive(session, job_id) if unseen_terms.is_cause(row)}
    table = SeedResultRow
    shared = {}
    for name in sorted(causes):
        query = select(table.statistics[unseen_terms.NAME]).where(
            table.job_id == job_id, table.output == name
        )
        shared[name] = unseen_terms.shared(
            {unseen_terms.NAME: terms} for terms in session.scalars(query)
        )
    return shared


def all_seen(session: Session, job_id: str) -> bool:
    """Return whether other seeds could have seen all that made a job's seeds inconclusive."""
    rows = [
        (name, row)
        for name, verdict, row in _inconclusive(session, job_id)
        if verdict == Verdict.inconclusive
    ]
    if not rows or not all(unseen_terms.is_cause(row) for _, row in rows):
        return False
    return not any(outputs(session, job_id).values())


def _inconclusive(session: Session, job_id: str) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield (output, verdict of the seed, what decides) of each inconclusive output of a job."""
    table = SeedResultRow
    query = select(table.output, table.seed_verdict, table.statistics[unseen_terms.NAME]).where(
        table.job_id == job_id, table.explanation == Explanation.inconclusive.value
    )
    for output, verdict, terms in session.execute(query):
        yield (
            output,
            verdict,
            {
                "explanation": Explanation.inconclusive,
                unseen_terms.NAME: terms,
            },
        )
