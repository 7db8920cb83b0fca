"""Due work: what waits, is locked while it is handled, and is postponed, done or given up.

One table has all of it: messages of the outbox, deliveries to webhooks, incoming deliveries and
answers to GitHub. Each is a subclass with its own columns and its own back-off.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, ClassVar, NamedTuple, Self

from sqlalchemy import Index, Select, UniqueConstraint, select, text
from sqlalchemy.orm import Mapped, Session, declared_attr, mapped_column
from tenacity import (
    RetryCallState,
    Retrying,
    stop_after_attempt,
    stop_never,
    wait_chain,
    wait_fixed,
    wait_random,
)
from tenacity.stop import stop_base
from tenacity.wait import wait_base

from gonogo_service.kit.database.base import Base
from gonogo_service.kit.database.columns import INTERNAL, IdType
from gonogo_service.kit.database.dialect import insert_once
from gonogo_service.kit.database.encoding import storable, utcnow
from gonogo_service.kit.database.ids import is_id, new_id

WAITING, FAILED = "waiting", "failed"
"""The states that every kind of work has."""
MAX_REASON_CHARS = 500
_WAITS = text("due_at IS NOT NULL")


class Backoff(NamedTuple):
    """When a failed try is repeated, and when the work is given up."""

    wait: wait_base
    stop: stop_base

    @classmethod
    def after(cls, *delays_s: float, tries: int | None = None, jitter: float = 0.0) -> Self:
        """Return the back-off with these delays; the last one repeats.

        The work is given up after so many `tries` (None: never). `jitter` is the largest random
        part that is added to a delay.
        """
        waits = (wait_fixed(delay) + wait_random(0, jitter * delay) for delay in delays_s)
        return cls(wait_chain(*waits), stop_never if tries is None else stop_after_attempt(tries))

    def next_try(
        self, failed: int, now: datetime, *, at_least: timedelta | None = None
    ) -> datetime | None:
        """Return the time of the try after `failed` failed ones; None: give up.

        `at_least` is a delay that the receiver requested.
        """
        calls = RetryCallState(Retrying(), None, (), {})
        calls.attempt_number = failed
        if self.stop(calls):
            return None
        return now + max(timedelta(seconds=self.wait(calls)), at_least or timedelta(0))


class DueWorkRow(Base):
    """One piece of work; `kind` and `key` make it happen once."""

    __tablename__ = "due_work"
    id: Mapped[str] = mapped_column(IdType, primary_key=True)
    kind: Mapped[str] = mapped_column(info=INTERNAL)
    key: Mapped[str] = mapped_column(info=INTERNAL)
    topic: Mapped[str] = mapped_column(info=INTERNAL)
    payload: Mapped[dict[str, Any]] = mapped_column(info=INTERNAL)
    state: Mapped[str]
    reason: Mapped[str | None] = mapped_column(info=INTERNAL)
    tries: Mapped[int]
    due_at: Mapped[datetime | None]  # null: nothing more to do
    created_at: Mapped[datetime]
    ended_at: Mapped[datetime | None] = mapped_column(index=True)
    __table_args__ = (
        UniqueConstraint("kind", "key"),
        Index("ix_due_work_due", "due_at", sqlite_where=_WAITS, postgresql_where=_WAITS),
        Index("ix_due_work_kind", "kind", "id"),
    )
    KIND: ClassVar[str] = ""
    backoff: ClassVar[Backoff]

    @declared_attr.directive
    def __mapper_args__(cls) -> dict[str, Any]:
        return {"polymorphic_identity": cls.KIND} if cls.KIND else {"polymorphic_on": "kind"}

    @classmethod
    def add(
        cls, session: Session, rows: Iterable[Mapping[str, Any]], *, now: datetime | None = None
    ) -> list[str]:
        """Store work that is due now, unless there is one with its key; return the new ids.

        The rows name the table's columns.
        """
        now = now or utcnow()
        fresh: dict[str, Any] = {
            "kind": cls.KIND,
            "state": WAITING,
            "payload": {},
            "tries": 0,
            "due_at": now,
            "created_at": now,
        }
        added = [{"id": new_id(), **fresh, **row} for row in rows]
        insert_once(session, DueWorkRow, added)
        return [row["id"] for row in added]

    @classmethod
    def due(cls, *, now: datetime | None = None, limit: int = 100) -> Select[Self]:
        """Return the query of what is due now, the longest due first."""
        due = cls.due_at <= (now or utcnow())
        return select(cls).where(due).order_by(cls.due_at, cls.id).limit(limit)

    @classmethod
    def locked(cls, session: Session, key: str, *, ended: bool = False) -> Self | None:
        """Lock waiting work until the transaction ends, and return it.

        Returns None if it is deleted, or was already handled by another process. `ended`: also
        return what is done or given up.
        """
        row = (
            session.get(cls, key, with_for_update=True, populate_existing=True)
            if is_id(key)
            else None
        )
        return row if row is not None and (ended or row.due_at is not None) else None

    def finish(self, state: str, *, now: datetime | None = None) -> None:
        """Count the last try."""
        self.tries += 1
        self.state, self.due_at, self.ended_at = state, None, now or utcnow()

    def postpone(
        self, reason: str | None, *, now: datetime | None = None, at_least: timedelta | None = None
    ) -> None:
        """Count a failed try; the work is repeated later, and given up at last."""
        now = now or utcnow()
        self.tries += 1
        self.reason = (storable(reason) or "")[:MAX_REASON_CHARS] or None
        self.due_at = self.backoff.next_try(self.tries, now, at_least=at_least)
        if self.due_at is None:
            self.state, self.ended_at = FAILED, now

    @classmethod
    def put_off(
        cls, session: Session, key: str, reason: str, *, now: datetime | None = None
    ) -> None:
        """Count a failed try of work that nobody else has handled meanwhile."""
        row = cls.locked(session, key)
        if row is not None:
            row.postpone(reason, now=now)

    def repeat(self) -> None:
        """Make it due again, as a person requests it."""
        self.state, self.due_at = WAITING, utcnow()
        self.reason = self.ended_at = None


class OutboxRow(DueWorkRow):
    """A message about work to do outside the database.

    It is written in the transaction that decides on the work. Its `topic` says who handles it.
    """

    KIND: ClassVar[str] = "outbox"
    backoff: ClassVar[Backoff] = Backoff.after(
        5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400
    )


class LeaseRow(Base):
    """The holder of a duty that only one process may do at a time.

    `until` is in seconds since the epoch by the database's clock.
    """

    __tablename__ = "leases"
    name: Mapped[str] = mapped_column(primary_key=True)
    holder: Mapped[str]
    until: Mapped[float]
