"""Terms that a job's inconclusive seeds could not have seen, and that its other seeds may have.

Reads only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy.orm import Session

from gonogo.spec import unseen_terms
from gonogo.spec.verdicts import Explanation, Verdict
from gonogo_storage.db.columns import EXPLANATIONS
from gonogo_storage.seed_rows import stored
from gonogo_storage.tables import SeedResultRow


def outputs(session: Session, job_id: str) -> dict[str, tuple[str, ...]]:
    """Return output -> the terms that no seed of a job could have seen.

    Outputs with a red seed that is inconclusive for such terms; () where other seeds have seen all.
    """
    causes = {name for name, _, row in _inconclusive(session, job_id) if unseen_terms.is_cause(row)}
    if not causes:
        return {}
    terms: dict[str, list[dict[str, Any]]] = {name: [] for name in sorted(causes)}
    of_job = [SeedResultRow.job_id == job_id]
    for _, _, of_seed in stored.read_outputs(session, of_job, unseen_terms.NAME):
        for name in causes & of_seed.keys():
            terms[name].append({unseen_terms.NAME: of_seed[name].get(unseen_terms.NAME)})
    return {name: unseen_terms.shared(rows) for name, rows in terms.items()}


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
    # a seed's explanation is the worst of its outputs
    worst = EXPLANATIONS[: EXPLANATIONS.index(Explanation.inconclusive) + 1]
    query = stored.query(table.job_id == job_id, table.explanation.in_(worst))
    for seed in stored.read(session, query, unseen_terms.NAME):
        for name, output in seed.outputs.items():
            if output["explanation"] == Explanation.inconclusive:
                yield name, seed.verdict, output
