"""Principals with their scopes, and the keys that secrets are hashed under."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from gonogo.ci.patterns import fits
from gonogo_service.kit.problems import Problem

SCOPES: Final = ("read", "submit", "admin")
"""In order: each scope contains the ones before it."""
WARNED_BEFORE: Final = timedelta(days=14)


@dataclass(frozen=True)
class Principal:
    """The identity behind a request.

    `kind` is token (bearer), session (a login of the pages), local (embedded, on loopback, no
    login), or host (a device host's token: no scope).
    """

    kind: str
    id: str
    name: str
    scopes: frozenset[str]
    csrf: str = ""
    builds: tuple[str, ...] = ()
    """Patterns of the names of builds that it may register without being an admin."""
    branches: tuple[str, ...] = ()
    """Patterns of their branches; empty: any."""
    repositories: tuple[str, ...] = ()
    """Patterns of the repositories that it is limited to; empty: no limit."""
    suites: tuple[str, ...] = ()
    """Patterns of the suites that it is limited to; empty: no limit."""
    expires_at: datetime | None = None
    credential: str = ""
    """Its token's or session's id: streams end with it."""
    queues: tuple[str, ...] = ()
    """Patterns of the queues of a device host."""

    @property
    def bounded(self) -> bool:
        """Return whether it is limited to repositories or suites."""
        return bool(self.repositories or self.suites)

    def covers(self, repository: str | None, suite: str | None) -> bool:
        """Return whether a job of that repository and suite is within its limits."""
        in_repository = repository is not None and fits(self.repositories, repository)
        in_suite = suite is not None and fits(self.suites, suite)
        return (not self.repositories or in_repository) and (not self.suites or in_suite)

    def soon_over(self, now: datetime) -> datetime | None:
        """Return when its token ends, if that is within two weeks."""
        soon = self.expires_at is not None and self.expires_at - now < WARNED_BEFORE
        return self.expires_at if soon else None

    def may(self, scope: str) -> bool:
        """Return whether one of the scopes is `scope` or contains it."""
        return any(SCOPES.index(granted) >= SCOPES.index(scope) for granted in self.scopes)

    def may_register(self, build: str, branch: str) -> bool:
        """Return whether it may register a build of that name and branch."""
        if self.may("admin"):
            return True
        named = bool(self.builds) and fits(self.builds, build)
        return self.may("submit") and named and fits(self.branches, branch)

    @property
    def actor(self) -> str:
        """Return the name in the audit: the token, used as a bearer or through a login."""
        return "local" if self.kind == "local" else f"token:{self.id}"


LOCAL: Final = Principal("local", "local", "local", frozenset({"admin"}))


class Keys:
    """Keys derived from GONOGO_SECRET_KEY.

    There is one key per purpose, so that a hash for one purpose can't be used for another.
    """

    def __init__(self, secret: str) -> None:
        self._secret = secret

    def key(self, purpose: str) -> bytes:
        """Return the 32-byte key of `purpose`."""
        message = b"gonogo " + purpose.encode()
        return hmac.new(self._secret.encode(), message, hashlib.sha256).digest()

    def digest(self, purpose: str, text: str) -> str:
        """Return the hex HMAC-SHA256 of `text` under the key of `purpose`."""
        return hmac.new(self.key(purpose), text.encode(), hashlib.sha256).hexdigest()


def demand(principal: Principal | None, scope: str) -> Principal:
    """Return the principal if it has the scope.

    Raises Problem 403, which names the scope, or 401 without a principal.
    """
    if principal is None:
        raise unauthorized("This needs a token: Authorization: Bearer gng_...")
    if not principal.may(scope):
        raise Problem(
            403,
            f"This needs the scope {scope!r}; the token {principal.name!r} has "
            f"{', '.join(sorted(principal.scopes))}.",
            slug="scope",
        )
    return principal


def unauthorized(detail: str) -> Problem:
    """Return a 401 with the challenge that HTTP requires."""
    return Problem(401, detail, headers={"WWW-Authenticate": 'Bearer realm="gonogo"'})
