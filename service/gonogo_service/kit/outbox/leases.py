"""Leases: duties that one process at a time may do, by the database's clock."""

from __future__ import annotations

import os
import socket
from collections.abc import Collection

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from gonogo_service.kit.database.dialect import database_time, insert_once
from gonogo_service.kit.database.ids import new_id
from gonogo_service.kit.outbox.model import LeaseRow

LEASE_S = 10.0
RENEW_S = 3.0
FORGET_S = 24 * 3600.0
NEVER = 0.0
"""The end of a lease that nobody has held yet: any moment that is over."""


def new_holder() -> str:
    """Return a name for this process that no other one has: host/process id/id."""
    return f"{socket.gethostname()}/{os.getpid()}/{new_id()}"


def acquire(session: Session, name: str, holder: str, seconds: float = LEASE_S) -> bool:
    """Acquire or renew a lease for `seconds`; return False while another holder has it."""
    return bool(acquire_all(session, [name], holder, seconds))


def acquire_all(
    session: Session, names: Collection[str], holder: str, seconds: float = LEASE_S
) -> set[str]:
    """Acquire or renew leases; return those that no other holder has."""
    now = database_time(session)
    new = [{"name": name, "holder": holder, "until": NEVER} for name in sorted(names)]
    insert_once(session, LeaseRow, new)
    free = (LeaseRow.holder == holder) | (LeaseRow.until < now)
    query = update(LeaseRow).where(LeaseRow.name.in_(names), free).returning(LeaseRow.name)
    query = query.execution_options(synchronize_session=False)
    return set(session.scalars(query.values(holder=holder, until=now + seconds)))


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
