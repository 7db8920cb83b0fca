"""Hosts of devices, and what they sent that was refused."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from sqlalchemy import BigInteger
from sqlalchemy.orm import Mapped, mapped_column, relationship

from gonogo_service.kit.database.base import Base
from gonogo_service.kit.database.columns import INTERNAL, SECRET, IdType
from gonogo_service.kit.database.encoding import utcnow


class HostState(StrEnum):
    """Whether a host may do its work."""

    added = "added"
    """It has not joined yet."""
    joined = "joined"
    expired = "expired"
    revoked = "revoked"


class HostRow(Base):
    """A machine with devices, whose names begin with its own.

    It has a one-time code until it joins, and a token afterwards. Of both only keyed hashes are
    stored.
    """

    __tablename__ = "hosts"
    id: Mapped[str] = mapped_column(IdType, primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    queues: Mapped[list[str]] = mapped_column(
        doc="Patterns of the queues whose attempts it may run"
    )
    addresses: Mapped[list[str]] = mapped_column(
        default=list, doc="Addresses and networks that it may ask from; empty: any"
    )
    created_at: Mapped[datetime] = mapped_column(info=INTERNAL)
    joined_at: Mapped[datetime | None]
    token_expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    heard_at: Mapped[datetime | None]
    clock_skew_s: Mapped[float | None] = mapped_column(
        doc="Seconds by which its clock is ahead of the service's"
    )
    clock_at: Mapped[datetime | None]
    flagged_at: Mapped[datetime | None] = mapped_column(
        doc="When it last sent something that only a wrong or hostile host sends"
    )
    flag_reason: Mapped[str | None]
    code_hash: Mapped[str | None] = mapped_column(unique=True, info=SECRET)
    code_expires_at: Mapped[datetime | None] = mapped_column(info=INTERNAL)
    token_hash: Mapped[str | None] = mapped_column(unique=True, info=SECRET)
    # the token before the last rotation, which works for some minutes more
    old_token_hash: Mapped[str | None] = mapped_column(unique=True, info=SECRET)
    old_token_until: Mapped[datetime | None] = mapped_column(info=INTERNAL)
    refusals: Mapped[list[RefusedRequestRow]] = relationship(
        primaryjoin="HostRow.name == foreign(RefusedRequestRow.sender)",
        order_by="RefusedRequestRow.reason",
        lazy="selectin",
        viewonly=True,
    )

    @property
    def state(self) -> HostState:
        """Return its state now."""
        if self.revoked_at is not None:
            return HostState.revoked
        if self.token_hash is None or self.token_expires_at is None:
            return HostState.added
        return HostState.joined if utcnow() < self.token_expires_at else HostState.expired

    @property
    def refused(self) -> dict[str, int]:
        """Return the numbers of its refused requests, by reason."""
        return {row.reason: row.count for row in self.refusals}


class RefusedRequestRow(Base):
    """The refused requests of a host, by reason."""

    __tablename__ = "refused_requests"
    sender: Mapped[str] = mapped_column(primary_key=True)
    reason: Mapped[str] = mapped_column(primary_key=True)
    count: Mapped[int] = mapped_column(BigInteger)
    detail: Mapped[str]  # of the last one
    last_at: Mapped[datetime]
    audited_at: Mapped[datetime]
