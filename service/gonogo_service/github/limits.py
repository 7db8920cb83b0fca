"""GitHub's rate limits: when the next request may be made.

GitHub says it in one of three ways: `retry-after` (seconds; a date, which HTTP allows, is taken as
well), `x-ratelimit-remaining: 0` with `x-ratelimit-reset` (seconds since the epoch), or, for its
secondary limits, in words only; then it asks for a wait of a minute at least.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from gonogo_service.webhooks.schedule import asked_for

MOST = timedelta(hours=1)
"""The longest window of GitHub's limits; a later moment is a clock that differs."""
AT_LEAST = timedelta(minutes=1)
A_MOMENT = timedelta(seconds=1)
"""Whoever says 0 seconds, or a time that is past, is not asked again at once, and so without
end."""
STATUSES = frozenset({403, 429})
WORDS = ("rate limit", "abuse detection")


def until(status: int, headers: Mapping[str, str], text: str, now: datetime) -> datetime | None:
    """When to ask again after such an answer; None if it does not speak of a limit. Names of
    headers are in lower case.
    """
    spent = headers.get("x-ratelimit-remaining", "").strip() == "0"
    reset = _reset(headers, now)
    if status not in STATUSES:
        return reset if spent and reset is not None and reset > now else None
    wait = asked_for(headers.get("retry-after"), now)
    if wait is not None:
        return now + min(max(wait, A_MOMENT), MOST)
    if spent:
        return now + AT_LEAST if reset is None else min(max(reset, now + A_MOMENT), now + MOST)
    if status == 429 or any(word in text.lower() for word in WORDS):
        return now + AT_LEAST
    return None


def _reset(headers: Mapping[str, str], now: datetime) -> datetime | None:
    seconds = _seconds(headers.get("x-ratelimit-reset"))
    return None if seconds is None else min(datetime.fromtimestamp(seconds, UTC), now + MOST)


def _seconds(text: str | None) -> int | None:
    value = (text or "").strip()
    return int(value) if value.isascii() and value.isdigit() and len(value) <= 11 else None
