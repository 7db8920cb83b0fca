"""Hosts of devices and their public keys: enrolled, rotated, revoked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from gonogo_service.hosts.model import HostKeyRow, HostRow, RefusedMessageRow
from gonogo_service.kit import audit
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.ids import new_id
from gonogo_service.kit.database.paging import Page
from gonogo_service.kit.database.records import from_object

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


@dataclass(frozen=True)
class Host:
    """A host, and what it sent that was refused."""

    id: str
    name: str
    queues: list[str]
    """Patterns of the queues whose attempts it may run"""
    key: str | None
    """The id of its public key; null for a revoked one"""
    enrolled_at: datetime
    revoked_at: datetime | None
    heard_at: datetime | None
    clock_skew_s: float | None
    """Seconds by which its clock is ahead of the service's"""
    clock_at: datetime | None
    flagged_at: datetime | None
    """When it last sent something that only a wrong or hostile host sends"""
    flag_reason: str | None
    refused: dict[str, int]
    """Its refused messages, by reason"""


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
) -> Host | None:
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


def get(session: Session, name: str) -> Host | None:
    """Return the host of this name; None if it doesn't exist."""
    row = session.scalar(select(HostRow).where(HostRow.name == name))
    return None if row is None else _host(session, row)


def list_(session: Session) -> Page[Host]:
    """Return all hosts, ordered by name, revoked ones as well."""
    rows = list(session.scalars(select(HostRow).order_by(HostRow.name)))
    keys = _keys(session)
    refused = _refused(session)
    return Page(tuple(_of_row(row, keys, refused.get(row.name, {})) for row in rows), None)


def flagged(session: Session, since: datetime) -> tuple[tuple[str, datetime, str], ...]:
    """Return name, time and reason of the hosts that were flagged since then, the latest first."""
    query = (
        select(HostRow.name, HostRow.flagged_at, HostRow.flag_reason)
        .where(HostRow.flagged_at >= since)
        .order_by(HostRow.flagged_at.desc(), HostRow.name)
    )
    return tuple((name, at, reason or "") for name, at, reason in session.execute(query) if at)


def _host(session: Session, row: HostRow) -> Host:
    return _of_row(row, _keys(session, row.id), _refused(session, row.name).get(row.name, {}))


def _of_row(row: HostRow, keys: Mapping[str, str], refused: dict[str, int]) -> Host:
    return from_object(Host, row, key=keys.get(row.id), refused=refused)


def _keys(session: Session, host_id: str | None = None) -> dict[str, str]:
    """Return the current keys' ids by the host's id."""
    query = select(HostKeyRow.host_id, HostKeyRow.id).where(HostKeyRow.retired_at.is_(None))
    if host_id is not None:
        query = query.where(HostKeyRow.host_id == host_id)
    return {row.host_id: row.id for row in session.execute(query.order_by(HostKeyRow.created_at))}


def _refused(session: Session, name: str | None = None) -> dict[str, dict[str, int]]:
    """Return the numbers of refused messages by sender and reason."""
    query = select(RefusedMessageRow).order_by(RefusedMessageRow.reason)
    if name is not None:
        query = query.where(RefusedMessageRow.sender == name)
    counts: dict[str, dict[str, int]] = {}
    for row in session.scalars(query):
        counts.setdefault(row.sender, {})[row.reason] = row.count
    return counts
