"""Hosts, their keys and invitations."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from gonogo_service.kit.database.base import Base
from gonogo_service.kit.database.columns import IdType


class HostRow(Base):
    """A machine with devices that has enrolled, under the name that its devices begin with."""

    __tablename__ = "hosts"
    id: Mapped[str] = mapped_column(IdType, primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    # Patterns of the queues whose attempts it may run.
    queues: Mapped[list[Any]]
    created_at: Mapped[datetime]
    enrolled_at: Mapped[datetime]
    revoked_at: Mapped[datetime | None]
    heard_at: Mapped[datetime | None]
    clock_skew_s: Mapped[float | None]  # seconds by which its clock is ahead of the service's
    clock_at: Mapped[datetime | None]
    flagged_at: Mapped[datetime | None]  # when it last sent something that only a liar sends
    flag_reason: Mapped[str | None]


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
    """A one-time code: `id` and `public_key` are those of the key that its secret makes."""

    __tablename__ = "host_invitations"
    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    queues: Mapped[list[Any]]
    public_key: Mapped[str]
    created_by: Mapped[str]
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime] = mapped_column(index=True)
    used_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    key_id: Mapped[str | None]  # of the host that used it


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
