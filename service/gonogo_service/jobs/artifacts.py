"""Artifacts of a job: error maps and logs of its first and worst seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session, defer

from gonogo_service.jobs.model import ArtifactRow
from gonogo_service.kit.database.dialect import insert_once
from gonogo_service.kit.database.encoding import encode
from gonogo_service.kit.database.ids import is_id, new_id

MAX_BYTES = 64 * 2**20
"""The artifacts of an attempt. A worker sends those of 17 seeds at most: of each output an error
map of about 150 KB, and logs of at most 800 KB."""


def add(
    session: Session,
    job_id: str,
    attempt_id: str,
    items: Sequence[Mapping[str, Any]],
    *,
    now: datetime,
) -> int:
    """Store the artifacts of a results message; return how many have no room in the attempt.

    Where one with the same (kind, seed, repeat, output) exists, the first stays.
    """
    if not items:
        return 0
    table = ArtifactRow
    stored = select(func.sum(table.size)).where(
        table.job_id == job_id, table.attempt_id == attempt_id
    )
    total, rows = int(session.scalar(stored) or 0), []
    for item in items:
        text = encode(item["content"])
        total += len(text)
        if total > MAX_BYTES:
            break
        rows.append(
            {
                "id": new_id(),
                "job_id": job_id,
                "attempt_id": attempt_id,
                "kind": str(item["kind"]),
                "seed": int(item["seed"]),
                "repeat": int(item.get("repeat") or 0),
                "output": item.get("output") or "",
                "size": len(text),
                "content": item["content"],
                "created_at": now,
            }
        )
    insert_once(session, table, rows)
    return len(items) - len(rows)


def list_(session: Session, job_id: str, *, kind: str | None = None) -> list[ArtifactRow]:
    """Return the artifacts of a job without their content."""
    table = ArtifactRow
    query = select(table).options(defer(table.content)).where(table.job_id == job_id)
    if kind is not None:
        query = query.where(table.kind == kind)
    ordered = query.order_by(table.kind, table.seed, table.repeat, table.output)
    return list(session.scalars(ordered)) if is_id(job_id) else []


def get(session: Session, job_id: str, artifact_id: str) -> ArtifactRow | None:
    """Return one artifact with its content, or None when the job has none of that id."""
    if not (is_id(job_id) and is_id(artifact_id)):
        return None
    table = ArtifactRow
    query = select(table).where(table.job_id == job_id, table.id == artifact_id)
    return session.scalar(query.execution_options(populate_existing=True))
