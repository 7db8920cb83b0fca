"""Hosts as the pages of devices and the overview show them: token, clock, refused requests."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from gonogo_dashboards.kit import words
from gonogo_service.hosts import store as stored
from gonogo_service.hosts.model import HostRow, HostState

RECENT = timedelta(days=7)
"""A host that was flagged longer ago needs no attention."""
CLOCK, REFUSED, FLAGGED = "host's clock", "refused requests", "host flagged"


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
    shown = [("host's token", line.key)] if host.revoked_at is not None else []
    sentences = ((CLOCK, line.clock), (REFUSED, line.refused), (FLAGGED, line.flagged))
    return shown + [(label, text) for label, text in sentences if text]


def _line(host: HostRow, now: datetime) -> HostLine:
    flagged = host.flagged_at
    clock = ""
    if host.clock_skew_s is not None:
        direction = "ahead of" if host.clock_skew_s > 0 else "behind"
        clock = f"{abs(host.clock_skew_s):.1f} s {direction} the service's"
    return HostLine(
        name=host.name,
        verdict="suspect" if flagged else "pass" if host.state is HostState.joined else "none",
        key=_token(host, now),
        queues=tuple(host.queues),
        heard=words.since(host.heard_at, now) or "never",
        clock=clock,
        refused=", ".join(f"{reason} {count}" for reason, count in host.refused.items()),
        flagged="" if flagged is None else f"{words.since(flagged, now)}: {host.flag_reason}",
    )


def _token(host: HostRow, now: datetime) -> str:
    """Return what became of a host's token."""
    match host.state:
        case HostState.revoked:
            return f"revoked {words.since(host.revoked_at, now)}"
        case HostState.added:
            return "has not joined yet"
        case HostState.expired:
            return f"expired {words.since(host.token_expires_at, now)}"
    return f"joined {words.since(host.joined_at, now)}"
