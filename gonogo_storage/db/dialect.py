"""The few statements whose spelling differs between SQLite and PostgreSQL."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from typing import Any, cast

from sqlalchemy import Table, select, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from gonogo_storage.db.base import Base
from gonogo_storage.db.engine import is_postgres


def insert_once(session: Session, table: type[Base], rows: Sequence[dict[str, Any]]) -> None:
    """Insert rows in bulk; those whose key is taken stay as the first writer left them."""
    if not rows:
        return
    # The Core table: an ORM insert leaves NULLs out, and so needs one statement per pattern of
    # NULLs
    target = cast(Table, table.__table__)
    if is_postgres(session):
        session.execute(postgresql.insert(target).on_conflict_do_nothing(), rows)
    else:
        session.execute(sqlite.insert(target).on_conflict_do_nothing(), rows)


def upsert(session: Session, table: type[Base], rows: Sequence[dict[str, Any]]) -> None:
    """Insert rows in bulk; of those whose key is taken every other column is overwritten. The
    caller holds a lock over reading and this.
    """
    if not rows:
        return
    target = cast(Table, table.__table__)
    keys = [column.name for column in target.primary_key.columns]
    insert = postgresql.insert(target) if is_postgres(session) else sqlite.insert(target)
    rest = {name: insert.excluded[name] for name in rows[0] if name not in keys}
    session.execute(insert.on_conflict_do_update(index_elements=keys, set_=rest), rows)


def increase(
    session: Session, table: type[Base], rows: Sequence[dict[str, Any]], counts: Sequence[str]
) -> None:
    """Insert rows in bulk; of those whose key is taken the `counts` are added to what is there, the
    other columns stay. Needs no lock.
    """
    if not rows:
        return
    target = cast(Table, table.__table__)
    keys = [column.name for column in target.primary_key.columns]
    insert = postgresql.insert(target) if is_postgres(session) else sqlite.insert(target)
    more = {name: target.c[name] + insert.excluded[name] for name in counts}
    session.execute(insert.on_conflict_do_update(index_elements=keys, set_=more), rows)


def lock(session: Session, room: int, name: str) -> None:
    """Hold a name of a room until the transaction ends; others who want it wait. (SQLite: a write
    transaction holds everything.)

    Two names may share a lock (32 bits of a hash): that costs a wait, and no more as long as a
    transaction takes one name of a room.
    """
    if is_postgres(session):
        number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big", signed=True)
        take = text("SELECT pg_advisory_xact_lock(CAST(:room AS integer), CAST(:name AS integer))")
        session.execute(take, {"room": room, "name": number})


def database_time(session: Session) -> float:
    """Seconds since the epoch by the database's clock, the only one that all processes share.
    (SQLite: this host's.)
    """
    if is_postgres(session):
        return float(session.scalar(select(text("extract(epoch from clock_timestamp())"))) or 0.0)
    return time.time()
