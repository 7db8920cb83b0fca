"""Hosts of devices and their public keys: enrolled, rotated, revoked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from gonogo_service.hosts.model import HostKeyRow, HostRow
from gonogo_service.kit import audit
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.ids import new_id

ANY: Final = ("*",)
"""The patterns of a host that may run attempts of every queue."""
ROTATED_GRACE = timedelta(minutes=1)
"""Workers of a host notice its new key within this time."""
ROTATE_EVERY = timedelta(hours=1)
"""A host rotates no more often: each of its keys is stored, and is in the audit log."""
FORGET_AFTER = timedelta(days=8)
"""A retired key is deleted after this time, which is longer than messages last."""
HEARD_EVERY = timedelta(seconds=30)
"""`heard_at` is only this precise, so that each message doesn't write it."""


@dataclass(frozen=True)
class HostKey:
    """A public key that checks messages now, and whose it is."""

    public_key: str
    host: str
    """The id of the host."""
    name: str
    queues: tuple[str, ...] = ()
    """Patterns of the queues whose attempts it may run"""
    retired_at: datetime | None = None
    """It checks only what was sealed before."""


def enroll(
    session: Session,
    name: str,
    *,
    key_id: str,
    public_key: str,
    actor: str,
    queues: Sequence[str] = ANY,
    now: datetime | None = None,
) -> str:
    """Store a host with its first key, or give a known host this key alone; return its id.

    A host that enrolls again has lost its key: what it sealed with that is no longer taken.
    """
    now = now or utcnow()
    row = session.scalar(select(HostRow).where(HostRow.name == name).with_for_update())
    if row is None:
        row = HostRow(id=new_id(), name=name, queues=list(queues), created_at=now, enrolled_at=now)
        session.add(row)
    else:
        session.execute(delete(HostKeyRow).where(HostKeyRow.host_id == row.id))
        row.enrolled_at, row.revoked_at, row.queues = now, None, list(queues)
    session.flush()
    session.add(HostKeyRow(id=key_id, host_id=row.id, public_key=public_key, created_at=now))
    session.flush()
    audit.record(session, actor=actor, action="host.enrolled", subject=name, detail={"key": key_id})
    return row.id


def rotate(
    session: Session, host_id: str, *, key_id: str, public_key: str, now: datetime | None = None
) -> None:
    """Replace a host's key; the old ones check only what was sealed until a minute from now.

    The same key again changes nothing. Raises ValueError for one that was retired, or that is
    another host's, and so soon after another rotation.
    """
    now = now or utcnow()
    host = session.get_one(HostRow, host_id, with_for_update=True)
    known = session.get(HostKeyRow, key_id)
    if known is not None:
        if known.host_id != host_id or known.retired_at is not None:
            raise ValueError("this key was used before: a rotation needs a new one")
        return
    last = session.scalar(
        select(func.max(HostKeyRow.retired_at)).where(HostKeyRow.host_id == host_id)
    )
    if last is not None and now < (next_at := last - ROTATED_GRACE + ROTATE_EVERY):
        raise ValueError(
            f"the key was rotated within the last hour: rotate it again after"
            f" {next_at:%Y-%m-%d %H:%M} UTC; after a leak, revoke the host"
        )
    for row in session.scalars(
        select(HostKeyRow).where(HostKeyRow.host_id == host_id, HostKeyRow.retired_at.is_(None))
    ):
        row.retired_at = now + ROTATED_GRACE
    session.add(HostKeyRow(id=key_id, host_id=host_id, public_key=public_key, created_at=now))
    session.flush()
    audit.record(
        session,
        actor=f"host:{host.name}",
        action="host.rotated",
        subject=host.name,
        detail={"key": key_id},
    )


def revoke(
    session: Session, name: str, *, actor: str, reason: str, now: datetime | None = None
) -> HostRow | None:
    """Delete a host's keys, so that nothing of it is taken; None if it doesn't exist."""
    row = session.scalar(select(HostRow).where(HostRow.name == name).with_for_update())
    if row is None:
        return None
    if row.revoked_at is None:
        row.revoked_at = now or utcnow()
        session.execute(delete(HostKeyRow).where(HostKeyRow.host_id == row.id))
        session.flush()
        detail = {"reason": reason}
        audit.record(session, actor=actor, action="host.revoked", subject=name, detail=detail)
    return get(session, name)


def forget(session: Session, *, now: datetime) -> None:
    """Delete the keys that were retired so long ago that they check nothing any more."""
    session.execute(delete(HostKeyRow).where(HostKeyRow.retired_at < now - FORGET_AFTER))


def find_key(session: Session, key_id: str) -> HostKey | None:
    """Return the key of this id, whose host is not revoked; None if there is none."""
    row = session.execute(
        select(HostKeyRow, HostRow.name, HostRow.queues)
        .join(HostRow, HostRow.id == HostKeyRow.host_id)
        .where(HostKeyRow.id == key_id, HostRow.revoked_at.is_(None))
    ).one_or_none()
    if row is None:
        return None
    key, name, queues = row
    return HostKey(key.public_key, key.host_id, name, tuple(queues), key.retired_at)


def heard(
    session: Session, host_id: str, *, now: datetime, clock_skew_s: float | None = None
) -> None:
    """Record that a host lives, and by how much its clock is wrong."""
    row = session.get(HostRow, host_id)
    if row is None:
        return
    if row.heard_at is None or now - row.heard_at >= HEARD_EVERY:
        row.heard_at = now
    if clock_skew_s is not None and (
        row.clock_skew_s is None
        or row.clock_at is None
        or now - row.clock_at >= HEARD_EVERY
        or abs(row.clock_skew_s - clock_skew_s) >= 1.0
    ):
        row.clock_skew_s, row.clock_at = round(clock_skew_s, 3), now


def get(session: Session, name: str) -> HostRow | None:
    """Return the host of this name as it is stored now; None if it doesn't exist."""
    query = select(HostRow).where(HostRow.name == name)
    return session.scalar(query.execution_options(populate_existing=True))


def every(session: Session) -> list[HostRow]:
    """Return all hosts, ordered by name, revoked ones as well."""
    return list(session.scalars(select(HostRow).order_by(HostRow.name)))


def flagged(session: Session, since: datetime) -> tuple[tuple[str, datetime, str], ...]:
    """Return name, time and reason of the hosts that were flagged since then, the latest first."""
    query = (
        select(HostRow.name, HostRow.flagged_at, HostRow.flag_reason)
        .where(HostRow.flagged_at >= since)
        .order_by(HostRow.flagged_at.desc(), HostRow.name)
    )
    return tuple((name, at, reason or "") for name, at, reason in session.execute(query) if at)
