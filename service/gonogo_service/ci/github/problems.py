"""Errors of requests to GitHub.

GitHubError      any error
├── Limited      the rate limit: no request is allowed before a certain time
├── Away         no answer, or "later": the same request may succeed soon
└── Refused      GitHub rejects it: a token without the right, an unknown commit, a wrong field
"""

from __future__ import annotations

from datetime import datetime


class GitHubError(Exception):
    """A failed request. The text has the method, the path and GitHub's message; never a token."""


class Limited(GitHubError):
    """Too many requests; the next one is allowed at `until`."""

    def __init__(self, message: str, until: datetime) -> None:
        super().__init__(message)
        self.until = until


class Away(GitHubError):
    """No connection, a timeout, or a status of 500 or more."""


class Refused(GitHubError):
    """A status of 400 to 499, for which a retry is useless."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status
