"""The consequence of a try of a message. Retry-After is honored; 410 means never."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from gonogo_service.kit.database.states import DeliveryState
from gonogo_service.webhooks.deliveries import DELIVERIES

MAX_RETRY_AFTER = timedelta(days=1)
GONE = 410


@dataclass(frozen=True)
class Next:
    """The state after a try."""

    state: DeliveryState
    again_at: datetime | None = None
    disable: bool = False


def after(
    tries: int, status: int | None, retry_after: str | None, now: datetime, chance: random.Random
) -> Next:
    """Return what follows try number `tries` (from 1), answered with `status` (None: no answer)."""
    if status is not None and 200 <= status < 300:
        return Next(DeliveryState.delivered)
    if status == GONE:
        return Next(DeliveryState.failed, disable=True)
    requested = requested_delay(retry_after, now)
    again_at = DELIVERIES.backoff.next_try(tries, now, at_least=requested, chance=chance.random)
    return Next(DeliveryState.failed if again_at is None else DeliveryState.waiting, again_at)


def requested_delay(retry_after: str | None, now: datetime) -> timedelta | None:
    """Return the delay of the header Retry-After (seconds or a date), at most a day.

    Returns None for anything else.
    """
    if retry_after is None:
        return None
    text = retry_after.strip()
    if text.isascii() and text.isdigit():
        return min(timedelta(seconds=int(text[:9])), MAX_RETRY_AFTER)
    try:
        moment = parsedate_to_datetime(text)
    except (TypeError, ValueError, OverflowError):  # a year of twenty digits
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return min(max(moment - now, timedelta(0)), MAX_RETRY_AFTER)
