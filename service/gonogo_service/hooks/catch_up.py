"""Queries to GitHub: the paths that a pull request changes, and missed deliveries.

GitHub remembers deliveries for three days. A fetched delivery has the original payload, and counts
as received: its ID makes sure that nothing is started twice.
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
from gonogo.ci.events import GITHUB, HANDLED, CommitEvent
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
MAX_PAGES = 10_000
"""A million deliveries in three days: nobody waits for more."""
MAX_FILES = 3000
"""GitHub lists at most this many files of a pull request: the other paths are unknown."""
OF_THE_APP = "app/hook"
"""The path that replaces the repository in requests about the App's webhook."""

log = structlog.get_logger("gonogo.hooks")


@dataclass
class CatchUpCounts:
    """Counts of a catch-up: relevant deliveries seen, already known, fetched, and sent again."""

    seen: int = 0
    known: int = 0
    fetched: int = 0
    sent_again: int = 0
    hooks: int = 0


@dataclass(frozen=True)
class AsTheApp:
    """Access as the App itself, not as one of its installations."""

    app: App

    def grant(self, repository: str, ask: Ask) -> Grant:
        """Return a grant with a JSON web token."""
        return Grant(f"Bearer {self.app.jwt()}", "app", checks=False)

    def refused(self, repository: str) -> bool:
        """Return False: a new grant would be the same."""
        return False


class Paths:
    """Reads from GitHub the paths that a pull request changes."""

    def __init__(self, github: GitHub) -> None:
        self._github = github

    def __call__(self, event: CommitEvent) -> tuple[str, ...] | None:
        """Return every path, including the old paths of renamed files; None if unknown."""
        if event.pull_request is None or event.event not in GITHUB:
            return None
        address = (
            f"/repos/{_path(event.repository)}/pulls/{event.pull_request}/files?per_page={PER_PAGE}"
        )
        try:
            files = [
                file for page in self._github.pages(address, event.repository) for file in page
            ]
        except GitHubError as problem:
            log.warning(
                "the paths of a pull request are not known",
                repository=event.repository,
                error=str(problem),
            )
            return None
        if len(files) >= MAX_FILES:
            return None
        return tuple(
            str(file[name])
            for file in files
            for name in ("filename", "previous_filename")
            if file.get(name)
        )

    def close(self) -> None:
        """Close the connections."""
        self._github.close()


def hooks_of(github: GitHub, repository: str) -> list[int]:
    """Return the webhooks of a repository that have this service's path. Raises GitHubError."""
    pages = github.pages(f"/repos/{_path(repository)}/hooks?per_page={PER_PAGE}", repository)
    return [
        int(hook["id"])
        for page in pages
        for hook in page
        if _path_of(hook) == urls.GITHUB_DELIVERIES
    ]


def catch_up(
    github: GitHub,
    engine: Engine,
    repository: str,
    hook: int | None,
    since: datetime,
    counts: CatchUpCounts,
    *,
    send_again: bool = False,
) -> None:
    """Fetch and store the deliveries of a webhook since a time that were not received.

    `hook` None means the App's webhook. Each delivery is stored in its own transaction: fetched
    ones stay stored when GitHub becomes unavailable. With `send_again` nothing is stored: GitHub
    sends the delivery again, and the service verifies it like any other. Raises GitHubError.
    """
    below = (
        f"/{OF_THE_APP}/deliveries"
        if hook is None
        else f"/repos/{_path(repository)}/hooks/{hook}/deliveries"
    )
    counts.hooks += 1
    # GitHub lists every try of a delivery: the next page may contain the same delivery
    seen: set[str] = set()
    for page in _since(
        github.pages(f"{below}?per_page={PER_PAGE}", repository, most=MAX_PAGES), since
    ):
        relevant = {
            str(delivery["guid"]): delivery
            for delivery in page
            if delivery.get("event") in HANDLED and str(delivery["guid"]) not in seen
        }
        seen.update(relevant)
        with reading(engine) as current:
            known = incoming.known(current, HookSource.github, list(relevant))
        counts.seen += len(relevant)
        counts.known += len(known)
        # oldest first, in the original order
        for guid in reversed([guid for guid in relevant if guid not in known]):
            address = f"{below}/{int(relevant[guid]['id'])}"
            payload = (
                None
                if send_again
                else (github.get(address, repository).get("request") or {}).get("payload")
            )
            if payload is None:  # also when it was too large for GitHub to show it
                github.trigger(f"{address}/attempts", repository)
                counts.sent_again += 1
                continue
            with session(engine) as current:
                _, new = incoming.store(
                    current,
                    HookSource.github,
                    guid,
                    str(relevant[guid]["event"]),
                    encode(payload).encode(),
                )
            counts.fetched += new


def _since(pages: Iterator[Any], since: datetime) -> Iterator[list[Mapping[str, Any]]]:
    """Yield the deliveries since a time, page by page, newest first; read no further pages."""
    for page in pages:
        recent = [
            delivery
            for delivery in page
            if datetime.fromisoformat(str(delivery["delivered_at"])) >= since
        ]
        yield recent
        if len(recent) < len(page):
            return


class Patience:
    """Waits for the end of GitHub's rate limits, for a limited time in total."""

    def __init__(self, seconds: float) -> None:
        self._left = seconds

    def __call__(self, until: datetime) -> bool:
        """Wait until then; return False at once if that takes too long."""
        wait = max(0.0, (until - utcnow()).total_seconds())
        if wait > self._left:
            return False
        self._left -= wait
        time.sleep(wait)
        return True


def client_of(
    settings: Settings, *, as_app: bool = False, patience: Patience | None = None
) -> GitHub | None:
    """Return a client for the settings; None without a token or an App (`as_app`: an App)."""
    access: Access | None = access_of(settings)
    if as_app:
        access = AsTheApp(access) if isinstance(access, App) else None
    return None if access is None else GitHub(settings.github_url, access, wait=patience)


def _path(repository: str) -> str:
    return "/".join(quote(part, safe="") for part in repository.split("/"))


def _path_of(hook: Mapping[str, Any]) -> str:
    return urlsplit(str((hook.get("config") or {}).get("url") or "")).path.rstrip("/")
