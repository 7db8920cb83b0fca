"""Hosts: who may send results, and how they are invited and revoked."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gonogo_service.devices.noun import HostChange
from gonogo_service.hosts import invitations, noun, store
from gonogo_service.hosts.invitation_codes import MAX_HOURS, InvitationIssued, invite
from gonogo_service.hosts.model import HostRow, InvitationRow, InvitationState
from gonogo_service.kit import rows
from gonogo_service.kit.answers import require
from gonogo_service.kit.database.paging import Page
from gonogo_service.kit.problems import BadField
from gonogo_service.kit.resource import Resource
from gonogo_service.kit.strict import Strict
from gonogo_service.people.context import Admin, Ctx, Reader

HOST = rows.extended_answer(
    HostRow,
    "Host",
    key=(str | None, "The id of its public key; null for a revoked one"),
    refused=(dict[str, int], "Its refused messages, by reason"),
)
INVITATION = rows.extended_answer(InvitationRow, "Invitation", state=InvitationState)
HOSTS = Resource(noun.HOSTS, HostRow, answer=HOST)
router = HOSTS.router


class HostInvitation(Strict):
    """The host to invite."""

    name: str = Field(min_length=1, max_length=100, description="Its devices' names begin with it")
    hours: float = Field(24.0, ge=0.1, le=MAX_HOURS, description="How long the code works")
    queues: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=200)]],
        Field(min_length=1, max_length=20),
    ] = Field(["*"], description="Patterns of queues: it may run no attempt of another one")


class InvitationChange(Strict):
    """Why an invitation is taken back."""

    reason: str = Field("", max_length=500, description="For the audit log")


@router.post("/hosts:invite", status_code=201, summary="Invite a host")
def invite_host(context: Ctx, who: Admin, body: HostInvitation) -> InvitationIssued:
    """Make a one-time code, with which a host enrolls through the broker.

    A host of this name that exists gets a new key when it enrolls; its old one is refused then.
    """
    secret = context.settings.secret_key
    assert secret is not None
    with context.session() as session:
        return invite(
            session, secret.get_secret_value(), body.name, body.hours, body.queues, actor=who.actor
        )


@router.post("/hosts/{host}:revoke", response_model=HOST, summary="Revoke a host")
def revoke(context: Ctx, who: Admin, host: str, body: HostChange) -> HostRow:
    """Refuse every message of a host. Its results so far stay; its running attempts get lost."""
    with context.session() as session:
        revoked = store.revoke(session, host, actor=who.actor, reason=body.reason)
        return require(revoked, "host", host)


@router.get(
    "/invitations",
    response_model=Page[INVITATION],  # type: ignore[valid-type]
    summary="List invitations of hosts",
)
def list_invitations(
    context: Ctx, _who: Reader, state: InvitationState | Literal["any"] = InvitationState.open
) -> Page[InvitationRow]:
    """List the invitations in a state on one page, oldest first; by default those that still work.

    Their codes are stored nowhere. One is forgotten a month after its end.
    """
    with context.reading() as session:
        found = invitations.list_(session, None if state == "any" else InvitationState(state))
        return Page(tuple(found), None)


@router.get(
    "/invitations/{invitation}",
    response_model=INVITATION,
    summary="Show an invitation of a host",
)
def show_invitation(context: Ctx, _who: Reader, invitation: str) -> InvitationRow:
    """Show an invitation by its id."""
    with context.reading() as session:
        return require(session.get(InvitationRow, invitation), "invitation", invitation)


@router.post(
    "/invitations/{invitation}:revoke",
    response_model=INVITATION,
    summary="Revoke an invitation of a host",
)
def revoke_invitation(
    context: Ctx, who: Admin, invitation: str, body: InvitationChange
) -> InvitationRow:
    """Refuse a code that hasn't been used. A host that has enrolled with it is revoked itself."""
    with context.session() as session:
        row = session.get(InvitationRow, invitation, with_for_update=True)
        row = require(row, "invitation", invitation)
        try:
            invitations.revoke(session, row, actor=who.actor, reason=body.reason)
        except invitations.NotRevocable as problem:
            limit = "an open one; or revoke the host"
            raise BadField("invitation", invitation, str(problem), limit=limit) from problem
        return row
