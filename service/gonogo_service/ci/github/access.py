"""Credentials for GitHub: a token, or an App.

An App's key creates short-lived tokens for each repository that installed the App.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import jwt
from cachetools import LRUCache, TLRUCache, TTLCache
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from gonogo_service.ci.github.problems import Refused
from gonogo_service.kit.database.encoding import utcnow

JWT_LIFE = timedelta(minutes=9)
CLOCKS_DIFFER = timedelta(minutes=1)
"""A JWT may live for at most 10 minutes, and must not begin in GitHub's future."""
RENEW_BEFORE = timedelta(minutes=5)
ASK_AGAIN_S = 300.0
"""Time for which a repository is remembered as one without the App."""
MAX_CACHED = 10_000
"""Repositories whose installation is remembered, and installations whose token is."""

Ask = Callable[[str, str, str], Mapping[str, Any]]
"""(method, path, authorization) -> JSON."""


@dataclass(frozen=True)
class Grant:
    """The authorization of a request.

    `name` identifies the rate limit that it counts against. `checks` says whether it may write
    check runs. `app` is the App's ID.
    """

    authorization: str
    name: str
    checks: bool
    app: str | None = None


class Access(Protocol):
    """Provides grants for repositories."""

    def grant(self, repository: str, ask: Ask) -> Grant:
        """Return the grant for "owner/name". Raises GitHubError."""

    def refused(self, repository: str) -> bool:
        """Forget an expired grant after a 401; return whether a new one may succeed."""


@dataclass(frozen=True)
class Token:
    """A personal or fine-grained token: statuses and comments, no check runs."""

    text: str

    def grant(self, repository: str, ask: Ask) -> Grant:
        """Return the same grant for every repository."""
        return Grant(f"Bearer {self.text}", "token", checks=False)

    def refused(self, repository: str) -> bool:
        """Return False: there is no other token."""
        return False


@dataclass(frozen=True)
class App:
    """A GitHub App, for use in one thread.

    `otherwise` is used for repositories that have not installed it.
    """

    id: str
    key: RSAPrivateKey
    otherwise: Access | None = None
    _installations: LRUCache[str, int] = field(default_factory=lambda: LRUCache(MAX_CACHED))
    _not_installed: TTLCache[str, bool] = field(
        default_factory=lambda: TTLCache(MAX_CACHED, ASK_AGAIN_S, timer=time.time)
    )
    _tokens: TLRUCache[int, tuple[str, datetime]] = field(
        default_factory=lambda: TLRUCache(MAX_CACHED, _renewal, timer=time.time)
    )

    def grant(self, repository: str, ask: Ask) -> Grant:
        """Return a grant with an installation's token, renewed five minutes before it expires.

        Raises Refused where the App is not installed and there is no other access.
        """
        installation = self._installation(repository, ask)
        if installation is None:
            if self.otherwise is None:
                raise Refused(f"the App {self.id} is not installed on {repository}", 404)
            return self.otherwise.grant(repository, ask)
        token = self._tokens.get(installation)
        if token is None:
            answer = ask("POST", f"/app/installations/{installation}/access_tokens", self._bearer())
            token = str(answer["token"]), datetime.fromisoformat(str(answer["expires_at"]))
            self._tokens[installation] = token
        return Grant(f"Bearer {token[0]}", f"installation {installation}", checks=True, app=self.id)

    def refused(self, repository: str) -> bool:
        """Forget the installation: its token may be revoked, or the App was installed again."""
        installation = self._installations.pop(repository, None)
        if installation is not None:
            self._tokens.pop(installation, None)
        return installation is not None

    def jwt(self) -> str:
        """Return a JSON web token that identifies the App (RFC 7519, RS256)."""
        now = utcnow()
        claims = {"iat": now - CLOCKS_DIFFER, "exp": now + JWT_LIFE, "iss": self.id}
        return jwt.encode(claims, self.key, "RS256")

    def _bearer(self) -> str:
        return f"Bearer {self.jwt()}"

    def _installation(self, repository: str, ask: Ask) -> int | None:
        installation = self._installations.get(repository)
        if installation is not None or repository in self._not_installed:
            return installation
        try:
            answer = ask("GET", f"/repos/{repository}/installation", self._bearer())
        except Refused as problem:
            if problem.status != 404:
                raise
            self._not_installed[repository] = True
            return None
        self._installations[repository] = int(answer["id"])
        return int(answer["id"])


def _renewal(_installation: int, token: tuple[str, datetime], _now: float) -> float:
    return (token[1] - RENEW_BEFORE).timestamp()


def read_key(text: str) -> RSAPrivateKey:
    r"""Return the App's key from PEM text, or from a PEM file. Raises ValueError.

    In PEM text the line ends may be written as \n.
    """
    if "-----BEGIN" in text:
        pem = text.replace("\\n", "\n").encode()
    else:
        try:
            pem = Path(text).read_bytes()
        except OSError as problem:
            raise ValueError(
                f"GONOGO_GITHUB_APP_KEY is neither PEM text nor a readable file: {problem.strerror}"
            ) from None
    try:
        key = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ValueError(
            "GONOGO_GITHUB_APP_KEY holds no private key, or one with a password "
            "(needs: a PEM key from GitHub)"
        ) from None
    if not isinstance(key, RSAPrivateKey):
        raise ValueError("GONOGO_GITHUB_APP_KEY is not an RSA key (needs: a PEM key from GitHub)")
    return key
