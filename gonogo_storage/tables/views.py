"""Saved views: named filters of the pages' lists."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from gonogo_storage.db.base import Base
from gonogo_storage.db.columns import IdType


class SavedViewRow(Base):
    """A named query of a list; everybody who reads the list sees it."""

    __tablename__ = "saved_views"
    id: Mapped[str] = mapped_column(IdType, primary_key=True)
    page: Mapped[str]
    name: Mapped[str]
    query: Mapped[str]  # of the page's address, without "?"
    created_by: Mapped[str]
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]
    __table_args__ = (UniqueConstraint("page", "name"),)
