"""The secrets of subscriptions: made, checked, and encrypted for the database."""

from __future__ import annotations

import base64
import secrets

from cryptography.fernet import Fernet, InvalidToken

from gonogo_service.access.principals import Keys
from gonogo_service.kit.problems import BadField
from gonogo_service.webhooks.signatures import PREFIX, bytes_of

BYTES = 32
LEAST_BYTES, MOST_BYTES = 24, 64
"""What Standard Webhooks asks of a secret."""


class Box:
    """Encrypts secrets under a key derived from GONOGO_SECRET_KEY: a copy of the database alone
    signs nothing.
    """

    def __init__(self, keys: Keys) -> None:
        self._fernet = Fernet(base64.urlsafe_b64encode(keys.key("webhook secret")))

    def close(self, text: str) -> str:
        """The ciphertext of a secret."""
        return self._fernet.encrypt(text.encode()).decode()

    def open(self, sealed: str) -> str:
        """The secret. Raises ValueError when GONOGO_SECRET_KEY is another one than when it was
        stored.
        """
        try:
            return self._fernet.decrypt(sealed.encode()).decode()
        except InvalidToken as problem:
            raise ValueError(
                "the secret was stored under another GONOGO_SECRET_KEY: rotate it"
            ) from problem


def make() -> str:
    """A new secret's text."""
    return PREFIX + base64.b64encode(secrets.token_bytes(BYTES)).decode()


def check(text: str) -> str:
    """A secret that someone brought. Raises BadField."""
    try:
        size = len(bytes_of(text))
    except ValueError:
        size = -1
    if not LEAST_BYTES <= size <= MOST_BYTES:
        raise BadField(
            "secret",
            "…",
            "is no secret of Standard Webhooks",
            limit=f"whsec_ and base64 of {LEAST_BYTES} to {MOST_BYTES} bytes",
        )
    return text
