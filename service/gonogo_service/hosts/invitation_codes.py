"""One-time codes with which hosts enroll."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from gonogo_service.hosts import invitations
from gonogo_service.hosts import store as hosts
from gonogo_service.hosts.invitations import NAME, NAME_IN_WORDS
from gonogo_service.kit.problems import BadField
from gonogo_service.kit.signing import service_key
from gonogo_workers.queue import Invitation, PrivateKey

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

MAX_HOURS = 7 * 24.0


@dataclass(frozen=True)
class InvitationIssued:
    """A new invitation; `code` can't be shown again."""

    id: str
    code: str
    name: str
    expires_at: datetime


def check_name(name: str) -> None:
    """Raise BadField for what can't be a host's name."""
    if not NAME.fullmatch(name):
        raise BadField("name", name, "can't be a host's name", limit=NAME_IN_WORDS)


def invite(
    session: Session,
    secret: str,
    name: str,
    hours: float,
    queues: Sequence[str] = hosts.ANY,
    *,
    actor: str,
) -> InvitationIssued:
    """Create an invitation in the caller's transaction. Raises BadField for a bad name.

    `queues` are patterns of the queues whose attempts the host may run.
    """
    check_name(name)
    invitation = Invitation.generate(service_key(secret).public)
    key = invitation.key.public
    stored = invitations.create(
        session,
        name,
        key_id=key.id,
        public_key=key.text,
        life=timedelta(hours=hours),
        queues=queues,
        actor=actor,
    )
    return InvitationIssued(stored.id, invitation.code, name, stored.expires_at)


def enroll_here(session: Session, name: str, *, actor: str) -> tuple[str, PrivateKey]:
    """Enroll a host of this machine without a code; return its id and its key.

    For `gonogo db upgrade --enroll`, which has the database and the host's folder at hand.
    """
    check_name(name)
    key = PrivateKey.generate()
    public = key.public
    host = hosts.enroll(session, name, key_id=public.id, public_key=public.text, actor=actor)
    return host, key
