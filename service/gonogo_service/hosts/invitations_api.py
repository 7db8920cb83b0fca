"""Invitations of hosts: which codes still work, and how one is taken back."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gonogo_service.hosts import invitations as stored
from gonogo_service.hosts.invitations import InvitationState, NotRevocable, StoredInvitation
from gonogo_service.kit.answers import make_router, missing, require
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.paging import Page
from gonogo_service.kit.problems import BadField
from gonogo_service.kit.strict import Strict
from gonogo_service.people.context import Admin, Ctx, Reader

router = make_router("hosts")


class InvitationChange(Strict):
    """Why an invitation is taken back."""

    reason: str = Field("", max_length=500, description="For the audit log")


@router.get("/invitations", summary="List invitations of hosts")
def list_invitations(
    context: Ctx, _who: Reader, state: InvitationState | Literal["any"] = InvitationState.open
) -> Page[StoredInvitation]:
    """List the invitations in a state on one page, oldest first; by default those that still work.

    Their codes are stored nowhere. One is forgotten a month after its end.
    """
    state_filter = None if state == "any" else InvitationState(state)
    with context.reading() as session:
        return Page(tuple(stored.list_(session, now=utcnow(), state=state_filter)), None)


@router.get("/invitations/{invitation}", summary="Show an invitation of a host")
def look(context: Ctx, _who: Reader, invitation: str) -> StoredInvitation:
    """Show an invitation by its id."""
    with context.reading() as session:
        return require(stored.get(session, invitation, now=utcnow()), "invitation", invitation)


@router.post("/invitations/{invitation}:revoke", summary="Revoke an invitation of a host")
def revoke(context: Ctx, who: Admin, invitation: str, body: InvitationChange) -> StoredInvitation:
    """Refuse a code that hasn't been used. A host that has enrolled with it is revoked itself."""
    with context.session() as session:
        try:
            record = stored.revoke(
                session, invitation, actor=who.actor, reason=body.reason, now=utcnow()
            )
        except NotRevocable as problem:
            raise BadField(
                "invitation", invitation, str(problem), limit="an open one; or revoke the host"
            ) from problem
    if record is None:
        raise missing("invitation", invitation)
    return record
