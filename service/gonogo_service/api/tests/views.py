"""Saved views: named filters of the pages' lists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal
from urllib.parse import parse_qsl, urlencode

from pydantic import Field

from gonogo import urls
from gonogo_dashboards.kit import list_filters
from gonogo_service.access.context import Ctx, Reader, Submitter
from gonogo_service.kit.answers import extend_page, make_router, missing
from gonogo_service.kit.problems import BadField
from gonogo_service.kit.strict import Strict
from gonogo_storage.catalogue import saved_views as stored
from gonogo_storage.catalogue.saved_views import SavedView
from gonogo_storage.db.encoding import utcnow
from gonogo_storage.db.paging import Page
from gonogo_storage.db.records import from_object

router = make_router("views")
List = Literal["devices", "flags", "jobs", "matrix", "tests"]
MAX_QUERY = 2000


class ViewIn(Strict):
    """A view to save."""

    page: Annotated[List, Field(description="The list that it filters")]
    name: str = Field(min_length=1, max_length=60)
    query: str = Field(
        max_length=MAX_QUERY, description='Of the page\'s address, such as "standing=hollow"'
    )


@dataclass(frozen=True)
class ViewLinks:
    """The page with the view's filters."""

    page: str


@dataclass(frozen=True)
class ViewOut(SavedView):
    """A saved view with its page."""

    links: ViewLinks


@router.get("/views", summary="List saved views")
def list_(context: Ctx, who: Reader, page: List | None = None) -> Page[ViewOut]:
    """List the saved views of all lists, or of one `page`, by name."""
    with context.reading() as session:
        return extend_page(Page(stored.list_(session, page), None), _with_links)


@router.get("/views/{view_id}", summary="Show a saved view")
def look(context: Ctx, who: Reader, view_id: str) -> ViewOut:
    """Show a saved view with the address of its page."""
    with context.reading() as session:
        view = stored.get(session, view_id)
    if view is None:
        raise missing("view", view_id)
    return _with_links(view)


@router.post("/views", status_code=201, summary="Save a view")
def save(context: Ctx, who: Submitter, body: ViewIn) -> ViewOut:
    """Save the filters of a list under a name, for everybody; the same name replaces a view.

    A filter that the list would ignore is refused, so that no view shows more than its name says.
    """
    name = " ".join(body.name.split())
    if not name:
        raise BadField("name", body.name, "is blank", limit="text")
    filters = [
        (field, value)
        for field, value in parse_qsl(body.query.removeprefix("?"))
        if field != "cursor"
    ]
    if not filters:
        raise BadField("query", body.query, "filters nothing", limit='such as "standing=hollow"')
    list_filters.check(body.page, filters)
    with context.session() as session:
        query = urlencode(filters)
        saved = stored.save(session, body.page, name, query, actor=who.actor, now=utcnow())
        return _with_links(saved)


@router.delete("/views/{view_id}", summary="Delete a saved view")
def delete(context: Ctx, who: Submitter, view_id: str) -> ViewOut:
    """Delete a saved view, for everybody."""
    with context.session() as session:
        deleted = stored.delete(session, view_id, actor=who.actor)
    if deleted is None:
        raise missing("view", view_id)
    return _with_links(deleted)


def _with_links(view: SavedView) -> ViewOut:
    return from_object(ViewOut, view, links=ViewLinks(urls.view(view.page, view.query)))
