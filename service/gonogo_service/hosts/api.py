"""Hosts: who may send results, and how they are added and revoked."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from gonogo_service.devices.noun import HostChange
from gonogo_service.hosts import noun, store
from gonogo_service.hosts.model import HostRow, HostState
from gonogo_service.hosts.noun import NewHost
from gonogo_service.kit import rows
from gonogo_service.kit.answers import require
from gonogo_service.kit.resource import Resource
from gonogo_service.people.context import Admin, Ctx

HOST = rows.extended_answer(
    HostRow,
    "Host",
    state=HostState,
    refused=(dict[str, int], "Its refused requests, by reason"),
)
HOSTS = Resource(noun.HOSTS, HostRow, answer=HOST)
router = HOSTS.router


@dataclass(frozen=True)
class HostAdded:
    """A host that may join; `code` can't be shown again."""

    name: str
    code: str
    expires_at: datetime


@router.post("/hosts:add", status_code=201, summary="Add a host")
def add_host(context: Ctx, who: Admin, body: NewHost) -> HostAdded:
    """Make a one-time code, which a host exchanges for its token within ten minutes.

    A host of this name that exists gets a new token when it joins; its old one is refused then.
    """
    with context.session() as session:
        issued = store.add(
            session,
            context.keys,
            body.name,
            body.queues,
            addresses=body.addresses,
            ca_file=context.settings.ca_file,
            actor=who.actor,
        )
        assert issued.host.code_expires_at is not None
        return HostAdded(body.name, issued.secret, issued.host.code_expires_at)


@router.post("/hosts/{host}:revoke", response_model=HOST, summary="Revoke a host")
def revoke(context: Ctx, who: Admin, host: str, body: HostChange) -> HostRow:
    """Refuse every request of a host. Its results so far stay; its running attempts get lost."""
    with context.session() as session:
        revoked = store.revoke(session, host, actor=who.actor, reason=body.reason)
        return require(revoked, "host", host)
