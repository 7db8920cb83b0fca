"""The secrets of subscriptions: made, checked, and encrypted for the database."""

from __future__ import annotations

import base64
import secrets

from cryptography.fernet import Fernet, InvalidToken

from gonogo_service.kit.principals import Keys
from gonogo_service.kit.problems import BadField
from gonogo_service.webhooks.signing import PREFIX, key_of

BYTES, MIN_BYTES, MAX_BYTES = 32, 24, 64
"""Bytes of a new secret, and the limits of Standard Webhooks."""


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
        """Return the secret. Raises ValueError when it was stored under another key."""
        try:
            return self._fernet.decrypt(ciphertext.encode()).decode()
        except InvalidToken as problem:
            raise ValueError(
                "the secret was stored under another GONOGO_SECRET_KEY: "
                "rotate it, or give the address again"
            ) from problem


def new_secret() -> str:
    """Return a new secret's text."""
    return PREFIX + base64.b64encode(secrets.token_bytes(BYTES)).decode()


def check_secret(text: str) -> str:
    """Return a user's secret if it is valid. Raises BadField."""
    try:
        size = len(key_of(text))
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
