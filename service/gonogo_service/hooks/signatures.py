"""Is this delivery from whom it says? GitHub's signature, and that of Standard Webhooks for other
CI systems.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Mapping, Sequence

from pydantic import SecretStr

from gonogo_service.webhooks import signatures
from gonogo_service.webhooks.signatures import Unverified

SIGNATURE = "x-hub-signature-256"
PREFIX = "sha256="
DELIVERY, EVENT = "x-github-delivery", "x-github-event"
MOST_ID = 200
"""Characters of a sender's id, and of the name of an event."""


def secrets_of(setting: SecretStr | None) -> list[str]:
    """The secrets of a setting: several while one replaces the other."""
    text = "" if setting is None else setting.get_secret_value()
    return [part.strip() for part in text.split(",") if part.strip()]


def github(secrets: Sequence[str], headers: Mapping[str, str], body: bytes) -> None:
    """Raises Unverified unless `X-Hub-Signature-256` is the HMAC-SHA256 of the body under one of
    the secrets (constant time).
    """
    given = headers.get(SIGNATURE, "")
    if not given.startswith(PREFIX):
        raise Unverified(
            "there is no X-Hub-Signature-256: the webhook has no secret, or the message is not GitHub's"
        )
    fitting = [
        hmac.compare_digest(made(secret, body).encode(), given.encode("latin-1", "replace"))
        for secret in secrets
    ]
    if not any(fitting):
        raise Unverified("X-Hub-Signature-256 does not fit: another secret, or another body")


def made(secret: str, body: bytes) -> str:
    """The header that GitHub sends with a body."""
    return PREFIX + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def standard(
    secrets: Sequence[str], headers: Mapping[str, str], body: bytes, *, now: float | None = None
) -> None:
    """Raises Unverified unless the headers `webhook-id`, `-timestamp` and `-signature` fit the body
    and one of the secrets.
    """
    words: list[str] = []
    moment = time.time() if now is None else now
    for secret in secrets:
        try:
            signatures.verify(
                secret,
                headers.get("webhook-id", ""),
                headers.get("webhook-timestamp", ""),
                headers.get("webhook-signature", ""),
                body,
                now=moment,
            )
        except Unverified as problem:
            words.append(str(problem))
        else:
            return
    raise Unverified(words[0] if words else "no secret is set")


def identity(headers: Mapping[str, str], names: Sequence[str]) -> tuple[str, ...]:
    """The headers of these names. Raises Unverified where one is missing, too long, or holds what
    is no plain text.
    """
    found = tuple(headers.get(name, "") for name in names)
    for name, value in zip(names, found, strict=True):
        if not value or len(value) > MOST_ID or not value.isascii() or not value.isprintable():
            raise Unverified(f"the header {name} must have 1 to {MOST_ID} printable characters")
    return found
