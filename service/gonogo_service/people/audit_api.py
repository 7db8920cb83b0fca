"""The audit log over HTTP. It needs the scope admin."""

from __future__ import annotations

from collections.abc import Iterator

from fastapi import Response
from fastapi.responses import StreamingResponse
from sqlalchemy import select

from gonogo_service.kit import rows
from gonogo_service.kit.answers import make_router
from gonogo_service.kit.audit import AuditRow
from gonogo_service.kit.database.records import schema_of
from gonogo_service.kit.resource import Resource
from gonogo_service.people.audit_noun import AUDIT as NOUN
from gonogo_service.people.context import Admin, Context, Ctx

EXPORT_PAGE = 1000
ENTRY = rows.extended_answer(AuditRow, "AuditEntry")
router = make_router("audit")
"""It has the export alone, which must come before the entries: else it is taken for one."""
AUDIT = Resource(NOUN, AuditRow, answer=ENTRY)


@router.get(
    "/audit/export",
    response_class=Response,
    responses={
        200: {
            "content": {"application/x-ndjson": {"schema": schema_of(ENTRY)}},
            "description": "The entries; the schema is that of a line",
        }
    },
    summary="Export the audit",
)
def export(context: Ctx, _who: Admin) -> Response:
    """Stream every entry as a line of JSON, oldest first."""
    return StreamingResponse(_lines(context), media_type="application/x-ndjson")


def _lines(context: Context) -> Iterator[str]:
    query = select(AuditRow).order_by(AuditRow.id).limit(EXPORT_PAGE)
    last = None
    while True:
        with context.reading() as session:  # not one for all: a slow reader would hold it open
            after = query if last is None else query.where(AuditRow.id > last)
            entries = session.scalars(after).all()
        if not entries:
            return
        yield "".join(f"{ENTRY.model_validate(entry).model_dump_json()}\n" for entry in entries)
        last = entries[-1].id
