"""Who we are to GitHub: a token, or an App, whose key makes short-lived tokens for each repository
that installed it.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from gonogo_service.github.problems import Refused
from gonogo_storage.db.encoding import encode, utcnow

JWT_LIFE = timedelta(minutes=9)
CLOCKS_DIFFER = timedelta(minutes=1)
"""A JWT may live 10 minutes at most and not begin in GitHub's future."""
RENEW_BEFORE = timedelta(minutes=5)
ASK_AGAIN = timedelta(minutes=5)
"""How long a repository without the App is remembered as one."""

Ask = Callable[[str, str, str], Mapping[str, Any]]
"""(method, path, authorization) -> JSON."""


@dataclass(frozen=True)
class Grant:
    """What a request is made with. `name`: whose rate limit it counts against; `checks`: may it
    write check runs; `app`: whose it is.
    """

    authorization: str
    name: str
    checks: bool
    app: str | None = None


class Access(Protocol):
    """Gives the right to speak of a repository."""

    def grant(self, repository: str, ask: Ask) -> Grant:
        """The right for "owner/name". Raises GitHubError."""

    def refused(self, repository: str) -> bool:
        """GitHub said 401: forget what may have run out; whether a new grant may be better."""


@dataclass(frozen=True)
class Token:
    """A personal or fine-grained token: statuses and comments, no check runs."""

    text: str

    def grant(self, repository: str, ask: Ask) -> Grant:
        """The same for every repository."""
        return Grant(f"Bearer {self.text}", "token", checks=False)

    def refused(self, repository: str) -> bool:
        """There is no other."""
        return False


@dataclass
class App:
    """A GitHub App; `otherwise` speaks for repositories that have not installed it."""

    id: str
    key: RSAPrivateKey
    otherwise: Access | None = None
    now: Callable[[], datetime] = utcnow
    _installations: dict[str, tuple[int | None, datetime]] = field(default_factory=dict)
    _tokens: dict[int, tuple[str, datetime]] = field(default_factory=dict)

    def grant(self, repository: str, ask: Ask) -> Grant:
        """An installation's token, made anew five minutes before it ends. Raises Refused where
        nobody may speak.
        """
        installation = self._installation(repository, ask)
        if installation is None:
            if self.otherwise is None:
                raise Refused(f"the App {self.id} is not installed on {repository}", 404)
            return self.otherwise.grant(repository, ask)
        text, ends = self._tokens.get(installation, ("", self.now()))
        if ends - self.now() <= RENEW_BEFORE:
            made = ask("POST", f"/app/installations/{installation}/access_tokens", self._bearer())
            text, ends = str(made["token"]), datetime.fromisoformat(str(made["expires_at"]))
            self._tokens[installation] = (text, ends)
        return Grant(f"Bearer {text}", f"installation {installation}", checks=True, app=self.id)

    def refused(self, repository: str) -> bool:
        """Its token may have been revoked, or the App installed anew."""
        known, _ = self._installations.pop(repository, (None, None))
        return known is not None and self._tokens.pop(known, None) is not None

    def jwt(self) -> str:
        """A JSON web token that says who we are (RFC 7519, RS256)."""
        now = self.now()
        claims = {
            "iat": int((now - CLOCKS_DIFFER).timestamp()),
            "exp": int((now + JWT_LIFE).timestamp()),
            "iss": self.id,
        }
        signed = f"{_base64url(encode({'alg': 'RS256', 'typ': 'JWT'}).encode())}.{_base64url(encode(claims).encode())}"
        return f"{signed}.{_base64url(self.key.sign(signed.encode(), PKCS1v15(), SHA256()))}"

    def _bearer(self) -> str:
        return f"Bearer {self.jwt()}"

    def _installation(self, repository: str, ask: Ask) -> int | None:
        known, until = self._installations.get(repository, (None, self.now()))
        if known is not None or self.now() < until:
            return known
        try:
            found = int(ask("GET", f"/repos/{repository}/installation", self._bearer())["id"])
        except Refused as problem:
            if problem.status != 404:
                raise
            self._installations[repository] = (None, self.now() + ASK_AGAIN)
            return None
        self._installations[repository] = (found, self.now())
        return found


def read_key(text: str) -> RSAPrivateKey:
    """The App's key from PEM text (line ends may be written as backslash n), or from a file with
    it. Raises ValueError.
    """
    if "-----BEGIN" in text:
        pem = text.replace("\\n", "\n").encode()
    else:
        try:
            pem = Path(text).read_bytes()
        except OSError as problem:
            raise ValueError(
                f"GONOGO_GITHUB_APP_KEY is no PEM text, and no file that can be read: {problem.strerror}"
            ) from None
    try:
        key = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ValueError(
            "GONOGO_GITHUB_APP_KEY holds no private key without a password, as GitHub gives them"
        ) from None
    if not isinstance(key, RSAPrivateKey):
        raise ValueError("GONOGO_GITHUB_APP_KEY is not an RSA key, as GitHub gives them")
    return key


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
