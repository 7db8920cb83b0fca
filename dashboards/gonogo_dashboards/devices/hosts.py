"""Hosts in words: their token, their clock, what was refused, and why they are flagged."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from gonogo_dashboards.kit import words
from gonogo_service.hosts import store as stored
from gonogo_service.hosts.model import HostRow, HostState

RECENT = timedelta(days=7)
"""A host that was flagged longer ago needs no attention."""


@dataclass(frozen=True)
class HostLine:
    """A host. `verdict` is that of its looks; `clock`, `refused` and `flagged` are sentences."""

    host: HostRow
    verdict: str
    token: str
    clock: str
    refused: str
    flagged: str


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
    line = host_line(host, now)
    sentences = (
        ("host's token", line.token if host.revoked_at else ""),
        ("host's clock", line.clock),
        ("refused requests", line.refused),
        ("host flagged", line.flagged),
    )
    return [(label, text) for label, text in sentences if text]


def host_line(host: HostRow, now: datetime) -> HostLine:
    """Return a host in words."""
    skew_s, flagged_at = host.clock_skew_s, host.flagged_at
    direction = "ahead of" if (skew_s or 0) > 0 else "behind"
    return HostLine(
        host,
        "suspect" if flagged_at else "pass" if host.state is HostState.joined else "none",
        _token(host, now),
        "" if skew_s is None else f"{abs(skew_s):.1f} s {direction} the service's",
        ", ".join(f"{reason} {count}" for reason, count in host.refused.items()),
        f"{words.since(flagged_at, now)}: {host.flag_reason}" if flagged_at else "",
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
