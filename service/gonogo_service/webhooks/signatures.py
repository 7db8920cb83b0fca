"""Signatures of Standard Webhooks: HMAC-SHA256 of "id.timestamp.body" under the secret."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable

PREFIX = "whsec_"
VERSION = "v1"
MAX_DIGITS = 15
"""Maximum number of digits of a timestamp: far beyond any clock, and small enough for a float."""


class Unverified(ValueError):
    """A message without a valid signature; the text says why."""


def bytes_of(secret: str) -> bytes:
    """Return the key of a secret's text. Raises ValueError if it is not base64."""
    try:
        return base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except binascii.Error as problem:
        raise ValueError("the secret is not base64") from problem


def signatures(secrets: Iterable[str], message_id: str, timestamp: int, body: bytes) -> str:
    """Return the header `webhook-signature` with one `v1,...` per secret.

    So both secrets work while a new one replaces the old one.
    """
    signed = f"{message_id}.{timestamp}.".encode() + body
    digests = (hmac.new(bytes_of(secret), signed, hashlib.sha256).digest() for secret in secrets)
    return " ".join(f"{VERSION},{base64.b64encode(digest).decode()}" for digest in digests)


def verify(
    secret: str,
    message_id: str,
    timestamp: str,
    header: str,
    body: bytes,
    *,
    now: float,
    tolerance_s: float | None = 300.0,
) -> None:
    """Raise Unverified unless one of the header's signatures is valid.

    The message must not be older or newer than the tolerance (None: any age).
    """
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= MAX_DIGITS):
        raise Unverified(f"webhook-timestamp {timestamp[:40]!r} is not a number of seconds")
    moment = int(timestamp)
    if tolerance_s is not None and abs(now - moment) > tolerance_s:
        raise Unverified(
            f"webhook-timestamp is {now - moment:.0f} s old (allowed: {tolerance_s:.0f} s)"
        )
    expected = signatures([secret], message_id, moment, body).encode()
    if not any(hmac.compare_digest(expected, given.encode()) for given in header.split(" ")):
        raise Unverified("no signature matches: another secret, id, timestamp or body")
