"""Leases: duties that one process at a time may do, by the database's clock."""

from __future__ import annotations

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from gonogo_storage.db.dialect import database_time, insert_once
from gonogo_storage.tables import LeaseRow

FORGET_S = 24 * 3600.0


def acquire(session: Session, name: str, holder: str, seconds: float) -> bool:
    """Acquire or renew a lease for `seconds`; return False while another holder has it."""
    now = database_time(session)
    insert_once(session, LeaseRow, [{"name": name, "holder": holder, "until": 0.0}])
    free = (LeaseRow.holder == holder) | (LeaseRow.until < now)
    acquired = session.execute(
        update(LeaseRow)
        .where(LeaseRow.name == name, free)
        .values(holder=holder, until=now + seconds)
    )
    return bool(getattr(acquired, "rowcount", 0))


def release(session: Session, holder: str) -> None:
    """Release all leases of a holder, so that its successor needn't wait."""
    session.execute(delete(LeaseRow).where(LeaseRow.holder == holder))


def forget(session: Session) -> None:
    """Delete the leases of processes that ended long ago without releasing them."""
    session.execute(delete(LeaseRow).where(LeaseRow.until < database_time(session) - FORGET_S))


def holders(session: Session, prefix: str = "") -> dict[str, str]:
    """Return the leases in force: {name: holder}."""
    now = database_time(session)
    rows = session.execute(select(LeaseRow.name, LeaseRow.holder).where(LeaseRow.until >= now))
    return {name: holder for name, holder in rows if name.startswith(prefix)}
