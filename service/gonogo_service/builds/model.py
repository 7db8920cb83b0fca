"""Registered builds."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime

from sqlalchemy import BigInteger
from sqlalchemy.orm import Mapped, mapped_column

from gonogo.spec.builds import Build
from gonogo_service.kit.database.base import Base


class BuildRow(Base):
    """A build; those of the emulator and of torch are built in."""

    __tablename__ = "builds"
    name: Mapped[str] = mapped_column(primary_key=True)
    executor: Mapped[str]
    branch: Mapped[str]
    sequence: Mapped[int] = mapped_column(BigInteger)
    commit: Mapped[str | None]
    author: Mapped[str | None] = mapped_column(doc="The author of the commit")
    arithmetic: Mapped[str | None] = mapped_column(
        doc="The arithmetic of its kernels, which alone may explain them; null: it is found"
    )
    outputs: Mapped[list[str] | None] = mapped_column(
        doc="The outputs that it produces; null: all of the kernel"
    )
    created_at: Mapped[datetime | None] = mapped_column(
        nullable=False, doc="null for a built-in build"
    )

    @classmethod
    def of(cls, build: Build, created_at: datetime | None = None) -> BuildRow:
        """Return the row of a build."""
        outputs = None if build.outputs is None else list(build.outputs)
        return cls(**vars(build) | {"outputs": outputs, "created_at": created_at})

    @property
    def build(self) -> Build:
        """Return what it says about kernels."""
        values = {one.name: getattr(self, one.name) for one in fields(Build)}
        outputs = None if self.outputs is None else tuple(self.outputs)
        return Build(**values | {"outputs": outputs})
