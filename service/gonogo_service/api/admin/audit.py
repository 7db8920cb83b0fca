"""The audit log. It needs the scope admin."""

from __future__ import annotations

from typing import Any

from fastapi import Response
from pydantic import BaseModel

from gonogo_service.access.context import Admin, Ctx
from gonogo_service.kit.answers import Cursor, Filter, Limit, answer_page, make_router
from gonogo_storage.access import audit as stored

router = make_router("audit")


class AuditEntry(BaseModel):
    """An entry of the audit log."""

    id: str
    at: str
    actor: str
    action: str
    subject: str
    detail: dict[str, Any] | None


class AuditPage(BaseModel):
    """A page of the audit log, newest first."""

    items: list[AuditEntry]
    next: str | None


@router.get(
    "/audit",
    responses={200: {"model": AuditPage}},
    response_class=Response,
    summary="List audit entries, newest first",
)
def audit(
    context: Ctx,
    _who: Admin,
    action: Filter = None,
    actor: Filter = None,
    subject: Filter = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """List entries that match all filters."""
    filters = stored.AuditFilter(action=action, actor=actor, subject=subject)
    with context.reading() as session:
        return answer_page(stored.list_(session, filters, limit=limit, cursor=cursor))
