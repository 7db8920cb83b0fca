"""Who is asking, what they may do, and the keys that secrets are hashed under."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gonogo_service.kit.problems import Problem

if TYPE_CHECKING:
    pass


SCOPES: Final = ("read", "submit", "admin")
"""In order: each contains those before it."""


@dataclass(frozen=True)
class Principal:
    """Who is asking. `kind`: token (bearer), session (a login of the pages) or local (embedded, on
    loopback, no login).
    """

    kind: str
    id: str
    name: str
    scopes: frozenset[str]
    csrf: str = ""

    def may(self, scope: str) -> bool:
        """Whether one of the scopes is `scope` or contains it."""
        return any(SCOPES.index(held) >= SCOPES.index(scope) for held in self.scopes)

    @property
    def actor(self) -> str:
        """How the audit names it: the token behind it, whether it came as a bearer or through a
        login.
        """
        return "local" if self.kind == "local" else f"token:{self.id}"


LOCAL: Final = Principal("local", "local", "local", frozenset({"admin"}))


class Keys:
    """Keys derived from GONOGO_SECRET_KEY, one per purpose, so that no hash made for one can be
    used for another.
    """

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()

    def key(self, purpose: str) -> bytes:
        """The 32 bytes of the key of `purpose`."""
        return hmac.new(self._secret, b"gonogo " + purpose.encode(), hashlib.sha256).digest()

    def digest(self, purpose: str, text: str) -> str:
        """Hex HMAC-SHA256 of `text` under the key of `purpose`."""
        return hmac.new(self.key(purpose), text.encode(), hashlib.sha256).hexdigest()


def demand(principal: Principal | None, scope: str) -> Principal:
    """The principal if it may; Problem 403 that names the scope otherwise (401 if there is
    nobody).
    """
    if principal is None:
        raise unauthorised("This needs a token: Authorization: Bearer gng_...")
    if not principal.may(scope):
        raise Problem(
            403,
            f"This needs the scope {scope!r}; the token {principal.name!r} has {', '.join(sorted(principal.scopes))}.",
            slug="scope",
        )
    return principal


def unauthorised(detail: str) -> Problem:
    """401 with the challenge that HTTP demands."""
    return Problem(401, detail, headers={"WWW-Authenticate": 'Bearer realm="gonogo"'})
