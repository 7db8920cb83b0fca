"""Verification of deliveries: GitHub's signatures, and Standard Webhooks for other CI systems."""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from collections.abc import Mapping, Sequence

from pydantic import SecretStr

from gonogo_service.webhooks import signatures
from gonogo_service.webhooks.signatures import Unverified

SIGNATURE = "x-hub-signature-256"
PREFIX = "sha256="
DELIVERY, EVENT = "x-github-delivery", "x-github-event"
MAX_HEADER = 2000
_HEX = re.compile(r"[0-9a-f]{64}")
_V1 = re.compile(r"v1,[A-Za-z0-9+/]{43}=")
MAX_ID = 200
"""Maximum number of characters of a sender's ID, and of an event's name."""


def secrets_of(setting: SecretStr | None) -> list[str]:
    """Return the secrets of a setting: there are several while a new one replaces the old one."""
    text = "" if setting is None else setting.get_secret_value()
    return [part.strip() for part in text.split(",") if part.strip()]


def github(secrets: Sequence[str], headers: Mapping[str, str], body: bytes) -> None:
    """Raise Unverified unless `X-Hub-Signature-256` fits the body and one of the secrets.

    The signature is the body's HMAC-SHA256. The comparison takes constant time.
    """
    github_form(headers)
    given = headers[SIGNATURE]
    matches = [
        hmac.compare_digest(sign(secret, body).encode(), given.encode("latin-1", "replace"))
        for secret in secrets
    ]
    if not any(matches):
        raise Unverified("X-Hub-Signature-256 does not match: another secret, or another body")


def github_form(headers: Mapping[str, str]) -> None:
    """Raise Unverified unless the signature's header has the form that GitHub's have.

    It is checked before a stranger's body is read.
    """
    given = headers.get(SIGNATURE, "")
    if not given.startswith(PREFIX):
        raise Unverified(
            "X-Hub-Signature-256 is missing: the webhook has no secret, or GitHub did not send this"
        )
    if _HEX.fullmatch(given.removeprefix(PREFIX)) is None:
        raise Unverified("X-Hub-Signature-256 is not sha256= with 64 hexadecimal digits")


def standard_form(headers: Mapping[str, str], *, now: float | None = None) -> None:
    """Raise Unverified unless the headers have the form of Standard Webhooks and are recent.

    They are checked before a stranger's body is read.
    """
    moment = time.time() if now is None else now
    signatures.recent(headers.get("webhook-timestamp", ""), now=moment)
    given = headers.get("webhook-signature", "")
    if len(given) > MAX_HEADER or not any(map(_V1.fullmatch, given.split(" "))):
        raise Unverified("webhook-signature has no v1, with 44 base64 characters")


def sign(secret: str, body: bytes) -> str:
    """Return the header that GitHub sends with a body."""
    return PREFIX + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def standard(
    secrets: Sequence[str], headers: Mapping[str, str], body: bytes, *, now: float | None = None
) -> None:
    """Raise Unverified unless the headers fit the body and one of the secrets.

    The headers are `webhook-id`, `webhook-timestamp` and `webhook-signature`.
    """
    problems: list[str] = []
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
            problems.append(str(problem))
        else:
            return
    raise Unverified(problems[0] if problems else "no secret is set")


def identity(headers: Mapping[str, str], names: Sequence[str]) -> tuple[str, ...]:
    """Return the headers with these names.

    Raises Unverified when one is missing, too long, or not plain text.
    """
    values = tuple(headers.get(name, "") for name in names)
    for name, value in zip(names, values, strict=True):
        if not value or len(value) > MAX_ID or not value.isascii() or not value.isprintable():
            raise Unverified(f"the header {name} must have 1 to {MAX_ID} printable characters")
    return values
