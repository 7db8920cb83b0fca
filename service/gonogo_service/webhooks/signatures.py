"""Signatures of Standard Webhooks: HMAC-SHA256 of "id.timestamp.body" under the secret.

The library signs. Its own verification allows five minutes only, reads the process's clock, and
doesn't say how old a message is; so ours compares with what the library signs.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Iterable
from datetime import UTC, datetime

from standardwebhooks import Webhook

PREFIX = "whsec_"
TOLERANCE_S = 300.0
MAX_DIGITS = 11
"""Maximum number of digits of a timestamp: dates up to the year 5138."""


class Unverified(ValueError):
    """A message without a valid signature; the text says why."""


def bytes_of(secret: str) -> bytes:
    """Return the key of a secret's text. Raises ValueError if it is empty or not base64."""
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except binascii.Error as problem:
        raise ValueError("the secret is not base64") from problem
    if not key:
        raise ValueError("the secret is empty")
    return key


def signatures(secrets: Iterable[str], message_id: str, moment: datetime, text: str) -> str:
    """Return the header `webhook-signature` with one `v1,...` per secret; `moment` is in UTC.

    So both secrets work while a new one replaces the old one.
    """
    return " ".join(Webhook(bytes_of(secret)).sign(message_id, moment, text) for secret in secrets)


def verify(
    secret: str,
    message_id: str,
    timestamp: str,
    header: str,
    body: bytes,
    *,
    now: float,
    tolerance_s: float | None = TOLERANCE_S,
) -> None:
    """Raise Unverified unless one of the header's signatures is valid.

    The message must not be older or newer than the tolerance (None: any age).
    """
    moment = recent(timestamp, now=now, tolerance_s=tolerance_s)
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise Unverified("the body is not UTF-8 text") from None
    expected = signatures([secret], message_id, datetime.fromtimestamp(moment, UTC), text).encode()
    if not any(hmac.compare_digest(expected, given.encode()) for given in header.split(" ")):
        raise Unverified("no signature matches: another secret, id, timestamp or body")


def recent(timestamp: str, *, now: float, tolerance_s: float | None = TOLERANCE_S) -> int:
    """Return the seconds of a header `webhook-timestamp`.

    Raises Unverified if it is no number, or older or newer than the tolerance (None: any age).
    """
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= MAX_DIGITS):
        raise Unverified(f"webhook-timestamp {timestamp[:40]!r} is not a number of seconds")
    moment = int(timestamp)
    if tolerance_s is not None and abs(now - moment) > tolerance_s:
        raise Unverified(
            f"webhook-timestamp is {now - moment:.0f} s old (allowed: {tolerance_s:.0f} s)"
        )
    return moment
