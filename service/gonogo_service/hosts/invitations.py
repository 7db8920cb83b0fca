"""Invitations of hosts: one-time codes, of which only the public key is stored."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from gonogo_service.hosts import store as hosts
from gonogo_service.hosts.model import HostKeyRow, InvitationRow, InvitationState
from gonogo_service.hosts.store import HostKey
from gonogo_service.kit import audit
from gonogo_service.kit.database.encoding import utcnow

FORGET_AFTER = timedelta(days=30)
"""An invitation is deleted this long after it has expired."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
NAME_IN_WORDS = "1 to 100 letters, digits, dots, hyphens and underscores, not a hyphen or dot first"


class NotRevocable(Exception):
    """The invitation was used or has expired: there is nothing to revoke."""


def create(
    session: Session,
    name: str,
    *,
    key_id: str,
    public_key: str,
    life: timedelta,
    actor: str,
    queues: Sequence[str] = hosts.ANY,
    now: datetime | None = None,
) -> InvitationRow:
    """Store an invitation by the public key that its secret makes.

    `queues` are patterns of the queues whose attempts the host may run.
    """
    now = now or utcnow()
    row = InvitationRow(
        id=key_id,
        name=name,
        queues=list(queues),
        public_key=public_key,
        created_by=actor,
        created_at=now,
        expires_at=now + life,
    )
    session.add(row)
    session.flush()
    audit.record(
        session,
        actor=actor,
        action="host.invited",
        subject=name,
        detail={
            "invitation": key_id,
            "expires_at": row.expires_at.isoformat(),
            "queues": list(queues),
        },
    )
    return row


def find_key(session: Session, key_id: str) -> HostKey | None:
    """Return the key of an invitation that exists, used or not; None otherwise."""
    row = session.get(InvitationRow, key_id)
    return None if row is None else HostKey(row.public_key, "", row.name)


def use(session: Session, invitation: str, *, key_id: str, public_key: str) -> str:
    """Enroll the host that an invitation names, with its key; return the host's id.

    A request that comes twice changes nothing the second time. Raises ValueError for an invitation
    that has expired, was revoked or that another key has used, and for a key that is known.
    """
    now = utcnow()
    row = session.get_one(InvitationRow, invitation, with_for_update=True, populate_existing=True)
    known = hosts.find_key(session, key_id)
    if row.used_at is not None:
        if row.key_id == key_id and known is not None:
            return known.host
        raise ValueError("the code was used before: ask for a new one")
    if row.revoked_at is not None:
        raise ValueError(
            f"the code was revoked at {row.revoked_at:%Y-%m-%d %H:%M} UTC: ask for a new one"
        )
    if now >= row.expires_at:
        raise ValueError(
            f"the code expired at {row.expires_at:%Y-%m-%d %H:%M} UTC: ask for a new one"
        )
    if session.get(HostKeyRow, key_id) is not None:
        raise ValueError("this key is enrolled already: a host needs a key of its own")
    row.used_at, row.key_id = now, key_id
    return hosts.enroll(
        session,
        row.name,
        key_id=key_id,
        public_key=public_key,
        actor=f"invitation:{invitation}",
        queues=row.queues,
        now=now,
    )


def forget(session: Session, *, now: datetime) -> None:
    """Delete invitations that expired a month ago."""
    session.execute(delete(InvitationRow).where(InvitationRow.expires_at < now - FORGET_AFTER))


def list_(
    session: Session, state: InvitationState | None = InvitationState.open
) -> list[InvitationRow]:
    """Return the invitations in a state, or all that aren't forgotten, oldest first."""
    query = select(InvitationRow).order_by(InvitationRow.created_at, InvitationRow.id)
    return [row for row in session.scalars(query) if state in (None, row.state)]


def revoke(session: Session, row: InvitationRow, *, actor: str, reason: str) -> None:
    """Refuse the code of an invitation from now on. The same again changes nothing.

    Raises NotRevocable for one that was used or has expired.
    """
    if row.state is InvitationState.revoked:
        return
    if row.state is not InvitationState.open:
        used = row.state is InvitationState.used
        raise NotRevocable(f"{row.name} has enrolled with it" if used else "it expired")
    row.revoked_at = utcnow()
    detail = {"invitation": row.id, "reason": reason}
    audit.record(
        session, actor=actor, action="host.invitation_revoked", subject=row.name, detail=detail
    )
