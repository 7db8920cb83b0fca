"""Artifacts of a job: diagnoses, error maps, coefficients and logs of its first and worst seeds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo_storage.db.dialect import insert_once
from gonogo_storage.db.encoding import encode, timestamp
from gonogo_storage.db.ids import is_id, new_id
from gonogo_storage.tables import ArtifactRow


def add(
    session: Session,
    job_id: str,
    attempt_id: str,
    items: Iterable[Mapping[str, Any]],
    *,
    now: datetime,
) -> None:
    """Store the artifacts of a results message.

    Where one with the same (kind, seed, repeat, output) exists, the first stays.
    """
    insert_once(
        session,
        ArtifactRow,
        [
            {
                "id": new_id(),
                "job_id": job_id,
                "attempt_id": attempt_id,
                "kind": str(item["kind"]),
                "seed": int(item["seed"]),
                "repeat": int(item.get("repeat") or 0),
                "output": item.get("output") or "",
                "size": len(encode(item["content"])),
                "content": dict(item["content"]),
                "created_at": now,
            }
            for item in items
        ],
    )


def list_(session: Session, job_id: str, *, kind: str | None = None) -> list[dict[str, Any]]:
    """Return the artifacts without their content.

    Each is {"id", "kind", "seed", "repeat", "output", "size", "created_at"}.
    """
    if not is_id(job_id):
        return []
    keys = ("id", "kind", "seed", "repeat", "output", "size", "created_at")
    table = ArtifactRow
    query = select(*(getattr(table, key) for key in keys)).where(table.job_id == job_id)
    query = query.order_by(table.kind, table.seed, table.repeat, table.output)
    if kind is not None:
        query = query.where(ArtifactRow.kind == kind)
    artifacts: list[dict[str, Any]] = [
        dict(zip(keys, row, strict=True)) for row in session.execute(query)
    ]
    return [{**item, "created_at": timestamp(item["created_at"])} for item in artifacts]


def get(session: Session, job_id: str, artifact_id: str) -> dict[str, Any] | None:
    """Return one artifact with its content, or None when the job has none of that id."""
    if not (is_id(job_id) and is_id(artifact_id)):
        return None
    row = session.scalar(
        select(ArtifactRow).where(ArtifactRow.job_id == job_id, ArtifactRow.id == artifact_id)
    )
    if row is None:
        return None
    return {
        "id": row.id,
        "kind": row.kind,
        "seed": row.seed,
        "repeat": row.repeat,
        "output": row.output,
        "size": row.size,
        "created_at": timestamp(row.created_at),
        "content": row.content,
    }
