"""The secrets of subscriptions: creation, checks, and encryption for the database.

The address of a message to people is a secret, too.
"""

from __future__ import annotations

import base64
import secrets

from cryptography.fernet import Fernet, InvalidToken

from gonogo_service.kit.principals import Keys
from gonogo_service.kit.problems import BadField
from gonogo_service.webhooks.signatures import PREFIX, bytes_of

BYTES = 32
MIN_BYTES, MAX_BYTES = 24, 64
"""The limits of Standard Webhooks."""


class Box:
    """Encrypts secrets under a key derived from GONOGO_SECRET_KEY.

    A copy of the database alone can't sign messages.
    """

    def __init__(self, keys: Keys) -> None:
        self._fernet = Fernet(base64.urlsafe_b64encode(keys.key("webhook secret")))

    def close(self, text: str) -> str:
        """Return the ciphertext of a secret."""
        return self._fernet.encrypt(text.encode()).decode()

    def open(self, ciphertext: str) -> str:
        """Return the secret.

        Raises ValueError when it was stored under another GONOGO_SECRET_KEY.
        """
        try:
            return self._fernet.decrypt(ciphertext.encode()).decode()
        except InvalidToken as problem:
            raise ValueError(
                "the secret was stored under another GONOGO_SECRET_KEY: "
                "rotate it, or give the address again"
            ) from problem


def make() -> str:
    """Return a new secret's text."""
    return PREFIX + base64.b64encode(secrets.token_bytes(BYTES)).decode()


def check(text: str) -> str:
    """Return a user's secret if it is valid. Raises BadField."""
    try:
        size = len(bytes_of(text))
    except ValueError:
        size = -1
    if not MIN_BYTES <= size <= MAX_BYTES:
        raise BadField(
            "secret",
            "…",
            "is not a Standard Webhooks secret",
            limit=f"whsec_ and base64 of {MIN_BYTES} to {MAX_BYTES} bytes",
        )
    return text
