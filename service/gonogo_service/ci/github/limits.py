"""GitHub's rate limits: the time of the next allowed request.

GitHub reports it in one of three ways: `retry-after` (seconds; dates, which HTTP allows, are
accepted, too), `x-ratelimit-remaining: 0` with `x-ratelimit-reset` (seconds since the epoch), or,
for its secondary limits, only in the text. Then it wants a wait of at least a minute.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from gonogo_service.webhooks.schedule import requested_delay

MAX_WAIT = timedelta(hours=1)
"""The longest window of GitHub's limits; a later time means that the clocks differ."""
SECONDARY_WAIT = timedelta(minutes=1)
MIN_WAIT = timedelta(seconds=1)
"""An answer with 0 seconds or a past time must not lead to an endless loop of requests."""
STATUSES = frozenset({403, 429})
WORDS = ("rate limit", "abuse detection")


def until(status: int, headers: Mapping[str, str], text: str, now: datetime) -> datetime | None:
    """Return the time of the next allowed request; None if the answer reports no limit.

    Names of headers are in lower case.
    """
    spent = headers.get("x-ratelimit-remaining", "").strip() == "0"
    reset = _reset(headers, now)
    if status not in STATUSES:
        return reset if spent and reset is not None and reset > now else None
    wait = requested_delay(headers.get("retry-after"), now)
    if wait is not None:
        return now + min(max(wait, MIN_WAIT), MAX_WAIT)
    if spent:
        if reset is None:
            return now + SECONDARY_WAIT
        return min(max(reset, now + MIN_WAIT), now + MAX_WAIT)
    if status == 429 or any(word in text.lower() for word in WORDS):
        return now + SECONDARY_WAIT
    return None


def _reset(headers: Mapping[str, str], now: datetime) -> datetime | None:
    seconds = _seconds(headers.get("x-ratelimit-reset"))
    return None if seconds is None else min(datetime.fromtimestamp(seconds, UTC), now + MAX_WAIT)


def _seconds(text: str | None) -> int | None:
    value = (text or "").strip()
    return int(value) if value.isascii() and value.isdigit() and len(value) <= 11 else None
