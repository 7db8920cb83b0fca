"""Read model of what is taken on for a while: the waivers in force of a test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.flakiness.classes import Class
from gonogo.flakiness.waivers import RED_OR_HOLLOW
from gonogo_dashboards.kit import words
from gonogo_storage.comparison import waivers

ADD = "gonogo waiver add --test {key} --days 14 --reason 'why'"


@dataclass(frozen=True)
class WaiverLine:
    """A waiver in force."""

    id: str
    words: str
    """ "waived until 2026-12-01 by kim: the race of ticket 12"."""
    about: str
    """What it names beside the test's key, and which classes, where not the usual ones."""
    expires_at: str
    left: str
    """ "in 3 d"."""
    end_url: str


def of_test(session: Session, key: str, now: datetime) -> tuple[WaiverLine, ...]:
    """Those in force that concern a test; those that end first come first."""
    return tuple(_line(each, now) for each in waivers.of_test(session, key, now=now))


def adding(key: str) -> str:
    """The command that takes a test on."""
    return ADD.format(key=key)


def _line(waiver: Mapping[str, Any], now: datetime) -> WaiverLine:
    labels = [f"{name}={value}" for name, value in waiver["labels"].items()]
    parts = [f"tests {', '.join(waiver['names'])}"] if waiver["names"] else []
    parts += [f"jobs with {', '.join(labels)}"] if labels else []
    parts += [f"builds {', '.join(waiver['builds'])}"] if waiver["builds"] else []
    if waiver["classes"] != [each.value for each in RED_OR_HOLLOW]:
        parts.append(", ".join(Class(each).words.lower() for each in waiver["classes"]))
    return WaiverLine(
        waiver["id"], waiver["words"], "; ".join(parts), waiver["expires_at"], words.until(waiver["expires_at"], now),
        urls.end_waiver(waiver["id"]),
    )  # fmt: skip
