"""The columns of messages that wait until they are due; see gonogo_service.kit.outbox.due."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Index, text
from sqlalchemy.orm import Mapped

_WAITS = text("due_at IS NOT NULL")


class DueColumns:
    """The columns of a table of due messages."""

    tries: Mapped[int]  # failed and successful ones
    due_at: Mapped[datetime | None]  # null: nothing more to do


def due_index(table: str) -> Index:
    """Return the index of a table's waiting messages; those that are done need no room in it."""
    return Index(f"ix_{table}_due", "due_at", sqlite_where=_WAITS, postgresql_where=_WAITS)
