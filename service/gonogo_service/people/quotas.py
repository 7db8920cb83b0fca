"""Quotas: what one token may have in the queue, store and request; each limit is a setting.

Work is counted in the transaction that adds it, by the token's name: whatever an address creates,
and however many requests come at once, nothing is stored beyond the limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from gonogo.settings import Settings
from gonogo_service.jobs import usage
from gonogo_service.jobs.usage import Usage
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.ids import new_id
from gonogo_service.kit.minute_counts import MinuteCounts
from gonogo_service.kit.problems import BadField, Problem, entry

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

RETRY_S = 60
"""Jobs end and chunks start at their own pace: asking more often tells nothing new."""
RETRY_ARTIFACTS_S = 3600
ARTIFACTS = "artifact_bytes"


@dataclass(frozen=True)
class Quota:
    """One limit, and how much of it is used."""

    name: str
    words: str
    used: float
    limit: float
    setting: str
    retry_s: int

    def __str__(self) -> str:
        if self.name == ARTIFACTS:
            return f"{_size(self.used)} of {_size(self.limit)} {self.words.removeprefix('bytes ')}"
        return f"{self.used:,.0f} of {self.limit:,.0f} {self.words}"


def _size(count: float) -> str:
    """Return a number of bytes in the unit that people use: "27 kB", "10.7 GB"."""
    units = ("bytes", "kB", "MB", "GB", "TB")
    place = 0
    while count >= 1000 and place < len(units) - 1:
        count, place = count / 1000, place + 1
    return f"{count:.3g} {units[place]}"


def of(session: Session, settings: Settings, owner: str, now: datetime) -> list[Quota]:
    """Return the quotas of an owner's work; those with the limit 0 don't exist."""
    return list(_quotas(usage.of(session, owner, now=now), settings))


def _quotas(used: Usage, settings: Settings) -> Iterator[Quota]:
    rows = (
        ("open_jobs", "open jobs", used.open_jobs, settings.quota_open_jobs, RETRY_S),
        ("device_s", "queued device seconds", used.device_s, settings.quota_device_s, RETRY_S),
        (
            ARTIFACTS,
            "bytes of artifacts in a day",
            used.artifact_bytes,
            settings.quota_artifact_bytes,
            RETRY_ARTIFACTS_S,
        ),
    )
    for name, words, value, limit, retry_s in rows:
        if limit:
            setting = f"GONOGO_QUOTA_{name.upper()}"
            yield Quota(name, words, value, limit, setting, retry_s)


@contextmanager
def guard(session: Session, settings: Settings, owner: str) -> Iterator[None]:
    """Check an owner's work after the block has added to it.

    Raises Problem 429, or 422 where the block alone adds more than the quota. Both must roll the
    transaction back.
    """
    usage.lock(session, owner)
    first = new_id()
    yield
    session.flush()
    now = utcnow()
    for quota in of(session, settings, owner, now):
        if quota.used > quota.limit:
            before = usage.of(session, owner, now=now, before=first)
            if quota.used - getattr(before, quota.name) > quota.limit:
                needed = quota.used - getattr(before, quota.name)
                reason = f"this request alone adds {needed:,.0f} {quota.words}"
                raise BadField(
                    f"quota.{quota.name}", round(quota.used), reason, limit=_allowed(quota)
                )
            raise exceeded(quota, owner)


def _allowed(quota: Quota) -> str:
    return f"{quota.limit:,.0f} ({quota.setting})"


def exceeded(quota: Quota, owner: str) -> Problem:
    """Return the 429 for a quota."""
    allowed = _allowed(quota)
    reason = (
        f"the token {owner!r} would have {quota.used:,.0f} {quota.words}; nothing was stored; "
        f"try again in {quota.retry_s} s, or ask an admin for a higher limit"
    )
    return Problem(
        429,
        f"quota.{quota.name}: {reason} (allowed: {allowed})",
        slug="quota",
        errors=[entry(f"quota.{quota.name}", round(quota.used), reason, allowed)],
        headers={"Retry-After": str(quota.retry_s)},
    )


class RequestQuota:
    """Counts the requests of each token, in this process's memory."""

    def __init__(self, settings: Settings) -> None:
        self._counts = MinuteCounts()
        self._most = settings.quota_requests

    def hit(self, token_id: str, name: str) -> None:
        """Count a request; raise Problem 429 when there are too many."""
        if not self._most or not (wait_s := self._counts.hit(self._most, token_id)):
            return
        raise exceeded(
            Quota(
                "requests",
                "requests in a minute",
                self._most + 1,
                self._most,
                "GONOGO_QUOTA_REQUESTS",
                max(1, round(wait_s)),
            ),
            name,
        )
