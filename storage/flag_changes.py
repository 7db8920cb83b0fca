"""What people do to flags: take them on, close them, say why."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from storage import flags
from storage.encoding import utcnow
from storage.ids import is_id
from storage.states import FlagState
from storage.tables import FlagRow


def change(session: Session, flag_id: str, fields: dict[str, Any], *, now: datetime | None = None) -> dict[str, Any] | None:
    """Set any of state, owner and reason; the flag, or None when there is none. What is equal already makes no new version.

    The row is locked, so that a job that closes at the same moment neither loses the change nor is lost by it.
    """
    unknown = fields.keys() - {"state", "owner", "reason"}
    if unknown:
        raise ValueError(f"a flag has no {sorted(unknown)} to change")
    row = session.get(FlagRow, flag_id, with_for_update=True) if is_id(flag_id) else None
    if row is None:
        return None
    if "state" in fields:
        fields = {**fields, "state": FlagState(fields["state"]).value}
    if any(getattr(row, name) != value for name, value in fields.items()):
        for name, value in fields.items():
            setattr(row, name, value)
        row.version += 1
        row.updated_at = now or utcnow()
        session.flush()
    return flags.get(session, flag_id)
