"""Signatures as Standard Webhooks says: HMAC-SHA256 of "id.timestamp.body" under the secret's
bytes.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable

PREFIX = "whsec_"
VERSION = "v1"
MOST_DIGITS = 15
"""Of a timestamp: far beyond any clock, and small enough to reckon with."""


class Unverified(ValueError):
    """A message that must not be believed, and why."""


def bytes_of(secret: str) -> bytes:
    """The key of a secret's text. Raises ValueError for what is not base64."""
    try:
        return base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except binascii.Error as problem:
        raise ValueError("the secret is not base64") from problem


def signatures(secrets: Iterable[str], message_id: str, timestamp: int, body: bytes) -> str:
    """The header `webhook-signature`: one `v1,...` per secret, so that both work while one replaces
    the other.
    """
    signed = f"{message_id}.{timestamp}.".encode() + body
    made = (hmac.new(bytes_of(each), signed, hashlib.sha256).digest() for each in secrets)
    return " ".join(f"{VERSION},{base64.b64encode(each).decode()}" for each in made)


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
    """Raises Unverified unless one of the header's signatures is right and the message is not too
    old or too new (None: of any age).
    """
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= MOST_DIGITS):
        raise Unverified(f"webhook-timestamp {timestamp[:40]!r} is no number of seconds")
    moment = int(timestamp)
    if tolerance_s is not None and abs(now - moment) > tolerance_s:
        raise Unverified(
            f"webhook-timestamp is {now - moment:.0f} s old; the limit is {tolerance_s:.0f} s"
        )
    wanted = signatures([secret], message_id, moment, body).encode()
    if not any(hmac.compare_digest(wanted, each.encode()) for each in header.split(" ")):
        raise Unverified("no signature fits: another secret, id, timestamp or body")
