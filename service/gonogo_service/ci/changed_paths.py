"""The paths that a pull request changes, as GitHub lists them."""

from __future__ import annotations

from urllib.parse import quote

import structlog

from gonogo.ci.events import GITHUB, CommitEvent
from gonogo_service.ci.github.client import PER_PAGE, GitHub
from gonogo_service.ci.github.problems import GitHubError

MAX_FILES = 3000
"""GitHub lists at most this many files of a pull request: the other paths are unknown."""

log = structlog.get_logger("gonogo.hooks")


class Paths:
    """Reads from GitHub the paths that a pull request changes."""

    def __init__(self, github: GitHub) -> None:
        self._github = github

    def __call__(self, event: CommitEvent) -> tuple[str, ...] | None:
        """Return every path, including the old paths of renamed files; None if unknown."""
        if event.pull_request is None or event.event not in GITHUB:
            return None
        repository = "/".join(quote(part, safe="") for part in event.repository.split("/"))
        address = f"/repos/{repository}/pulls/{event.pull_request}/files?per_page={PER_PAGE}"
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
