"""Artifacts of a job: diagnoses, error maps, coefficients and logs of its first and worst seeds."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session, defer

from gonogo_storage.db.dialect import insert_once
from gonogo_storage.db.encoding import encode
from gonogo_storage.db.ids import is_id, new_id
from gonogo_storage.db.records import from_object
from gonogo_storage.tables import ArtifactRow


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
                **_measured(dict(item["content"])),
                "created_at": now,
            }
            for item in items
        ],
    )


def _measured(content: dict[str, Any]) -> dict[str, Any]:
    text = encode(content)
    return {"size": len(text), "digest": digest_of(text), "content": content}


def digest_of(text: str) -> str:
    """Return the digest of an artifact's content as JSON."""
    return hashlib.sha256(text.encode()).hexdigest()


def is_intact(content: Mapping[str, Any], digest: str) -> bool:
    """Return whether a stored content is the one that was written."""
    return digest_of(encode(content)) == digest


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
