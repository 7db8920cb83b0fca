"""The few statements whose spelling differs between SQLite and PostgreSQL."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, cast

from sqlalchemy import Table, select, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from storage.engine import is_postgres
from storage.tables import Base


def insert_once(session: Session, table: type[Base], rows: Sequence[dict[str, Any]]) -> None:
    """Insert rows in bulk; those whose key is taken stay as the first writer left them."""
    if not rows:
        return
    # The Core table: an ORM insert leaves NULLs out, and so needs one statement per pattern of NULLs
    target = cast(Table, table.__table__)
    if is_postgres(session):
        session.execute(postgresql.insert(target).on_conflict_do_nothing(), rows)
    else:
        session.execute(sqlite.insert(target).on_conflict_do_nothing(), rows)


def database_time(session: Session) -> float:
    """Seconds since the epoch by the database's clock, the only one that all processes share. (SQLite: this host's.)"""
    if is_postgres(session):
        return float(session.scalar(select(text("extract(epoch from clock_timestamp())"))) or 0.0)
    return time.time()
