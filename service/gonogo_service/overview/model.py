"""When each reader has seen the news of the overview."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Mapped, mapped_column

from gonogo_service.kit.database.base import Base


class SeenRow(Base):
    """A reader, by the name of the audit, and until when the reader has seen the news."""

    __tablename__ = "seen"
    reader: Mapped[str] = mapped_column(primary_key=True)
    seen_at: Mapped[datetime]
