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
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.ids import new_id
from gonogo_service.kit.minute_counts import MinuteCounts
from gonogo_service.kit.problems import BadField, Problem, entry

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

ARTIFACTS = "artifact_bytes"
LABELS = {
    "open_jobs": "open jobs",
    "device_s": "queued device seconds",
    ARTIFACTS: "bytes of artifacts in a day",
    "requests": "requests in a minute",
}
RETRY_S = {ARTIFACTS: 3600}
"""Jobs end and chunks start at their own pace, of which asking every minute tells enough."""


@dataclass(frozen=True)
class Quota:
    """One limit, and how much of it is used."""

    name: str
    used: float
    limit: float

    @property
    def label(self) -> str:
        """Return the plural noun of the things that it counts."""
        return LABELS[self.name]

    @property
    def allowed(self) -> str:
        """The limit with its setting."""
        return f"{self.limit:,.0f} (GONOGO_QUOTA_{self.name.upper()})"

    def __str__(self) -> str:
        if self.name == ARTIFACTS:
            return f"{_size(self.used)} of {_size(self.limit)} {self.label.removeprefix('bytes ')}"
        return f"{self.used:,.0f} of {self.limit:,.0f} {self.label}"


def _size(count: float) -> str:
    """Return a number of bytes in the unit that people use: "27 kB", "10.7 GB"."""
    units = ["bytes", "kB", "MB", "GB", "TB"]
    while count >= 1000 and len(units) > 1:
        count, _ = count / 1000, units.pop(0)
    return f"{count:.3g} {units[0]}"


def of(session: Session, settings: Settings, owner: str, now: datetime) -> list[Quota]:
    """Return the quotas of an owner's work; those with the limit 0 don't exist."""
    used = usage.of(session, owner, now=now)
    names = [name for name in LABELS if hasattr(used, name)]
    limits = {name: getattr(settings, f"quota_{name}") for name in names}
    return [Quota(name, getattr(used, name), limit) for name, limit in limits.items() if limit]


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
            added = quota.used - getattr(before, quota.name)
            if added > quota.limit:
                reason = f"this request alone adds {added:,.0f} {quota.label}"
                name = f"quota.{quota.name}"
                raise BadField(name, round(quota.used), reason, limit=quota.allowed)
            raise _exceeded(quota, owner)


def _exceeded(quota: Quota, owner: str, retry_s: int | None = None) -> Problem:
    name, retry_s = f"quota.{quota.name}", retry_s or RETRY_S.get(quota.name, 60)
    reason = (
        f"the token {owner!r} would have {quota.used:,.0f} {quota.label}; nothing was stored; "
        f"try again in {retry_s} s, or ask an admin for a higher limit"
    )
    return Problem(
        429,
        f"{name}: {reason} (allowed: {quota.allowed})",
        slug="quota",
        errors=[entry(name, round(quota.used), reason, quota.allowed)],
        headers={"Retry-After": str(retry_s)},
    )


class RequestQuota:
    """Counts the requests of each token, in this process's memory."""

    def __init__(self, settings: Settings) -> None:
        self._counts = MinuteCounts()
        self._most = settings.quota_requests

    def hit(self, token_id: str, name: str) -> None:
        """Count a request; raise Problem 429 when there are too many."""
        if self._most and (wait_s := self._counts.hit(self._most, token_id)):
            quota = Quota("requests", self._most + 1, self._most)
            raise _exceeded(quota, name, max(1, round(wait_s)))
