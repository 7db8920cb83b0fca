"""Signatures of Standard Webhooks, out and in, and those of GitHub.

The library signs. Its own verification allows five minutes only and doesn't say how old a message
is, so ours compares with what the library signs.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from pydantic import SecretStr
from standardwebhooks import Webhook as Signer

PREFIX = "whsec_"
TOLERANCE_S = 300.0
MAX_DIGITS = 11
"""Maximum number of digits of a timestamp: dates up to the year 5138."""
MAX_HEADER, MAX_ID = 2000, 200
"""Maximum number of characters of a signature's header, and of a sender's ID or an event's name."""
GITHUB, GITHUB_PREFIX = "x-hub-signature-256", "sha256="
_V1 = re.compile(r"v1,[A-Za-z0-9+/]{43}=")


class Unverified(ValueError):
    """A message without a valid signature; the text says why."""


def key_of(secret: str) -> bytes:
    """Return the key of a secret's text. Raises ValueError if it is empty or not base64."""
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except binascii.Error as problem:
        raise ValueError("the secret is not base64") from problem
    if not key:
        raise ValueError("the secret is empty")
    return key


def listed(setting: SecretStr | None) -> list[str]:
    """Return the secrets of a setting: there are several while a new one replaces the old one."""
    text = "" if setting is None else setting.get_secret_value()
    return [part.strip() for part in text.split(",") if part.strip()]


def signatures(secrets: Iterable[str], message_id: str, moment: datetime, text: str) -> str:
    """Return the header `webhook-signature` with one `v1,...` per secret; `moment` is in UTC."""
    return " ".join(Signer(key_of(secret)).sign(message_id, moment, text) for secret in secrets)


def verify(
    secrets: Iterable[str],
    headers: Mapping[str, str],
    body: bytes,
    *,
    tolerance_s: float | None = TOLERANCE_S,
) -> None:
    """Raise Unverified unless the headers of Standard Webhooks fit the body and one of the secrets.

    The message must not be older or newer than the tolerance (None: any age).
    """
    moment = recent(headers, tolerance_s=tolerance_s)
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise Unverified("the body is not UTF-8 text") from None
    expected = signatures(secrets, headers.get("webhook-id", ""), moment, text).split(" ")
    given = headers.get("webhook-signature", "").split(" ")
    if not any(hmac.compare_digest(a.encode(), b.encode()) for a in expected for b in given):
        raise Unverified("no signature matches: another secret, id, timestamp or body")


def recent(headers: Mapping[str, str], *, tolerance_s: float | None = TOLERANCE_S) -> datetime:
    """Return the time of the header `webhook-timestamp`.

    Raises Unverified if it is no number, or older or newer than the tolerance (None: any age).
    """
    text = headers.get("webhook-timestamp", "")
    if not (text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS):
        raise Unverified(f"webhook-timestamp {text[:40]!r} is not a number of seconds")
    age_s = time.time() - int(text)
    if tolerance_s is not None and abs(age_s) > tolerance_s:
        raise Unverified(f"webhook-timestamp is {age_s:.0f} s old (allowed: {tolerance_s:.0f} s)")
    return datetime.fromtimestamp(int(text), UTC)


def check_form(headers: Mapping[str, str]) -> None:
    """Raise Unverified unless the headers have the form of Standard Webhooks and are recent.

    They are checked before a stranger's body is read.
    """
    recent(headers)
    given = headers.get("webhook-signature", "")
    if len(given) > MAX_HEADER or not any(map(_V1.fullmatch, given.split(" "))):
        raise Unverified("webhook-signature has no v1, with 44 base64 characters")


def github_signature(secret: str, body: bytes) -> str:
    """Return the header that GitHub sends with a body: the body's HMAC-SHA256."""
    return GITHUB_PREFIX + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def verify_github(secrets: Sequence[str], headers: Mapping[str, str], body: bytes) -> None:
    """Raise Unverified unless `X-Hub-Signature-256` fits the body and one of the secrets."""
    check_github_form(headers)
    given = headers[GITHUB].encode()
    expected = [github_signature(secret, body).encode() for secret in secrets]
    if not any(hmac.compare_digest(signature, given) for signature in expected):
        raise Unverified("X-Hub-Signature-256 does not match: another secret, or another body")


def check_github_form(headers: Mapping[str, str]) -> None:
    """Raise Unverified unless GitHub's signature has its form, before a stranger's body is read."""
    given = headers.get(GITHUB, "")
    if not given.startswith(GITHUB_PREFIX):
        raise Unverified(
            "X-Hub-Signature-256 is missing: the webhook has no secret, or GitHub did not send this"
        )
    if re.fullmatch(r"[0-9a-f]{64}", given.removeprefix(GITHUB_PREFIX)) is None:
        raise Unverified("X-Hub-Signature-256 is not sha256= with 64 hexadecimal digits")


def identity(headers: Mapping[str, str], *names: str) -> tuple[str, ...]:
    """Return the headers with these names.

    Raises Unverified when one is missing, too long, or not plain text.
    """
    values = tuple(headers.get(name, "") for name in names)
    for name, value in zip(names, values, strict=True):
        if not value or len(value) > MAX_ID or not value.isascii() or not value.isprintable():
            raise Unverified(f"the header {name} must have 1 to {MAX_ID} printable characters")
    return values
