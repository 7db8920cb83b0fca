"""Read model of what is taken on for a while: the overrides in force of a test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.flakiness.classes import Class
from gonogo.flakiness.overrides import RED_OR_HOLLOW
from gonogo_dashboards.kit import words
from gonogo_storage.comparison import overrides

ADD = "gonogo override add --test {key} --days 14 --reason 'why'"


@dataclass(frozen=True)
class OverrideLine:
    """An override in force."""

    id: str
    words: str
    """ "suppressed until 2026-12-01 by kim: the race of ticket 12"."""
    about: str
    """What it names beside the test's key, and which classes, where not the usual ones."""
    expires_at: str
    left: str
    """ "in 3 d"."""
    end_url: str


def of_test(session: Session, key: str, now: datetime) -> tuple[OverrideLine, ...]:
    """Those in force that concern a test; those that end first come first."""
    return tuple(_line(each, now) for each in overrides.of_test(session, key, now=now))


def adding(key: str) -> str:
    """The command that takes a test on."""
    return ADD.format(key=key)


def _line(override: Mapping[str, Any], now: datetime) -> OverrideLine:
    labels = [f"{name}={value}" for name, value in override["labels"].items()]
    parts = [f"tests {', '.join(override['names'])}"] if override["names"] else []
    parts += [f"jobs with {', '.join(labels)}"] if labels else []
    parts += [f"builds {', '.join(override['builds'])}"] if override["builds"] else []
    if override["classes"] != [each.value for each in RED_OR_HOLLOW]:
        parts.append(", ".join(Class(each).words.lower() for each in override["classes"]))
    return OverrideLine(
        override["id"], override["words"], "; ".join(parts), override["expires_at"], words.until(override["expires_at"], now),
        urls.end_override(override["id"]),
    )  # fmt: skip
