"""The audit log. It needs the scope admin."""

from __future__ import annotations

from gonogo_service.access.context import Admin, Ctx
from gonogo_service.kit.answers import Cursor, Filter, Limit, make_router
from gonogo_storage.access import audit as stored
from gonogo_storage.access.audit import AuditEntry
from gonogo_storage.db.paging import Page

router = make_router("audit")


@router.get("/audit", summary="List audit entries, newest first")
def audit(
    context: Ctx,
    _who: Admin,
    action: Filter = None,
    actor: Filter = None,
    subject: Filter = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Page[AuditEntry]:
    """List entries that match all filters."""
    filters = stored.AuditFilter(action=action, actor=actor, subject=subject)
    with context.reading() as session:
        return stored.list_(session, filters, limit=limit, cursor=cursor)
