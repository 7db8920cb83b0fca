"""Due messages: rows that wait, are locked while they are handled, and are postponed or given up.

The outbox, incoming deliveries, messages to webhooks and reports to GitHub have a table each, so
that one slow receiver delays nobody else. This module is what the four have in common.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from sqlalchemy import Select, inspect
from sqlalchemy.orm import Session

from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.ids import is_id
from gonogo_service.kit.outbox.due_columns import DueColumns

R = TypeVar("R", bound=DueColumns)
Q = TypeVar("Q", bound=Select[*tuple[Any, ...]])


@dataclass(frozen=True)
class Backoff:
    """The delays between the tries of a message, and the number of tries."""

    delays_s: tuple[float, ...]
    """Seconds after the first failed try, the second, ...; the last delay repeats."""
    max_tries: int | None = None
    """The message is given up after this many failed tries; None: never."""
    jitter: float = 0.0
    """The largest random part that is added to a delay."""

    def next_try(
        self,
        failed: int,
        now: datetime,
        *,
        at_least: timedelta | None = None,
        chance: Callable[[], float] = random.random,
    ) -> datetime | None:
        """Return the time of the try after `failed` failed ones (at least 1); None: give up.

        `at_least` is a delay that the receiver requested.
        """
        if self.max_tries is not None and failed >= self.max_tries:
            return None
        seconds = self.delays_s[min(failed, len(self.delays_s)) - 1]
        delay = timedelta(seconds=seconds * (1 + self.jitter * chance()))
        return now + max(delay, at_least or delay)


@dataclass(frozen=True)
class DueTable(Generic[R]):
    """A table of messages with its schedule of tries."""

    row: type[R]
    backoff: Backoff

    def due(self, query: Q, *, now: datetime | None = None, limit: int) -> Q:
        """Return the query, restricted to messages that are due, the longest due first."""
        key = inspect(self.row).primary_key[0]
        return (
            query.where(self.row.due_at <= (now or utcnow()))
            .order_by(self.row.due_at, key)
            .limit(limit)
        )

    def locked(self, session: Session, key: str, *, ended: bool = False) -> R | None:
        """Lock a waiting message until the transaction ends, and return it.

        Returns None if it is deleted, or was already handled by another process. `ended`: also
        return one that is done or given up.
        """
        row = (
            session.get(self.row, key, with_for_update=True, populate_existing=True)
            if is_id(key)
            else None
        )
        return row if row is not None and (ended or row.due_at is not None) else None

    def postponed(self, row: R, *, now: datetime | None = None) -> bool:
        """Count a failed try of a locked message; return False if it is given up."""
        row.tries += 1
        row.due_at = self.backoff.next_try(row.tries, now or utcnow())
        return row.due_at is not None

    def done(self, row: R) -> None:
        """Count the last try of a locked message."""
        row.tries += 1
        row.due_at = None
