"""The audit log. It needs the scope admin."""

from __future__ import annotations

from collections.abc import Iterator

from fastapi import Response
from fastapi.responses import StreamingResponse

from gonogo_service.kit.answers import Cursor, Filter, Limit, make_router
from gonogo_service.kit.database.encoding import encode
from gonogo_service.kit.database.paging import Page
from gonogo_service.kit.database.records import schema_of
from gonogo_service.people import audit as stored
from gonogo_service.people.audit import AuditEntry
from gonogo_service.people.context import Admin, Context, Ctx

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


@router.get(
    "/audit/export",
    response_class=Response,
    responses={
        200: {
            "content": {"application/x-ndjson": {"schema": schema_of(AuditEntry)}},
            "description": "The entries; the schema is that of a line",
        }
    },
    summary="Export the audit",
)
def export(context: Ctx, _who: Admin) -> Response:
    """Stream every entry as a line of JSON, oldest first."""
    return StreamingResponse(_lines(context), media_type="application/x-ndjson")


def _lines(context: Context) -> Iterator[str]:
    last = None
    while True:
        with context.reading() as session:  # not one for all: a slow reader would hold it open
            entries = stored.export(session, after=last)
        if not entries:
            return
        yield "".join(f"{encode(entry)}\n" for entry in entries)
        last = entries[-1]["id"]
