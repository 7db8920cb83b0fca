"""Hosts as the pages of devices and the overview show them: key, clock, refused messages."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo_dashboards.kit import words
from gonogo_service.hosts import invitations
from gonogo_service.hosts import store as stored
from gonogo_service.hosts.model import HostRow

RECENT = timedelta(days=7)
"""A host that was flagged longer ago needs no attention."""
CLOCK, REFUSED, FLAGGED = "host's clock", "refused messages", "host flagged"


@dataclass(frozen=True)
class HostLine:
    """A host. `verdict` is that of its looks; `clock`, `refused` and `flagged` are sentences."""

    name: str
    verdict: str
    key: str
    queues: tuple[str, ...]
    heard: str
    clock: str
    refused: str
    flagged: str


@dataclass(frozen=True)
class InvitationLine:
    """A one-time code that still works, and the endpoint that revokes it."""

    id: str
    name: str
    queues: tuple[str, ...]
    created: str
    expires: str
    revoke_url: str


def invited(session: Session, now: datetime) -> tuple[InvitationLine, ...]:
    """Return the open invitations of hosts, oldest first."""
    return tuple(
        InvitationLine(
            invitation.id,
            invitation.name,
            tuple(invitation.queues),
            f"{words.since(invitation.created_at, now)} by {invitation.created_by}",
            f"{invitation.expires_at:%Y-%m-%d %H:%M} UTC",
            urls.revoke_invitation(invitation.id),
        )
        for invitation in invitations.list_(session)
    )


def lines(session: Session, now: datetime) -> tuple[HostLine, ...]:
    """Return all hosts by name, revoked ones as well."""
    return tuple(_line(host, now) for host in stored.every(session))


def flagged(session: Session, now: datetime) -> tuple[tuple[str, str], ...]:
    """Return the names of lately flagged hosts and why, the latest first."""
    return tuple(
        (name, f"host flagged {words.since(at, now)}: {reason}")
        for name, at, reason in stored.flagged(session, now - RECENT)
    )


def facts(host: HostRow | None, now: datetime) -> list[tuple[str, str]]:
    """Return what a device's page says of its host."""
    if host is None:
        return []
    line = _line(host, now)
    shown = [("host's key", line.key)] if host.revoked_at is not None else []
    sentences = ((CLOCK, line.clock), (REFUSED, line.refused), (FLAGGED, line.flagged))
    return shown + [(label, text) for label, text in sentences if text]


def _line(host: HostRow, now: datetime) -> HostLine:
    revoked, flagged = host.revoked_at, host.flagged_at
    clock = ""
    if host.clock_skew_s is not None:
        direction = "ahead of" if host.clock_skew_s > 0 else "behind"
        clock = f"{abs(host.clock_skew_s):.1f} s {direction} the service's"
    return HostLine(
        name=host.name,
        verdict="suspect" if flagged is not None else "none" if revoked is not None else "pass",
        key=f"enrolled {words.since(host.enrolled_at, now)}"
        if revoked is None
        else f"revoked {words.since(revoked, now)}",
        queues=tuple(host.queues),
        heard=words.since(host.heard_at, now) or "never",
        clock=clock,
        refused=", ".join(f"{reason} {count}" for reason, count in host.refused.items()),
        flagged="" if flagged is None else f"{words.since(flagged, now)}: {host.flag_reason}",
    )
