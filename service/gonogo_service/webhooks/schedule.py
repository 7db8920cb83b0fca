"""When a message is tried again: the delays of the contract, with jitter; Retry-After is honoured;
410 means never again.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from gonogo_storage.db.states import DeliveryState

DELAYS_S = (0, 5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400)
"""Before the first try, the second, ...: ten in all."""
JITTER = 0.1
MOST_RETRY_AFTER = timedelta(days=1)
GONE = 410


@dataclass(frozen=True)
class Next:
    """What follows a try."""

    state: DeliveryState
    again_at: datetime | None = None
    disable: bool = False


def after(
    tries: int, status: int | None, retry_after: str | None, now: datetime, chance: random.Random
) -> Next:
    """After the try number `tries` (from 1) that answered `status` (None: no answer)."""
    if status is not None and 200 <= status < 300:
        return Next(DeliveryState.delivered)
    if status == GONE:
        return Next(DeliveryState.failed, disable=True)
    if tries >= len(DELAYS_S):
        return Next(DeliveryState.failed)
    wait = timedelta(seconds=DELAYS_S[tries] * (1 + JITTER * chance.random()))
    asked = asked_for(retry_after, now)
    return Next(DeliveryState.waiting, now + (wait if asked is None else max(wait, asked)))


def asked_for(retry_after: str | None, now: datetime) -> timedelta | None:
    """The header Retry-After, in seconds or as a date, at most a day; None for anything else."""
    if retry_after is None:
        return None
    text = retry_after.strip()
    if text.isascii() and text.isdigit():
        return min(timedelta(seconds=min(int(text[:9]), 10**8)), MOST_RETRY_AFTER)
    try:
        moment = parsedate_to_datetime(text)
    except (TypeError, ValueError, OverflowError):  # a year of twenty digits
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return min(max(moment - now, timedelta(0)), MOST_RETRY_AFTER)
