"""Artifacts of a job: error maps and logs of its first and worst seeds."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session, defer

from gonogo_service.jobs.model import ArtifactRow
from gonogo_service.kit.database.dialect import insert_once
from gonogo_service.kit.database.encoding import encode
from gonogo_service.kit.database.ids import is_id, new_id
from gonogo_service.kit.database.records import from_object

MAX_BYTES = 64 * 2**20
"""The artifacts of an attempt. A worker sends those of 17 seeds at most: of each output an error
map of about 150 KB, and logs of at most 800 KB."""


@dataclass(frozen=True)
class ArtifactHead:
    """An artifact without its content."""

    id: str
    kind: str
    seed: int
    repeat: int
    output: str
    size: int
    """Bytes of its content as JSON"""
    created_at: datetime


@dataclass(frozen=True)
class Artifact(ArtifactHead):
    """An artifact."""

    content: dict[str, Any]


def add(
    session: Session,
    job_id: str,
    attempt_id: str,
    items: Iterable[Mapping[str, Any]],
    *,
    now: datetime,
) -> int:
    """Store the artifacts of a results message; return how many have no room in the attempt.

    Where one with the same (kind, seed, repeat, output) exists, the first stays.
    """
    measured = [(item, _measured(dict(item["content"]))) for item in items]
    if not measured:
        return 0
    table = ArtifactRow
    stored = select(func.sum(table.size)).where(
        table.job_id == job_id, table.attempt_id == attempt_id
    )
    total = int(session.scalar(stored) or 0)
    count = 0
    for _, content in measured:
        total += content["size"]
        if total > MAX_BYTES:
            break
        count += 1
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
                **content,
                "created_at": now,
            }
            for item, content in measured[:count]
        ],
    )
    return len(measured) - count


def _measured(content: dict[str, Any]) -> dict[str, Any]:
    text = encode(content)
    return {"size": len(text), "digest": digest_of(text), "content": content}


def digest_of(text: str) -> str:
    """Return the digest of an artifact's content as JSON."""
    return hashlib.sha256(text.encode()).hexdigest()


def list_(session: Session, job_id: str, *, kind: str | None = None) -> list[ArtifactHead]:
    """Return the artifacts without their content."""
    if not is_id(job_id):
        return []
    table = ArtifactRow
    query = select(table).options(defer(table.content)).where(table.job_id == job_id)
    query = query.order_by(table.kind, table.seed, table.repeat, table.output)
    if kind is not None:
        query = query.where(ArtifactRow.kind == kind)
    return [from_object(ArtifactHead, row) for row in session.scalars(query)]


def get(session: Session, job_id: str, artifact_id: str) -> Artifact | None:
    """Return one artifact with its content, or None when the job has none of that id."""
    if not (is_id(job_id) and is_id(artifact_id)):
        return None
    row = session.scalar(
        select(ArtifactRow).where(ArtifactRow.job_id == job_id, ArtifactRow.id == artifact_id)
    )
    return None if row is None else from_object(Artifact, row)
