"""Read model of what is accepted of a test now: its waivers and its acknowledged flags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.flakiness.classes import Class
from gonogo.flakiness.waivers import RED_OR_HOLLOW, day
from gonogo_dashboards.kit import words
from gonogo_service.flags import store as flags
from gonogo_service.flags.model import FlagRow
from gonogo_service.kit.database.encoding import timestamp
from gonogo_service.waivers import store as waivers
from gonogo_service.waivers.model import WaiverRow

MAX_FLAGS = 200
ADD = "gonogo waivers create --test {key} --days 14 --reason 'why'"


@dataclass(frozen=True)
class WaiverLine:
    """A waiver in force, or a flag whose acknowledgement is."""

    id: str
    words: str
    """ "waived until 2026-12-01 by kim: the race of ticket 12"."""
    about: str
    """Tests, labels and builds that it also covers; its classes where they aren't the default."""
    expires_at: str
    left: str
    """ "in 3 d"."""
    end_url: str | None
    again: Mapping[str, Any] | None
    """The request that creates it again, which undoes its end; None for a flag."""
    flag_url: str | None = None


def of_test(session: Session, key: str, now: datetime) -> tuple[WaiverLine, ...]:
    """Return the waivers in force for a test, then its acknowledged flags, by their end."""
    accepted = flags.acknowledged(session, now=now, test=key, limit=MAX_FLAGS)
    return (
        *(_line(waiver, now) for waiver in waivers.of_test(session, key, now=now)),
        *(_of_flag(flag, now) for flag in accepted),
    )


def add_command(key: str) -> str:
    """Return the command that adds a waiver for a test."""
    return ADD.format(key=key)


def about(waiver: WaiverRow) -> str:
    """Return the names, labels and builds that a waiver covers, and classes if not the default."""
    labels = [f"{name}={value}" for name, value in waiver.labels.items()]
    parts = [f"tests {', '.join(waiver.names)}"] if waiver.names else []
    parts += [f"jobs with {', '.join(labels)}"] if labels else []
    parts += [f"builds {', '.join(waiver.builds)}"] if waiver.builds else []
    if waiver.classes != list(RED_OR_HOLLOW):
        parts.append(", ".join(words.inline(Class(kind).label) for kind in waiver.classes))
    return "; ".join(parts)


def _of_flag(flag: FlagRow, now: datetime) -> WaiverLine:
    kind, end = flag.kind.label, flag.expires_at or now
    return WaiverLine(
        flag.id,
        f"{kind}: acknowledged until {day(end)} by {flag.owner}: {flag.reason}",
        (flag.effect or "").rstrip("."),
        timestamp(end),
        words.until(end, now),
        None,
        None,
        urls.flag(flag.id),
    )


def _line(waiver: WaiverRow, now: datetime) -> WaiverLine:
    return WaiverLine(
        waiver.id,
        waiver.words,
        about(waiver),
        timestamp(waiver.expires_at),
        words.until(waiver.expires_at, now),
        urls.end_waiver(waiver.id),
        {
            "test": waiver.test,
            "names": waiver.names,
            "labels": waiver.labels,
            "builds": waiver.builds,
            "classes": waiver.classes,
            "owner": waiver.owner,
            "reason": waiver.reason,
            "expires": timestamp(waiver.expires_at),
        },
    )
