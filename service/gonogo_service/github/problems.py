"""What can go wrong with GitHub.

GitHubError      anything that is not the answer that was asked for
├── Limited      the rate limit: nothing may be asked before a moment
├── Away         no answer, or one that says "later": the same may work soon
└── Refused      GitHub understood and will not: a token without the right, an unknown commit, a
wrong field
"""

from __future__ import annotations

from datetime import datetime


class GitHubError(Exception):
    """An answer that is none. The text names method, path and GitHub's own words; never a token."""


class Limited(GitHubError):
    """Too many requests. `until`: when the next one may be made."""

    def __init__(self, message: str, until: datetime) -> None:
        super().__init__(message)
        self.until = until


class Away(GitHubError):
    """No connection, a time-out, or a status of 500 and more."""


class Refused(GitHubError):
    """A status of 400 to 499 that waiting does not cure."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status
