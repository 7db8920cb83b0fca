"""A waiver: the row, which is also the answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from sqlalchemy import ColumnElement, ForeignKey, Index, and_
from sqlalchemy.orm import Mapped, mapped_column

from gonogo.ci.patterns import fits, fits_any
from gonogo.flakiness import waivers
from gonogo_service.kit.database.base import Base
from gonogo_service.kit.database.columns import IdType
from gonogo_service.waivers.noun import WaiverState


class WaiverRow(Base):
    """Findings accepted until a date, so that CI says `waived` (gonogo/flakiness/waivers.py).

    A test must match each of key, names and labels that is given. No row is ever deleted.
    """

    __tablename__ = "waivers"
    id: Mapped[str] = mapped_column(IdType, primary_key=True)
    test: Mapped[str | None] = mapped_column(
        "test_key", ForeignKey("test_specs.key"), doc="The key of a test"
    )
    names: Mapped[list[str]] = mapped_column(doc="Patterns for the names in a comparison")
    labels: Mapped[dict[str, str]] = mapped_column(
        doc="Labels that one job of the test on head must have, all of them"
    )
    builds: Mapped[list[str]] = mapped_column(doc="Patterns for head's build; empty: any build")
    classes: Mapped[list[str]]
    owner: Mapped[str]
    reason: Mapped[str]
    version: Mapped[int]
    created_by: Mapped[str]
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]
    expires_at: Mapped[datetime]
    ended_at: Mapped[datetime | None] = mapped_column(doc="By a person; null: at expires_at")
    ended_by: Mapped[str | None]
    __table_args__ = (
        Index("ix_waivers_ends", "ended_at", "expires_at"),
        Index("ix_waivers_test", "test_key", "id"),
    )

    @property
    def words(self) -> str:
        """Return it in a phrase."""
        return waivers.words(self)

    @property
    def effect(self) -> str:
        """Return what it does to commits, and until when."""
        return waivers.effect(self)

    def state_at(self, now: datetime) -> WaiverState:
        """Return its state at a moment."""
        if self.ended_at is not None:
            return WaiverState.ended
        return WaiverState.active if self.expires_at > now else WaiverState.expired

    @classmethod
    def is_at(cls, state: WaiverState, now: datetime) -> ColumnElement[bool]:
        """Return the SQL condition for a state at a moment, as `state_at` has it."""
        if state is WaiverState.ended:
            return cls.ended_at.is_not(None)
        lasts = cls.expires_at > now if state is WaiverState.active else cls.expires_at <= now
        return and_(cls.ended_at.is_(None), lasts)

    def concerns(
        self,
        test: str,
        names: Iterable[str],
        labels: Iterable[Mapping[str, str]],
        build: str | None = None,
    ) -> bool:
        """Return whether it covers a test with that key, name (one of several) and jobs' labels.

        build: head's; None: any, where nothing is compared.
        """
        if self.test is not None and self.test != test:
            return False
        if self.names and not fits_any(self.names, names):
            return False
        if self.labels and not any(self.labels.items() <= given.items() for given in labels):
            return False
        return build is None or not self.builds or fits(self.builds, build)
