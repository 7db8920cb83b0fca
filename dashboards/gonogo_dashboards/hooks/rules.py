"""The read model of the page of rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo_dashboards.kit import words
from gonogo_dashboards.kit.list_view import ListView, list_view
from gonogo_service.ci.model import CiRuleRow
from gonogo_service.ci.rules_api import RULES
from gonogo_service.kit.database.encoding import timestamp
from gonogo_service.kit.database.records import from_object


@dataclass(frozen=True)
class RuleLine:
    """A rule: the events that it matches, and what it starts."""

    name: str
    version: int
    enabled: bool
    description: str
    events: tuple[str, ...]
    repositories: tuple[str, ...]
    limits: tuple[tuple[str, str], ...]
    """Further conditions by name: branches, paths, ..."""
    forks: bool
    suites: tuple[str, ...]
    gauges: int
    builds: tuple[tuple[str, str], ...]
    base: bool
    owner: str
    updated_at: str
    age: str
    came_url: str | None
    """The incoming webhooks of its repository, where it names only one."""


def rules(
    session: Session, _: Mapping[str, str], cursor: str | None, limit: int, now: datetime
) -> ListView:
    """Return a page of rules."""
    page = RULES.page(session, limit=limit, cursor=cursor or None)
    return list_view(page, lambda rule: _rule(rule, now), urls.rules, now)


def _rule(item: CiRuleRow, now: datetime) -> RuleLine:
    content = item.content
    suites = tuple(
        suite if isinstance(suite, str) else str(suite["name"])
        for suite in content.get("suites") or ()
    )
    patterns = ("actions", "branches", "paths", "workflows", "conclusions")
    builds, register = content.get("builds") or {}, content.get("register")
    named = [(side, str(builds[side])) for side in ("head", "base") if builds.get(side)]
    if register:
        place = f"{register['executor']}, branch {register.get('branch', 'default')}"
        named.append(("registered for", place))
    repositories = tuple(item.repositories)
    alone = len(repositories) == 1 and not set(repositories[0]) & set("*?!")
    return from_object(
        RuleLine,
        item,
        events=tuple(item.events),
        repositories=repositories,
        limits=tuple((name, ", ".join(content[name])) for name in patterns if content.get(name)),
        forks=content.get("forks", False),
        suites=suites,
        builds=tuple(named),
        base=content.get("base", True),
        updated_at=timestamp(item.updated_at),
        age=words.since(item.updated_at, now),
        came_url=urls.hooks({"repository": repositories[0]}) if alone else None,
    )
