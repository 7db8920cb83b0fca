"""Hosts: who may send results, and how they are invited and revoked."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from gonogo_service.devices.api import HostChange
from gonogo_service.hosts import store as stored
from gonogo_service.hosts.invitation_codes import MAX_HOURS, InvitationIssued, invite
from gonogo_service.hosts.store import Host
from gonogo_service.kit.answers import make_router, require
from gonogo_service.kit.database.paging import Page
from gonogo_service.kit.strict import Strict
from gonogo_service.people.context import Admin, Ctx, Reader

router = make_router("hosts")


class HostInvitation(Strict):
    """The host to invite."""

    name: str = Field(min_length=1, max_length=100, description="Its devices' names begin with it")
    hours: float = Field(24.0, ge=0.1, le=MAX_HOURS, description="How long the code works")
    queues: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=200)]],
        Field(min_length=1, max_length=20),
    ] = Field(["*"], description="Patterns of queues: it may run no attempt of another one")


@router.get("/hosts", summary="List hosts")
def list_hosts(context: Ctx, _who: Reader) -> Page[Host]:
    """List all hosts by name on one page: keys, clocks, and how many messages were refused."""
    with context.reading() as session:
        return stored.list_(session)


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


@router.get("/hosts/{host}", summary="Show a host")
def look(context: Ctx, _who: Reader, host: str) -> Host:
    """Show a host by its name."""
    with context.reading() as session:
        return require(stored.get(session, host), "host", host)


@router.post("/hosts/{host}:revoke", summary="Revoke a host")
def revoke(context: Ctx, who: Admin, host: str, body: HostChange) -> Host:
    """Refuse every message of a host. Its results so far stay; its running attempts get lost."""
    with context.session() as session:
        record = require(
            stored.revoke(session, host, actor=who.actor, reason=body.reason), "host", host
        )
    return record
