"""What GitHub is asked for: the paths that a pull request changes, and the deliveries that were
missed while the service was down.

GitHub remembers deliveries for three days. A delivery that is fetched has the payload that was
sent, and counts as one that came in: its id makes sure that nothing is started twice.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote, urlsplit

import structlog
from sqlalchemy import Engine

from gonogo import urls
from gonogo.ci.events import GITHUB, TAKEN, CommitEvent
from gonogo_service.github.access import Access, App, Ask, Grant
from gonogo_service.github.answering import access_of
from gonogo_service.github.client import GitHub
from gonogo_service.github.problems import GitHubError
from gonogo_settings import Settings
from gonogo_storage.db.encoding import encode, utcnow
from gonogo_storage.db.engine import reading, session
from gonogo_storage.db.states import HookSource
from gonogo_storage.messages import incoming

PER_PAGE = 100
MOST_PAGES = 10_000
"""A million deliveries in three days: more are none that anyone waits for."""
MOST_FILES = 3000
"""GitHub lists no more files of a pull request: beyond that nobody knows all paths."""
OF_THE_APP = "app/hook"
"""Stands for the repository where the App's own webhook is asked about."""

log = structlog.get_logger("gonogo.hooks")


@dataclass
class Caught:
    """What catching up found: deliveries of the events that matter, those that had come in, those
    that were fetched now, or sent again.
    """

    seen: int = 0
    known: int = 0
    fetched: int = 0
    sent_again: int = 0
    hooks: int = 0


@dataclass(frozen=True)
class AsTheApp:
    """Speaks as the App itself, not as one of its installations."""

    app: App

    def grant(self, repository: str, ask: Ask) -> Grant:
        """A JSON web token."""
        return Grant(f"Bearer {self.app.jwt()}", "app", checks=False)

    def refused(self, repository: str) -> bool:
        """A new one would be the same."""
        return False


class Paths:
    """Asks GitHub which paths a pull request changes."""

    def __init__(self, github: GitHub) -> None:
        self._github = github

    def __call__(self, event: CommitEvent) -> tuple[str, ...] | None:
        """Every path, also the old ones of what was renamed; None: it can't be told."""
        if event.pull_request is None or event.event not in GITHUB:
            return None
        address = (
            f"/repos/{_path(event.repository)}/pulls/{event.pull_request}/files?per_page={PER_PAGE}"
        )
        try:
            files = [
                each for page in self._github.pages(address, event.repository) for each in page
            ]
        except GitHubError as problem:
            log.warning(
                "the paths of a pull request are not known",
                repository=event.repository,
                error=str(problem),
            )
            return None
        if len(files) >= MOST_FILES:
            return None
        return tuple(
            str(each[name])
            for each in files
            for name in ("filename", "previous_filename")
            if each.get(name)
        )

    def close(self) -> None:
        """Give back the connections."""
        self._github.close()


def paths_of(settings: Settings) -> Paths | None:
    """By the settings; None where they name nobody to speak as."""
    github = client_of(settings)
    return None if github is None else Paths(github)


def hooks_of(github: GitHub, repository: str) -> list[int]:
    """The webhooks of a repository that tell this service (by their path). Raises GitHubError."""
    pages = github.pages(f"/repos/{_path(repository)}/hooks?per_page={PER_PAGE}", repository)
    return [
        int(each["id"])
        for page in pages
        for each in page
        if _path_of(each) == urls.GITHUB_DELIVERIES
    ]


def catch_up(
    github: GitHub,
    engine: Engine,
    repository: str,
    hook: int | None,
    since: datetime,
    caught: Caught,
    *,
    send_again: bool = False,
) -> None:
    """Fetch and store what a webhook (None: that of the App) sent since then and is not here.
    Raises GitHubError.

    Each delivery is stored by itself: what was fetched before GitHub went away stays. `send_again`:
    nothing is stored, GitHub is asked to send it once more to the service, which then verifies it
    as any other.
    """
    below = (
        f"/{OF_THE_APP}/deliveries"
        if hook is None
        else f"/repos/{_path(repository)}/hooks/{hook}/deliveries"
    )
    caught.hooks += 1
    seen: set[str] = (
        set()
    )  # GitHub lists every try of a delivery: on the next page the same may come again
    for page in _since(
        github.pages(f"{below}?per_page={PER_PAGE}", repository, most=MOST_PAGES), since
    ):
        wanted = {
            str(each["guid"]): each
            for each in page
            if each.get("event") in TAKEN and str(each["guid"]) not in seen
        }
        seen.update(wanted)
        with reading(engine) as current:
            known = incoming.known(current, HookSource.github, list(wanted))
        caught.seen += len(wanted)
        caught.known += len(known)
        # oldest first, as they would have come
        for guid in reversed([guid for guid in wanted if guid not in known]):
            one = f"{below}/{int(wanted[guid]['id'])}"
            payload = (
                None
                if send_again
                else (github.look(one, repository).get("request") or {}).get("payload")
            )
            if payload is None:  # also what was too large for GitHub to show it
                github.ask_for(f"{one}/attempts", repository)
                caught.sent_again += 1
                continue
            with session(engine) as current:
                _, new = incoming.store(
                    current,
                    HookSource.github,
                    guid,
                    str(wanted[guid]["event"]),
                    encode(payload).encode(),
                )
            caught.fetched += new


def _since(pages: Iterator[Any], since: datetime) -> Iterator[list[Mapping[str, Any]]]:
    """The deliveries since a moment, page by page, newest first; pages beyond it are not asked
    for.
    """
    for page in pages:
        young = [
            each for each in page if datetime.fromisoformat(str(each["delivered_at"])) >= since
        ]
        yield young
        if len(young) < len(page):
            return


class Patience:
    """Waits for the ends of GitHub's rate limits, so many seconds in all."""

    def __init__(self, seconds: float) -> None:
        self._left = seconds

    def __call__(self, until: datetime) -> bool:
        """Wait; False, at once, where that would be too long."""
        wait = max(0.0, (until - utcnow()).total_seconds())
        if wait > self._left:
            return False
        self._left -= wait
        time.sleep(wait)
        return True


def client_of(
    settings: Settings, *, as_app: bool = False, patience: Patience | None = None
) -> GitHub | None:
    """A client by the settings; None where they name nobody to speak as (with `as_app`: no App)."""
    access: Access | None = access_of(settings)
    if as_app:
        access = AsTheApp(access) if isinstance(access, App) else None
    return None if access is None else GitHub(settings.github_url, access, wait=patience)


def _path(repository: str) -> str:
    return "/".join(quote(part, safe="") for part in repository.split("/"))


def _path_of(hook: Mapping[str, Any]) -> str:
    return urlsplit(str((hook.get("config") or {}).get("url") or "")).path.rstrip("/")
