"""Hosts, their keys and invitations."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from sqlalchemy import BigInteger, ForeignKey
from sqlalchemy.orm import Mapped, mapped_column, relationship

from gonogo_service.kit.database.base import Base
from gonogo_service.kit.database.columns import INTERNAL, IdType
from gonogo_service.kit.database.encoding import utcnow


class InvitationState(StrEnum):
    """The state of an invitation."""

    open = "open"
    used = "used"
    expired = "expired"
    revoked = "revoked"


class HostRow(Base):
    """A machine with devices that has enrolled, and what it sent that was refused.

    Its devices' names begin with its name.
    """

    __tablename__ = "hosts"
    id: Mapped[str] = mapped_column(IdType, primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    queues: Mapped[list[str]] = mapped_column(
        doc="Patterns of the queues whose attempts it may run"
    )
    created_at: Mapped[datetime] = mapped_column(info=INTERNAL)
    enrolled_at: Mapped[datetime]
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
    keys: Mapped[list[HostKeyRow]] = relationship(
        primaryjoin="and_(HostRow.id == HostKeyRow.host_id, HostKeyRow.retired_at.is_(None))",
        order_by="HostKeyRow.created_at",
        lazy="selectin",
        viewonly=True,
    )
    refusals: Mapped[list[RefusedMessageRow]] = relationship(
        primaryjoin="HostRow.name == foreign(RefusedMessageRow.sender)",
        order_by="RefusedMessageRow.reason",
        lazy="selectin",
        viewonly=True,
    )

    @property
    def key(self) -> str | None:
        """Return the id of its public key; None for a revoked host."""
        return self.keys[-1].id if self.keys else None

    @property
    def refused(self) -> dict[str, int]:
        """Return the numbers of its refused messages, by reason."""
        return {row.reason: row.count for row in self.refusals}


class HostKeyRow(Base):
    """A public key of a host; `id` is how messages name it.

    A retired key checks what the host sealed before it was retired. A host that enrolls again, or
    that is revoked, loses its keys.
    """

    __tablename__ = "host_keys"
    id: Mapped[str] = mapped_column(primary_key=True)
    host_id: Mapped[str] = mapped_column(IdType, ForeignKey("hosts.id"), index=True)
    public_key: Mapped[str]
    created_at: Mapped[datetime]
    retired_at: Mapped[datetime | None]


class InvitationRow(Base):
    """An invitation of a host without its code.

    `id` and `public_key` are those of the key that the code's secret makes.
    """

    __tablename__ = "host_invitations"
    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(doc="The name that the host will have")
    queues: Mapped[list[str]] = mapped_column(
        doc="Patterns of the queues whose attempts the host may run"
    )
    public_key: Mapped[str] = mapped_column(info=INTERNAL)
    created_by: Mapped[str]
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime] = mapped_column(index=True)
    used_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    key_id: Mapped[str | None] = mapped_column(info=INTERNAL)  # of the host that used it

    @property
    def state(self) -> InvitationState:
        """Return its state now."""
        if self.used_at is not None:
            return InvitationState.used
        if self.revoked_at is not None:
            return InvitationState.revoked
        return InvitationState.open if utcnow() < self.expires_at else InvitationState.expired


class MessageNumberRow(Base):
    """The highest number of a kind of message about a worker or a device."""

    __tablename__ = "message_numbers"
    subject: Mapped[str] = mapped_column(primary_key=True)
    task: Mapped[str] = mapped_column(primary_key=True)
    number: Mapped[int] = mapped_column(BigInteger)
    digest: Mapped[str]
    at: Mapped[datetime] = mapped_column(index=True)


class RefusedMessageRow(Base):
    """The refused messages of a sender, by reason; the sender is empty for an unknown one."""

    __tablename__ = "refused_messages"
    sender: Mapped[str] = mapped_column(primary_key=True)
    reason: Mapped[str] = mapped_column(primary_key=True)
    count: Mapped[int] = mapped_column(BigInteger)
    detail: Mapped[str]  # of the last one
    last_at: Mapped[datetime]
    audited_at: Mapped[datetime]
