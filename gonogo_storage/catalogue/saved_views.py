"""Saved views: named filters of a list of the pages, for everybody."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from gonogo.errors import FieldError
from gonogo_storage.access import audit
from gonogo_storage.db.ids import is_id, new_id
from gonogo_storage.db.records import from_object
from gonogo_storage.tables import SavedViewRow

MAX_VIEWS = 50
"""Views of one list: they stand in one line or two of its page."""


@dataclass(frozen=True)
class SavedView:
    """A view; `query` is that of the page's address, such as "standing=hollow"."""

    id: str
    page: str
    name: str
    query: str
    created_by: str
    created_at: datetime
    updated_at: datetime


def list_(session: Session, page: str | None = None) -> tuple[SavedView, ...]:
    """Return the views of a list, or of all lists, by name."""
    query = select(SavedViewRow).order_by(SavedViewRow.page, SavedViewRow.name)
    query = query if page is None else query.where(SavedViewRow.page == page)
    return tuple(from_object(SavedView, row) for row in session.scalars(query))


def save(
    session: Session, page: str, name: str, query: str, *, actor: str, now: datetime
) -> SavedView:
    """Store a view, in the place of the one with this name. Raises FieldError for too many."""
    same = select(SavedViewRow).where(SavedViewRow.page == page, SavedViewRow.name == name)
    row = session.scalars(same.with_for_update()).one_or_none()
    if row is None:
        known = select(func.count()).select_from(SavedViewRow).where(SavedViewRow.page == page)
        if (session.scalar(known) or 0) >= MAX_VIEWS:
            raise FieldError(
                "page", page, "has too many views", limit=f"{MAX_VIEWS}: delete one first"
            )
        row = SavedViewRow(id=new_id(), page=page, name=name, created_by=actor, created_at=now)
        session.add(row)
    row.query, row.updated_at = query, now
    session.flush()
    detail = {"page": page, "name": name, "query": query}
    audit.record(session, actor=actor, action="view.saved", subject=row.id, detail=detail)
    return from_object(SavedView, row)


def get(session: Session, view_id: str) -> SavedView | None:
    """Return a view, or None."""
    row = session.get(SavedViewRow, view_id) if is_id(view_id) else None
    return None if row is None else from_object(SavedView, row)


def delete(session: Session, view_id: str, *, actor: str) -> SavedView | None:
    """Delete a view and return it; None if there is no such view."""
    row = session.get(SavedViewRow, view_id) if is_id(view_id) else None
    if row is None:
        return None
    view = from_object(SavedView, row)
    session.delete(row)
    detail = {"page": view.page, "name": view.name, "query": view.query}
    audit.record(session, actor=actor, action="view.deleted", subject=view.id, detail=detail)
    return view
