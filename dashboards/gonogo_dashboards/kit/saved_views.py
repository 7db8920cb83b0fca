"""The saved views of a list: links with their filters, and what could be saved."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo_dashboards.kit import list_filters
from gonogo_storage.catalogue import saved_views as stored


@dataclass(frozen=True)
class ViewLine:
    """A saved view: its page, and the endpoint that deletes it."""

    id: str
    name: str
    url: str
    chosen: bool
    created_by: str
    delete_url: str


@dataclass(frozen=True)
class SavedViews:
    """The views of a list; `query` are the present filters, "" for none."""

    page: str
    items: tuple[ViewLine, ...]
    query: str

    @property
    def chosen(self) -> ViewLine | None:
        """Return the view with the present filters."""
        return next((line for line in self.items if line.chosen), None)


def read(session: Session, page: str, query: str) -> SavedViews:
    """Return the views of a list that is shown with a query."""
    filters = list_filters.accepted(page, parse_qsl(query))
    given = sorted(filters)
    return SavedViews(
        page,
        tuple(
            ViewLine(
                view.id,
                view.name,
                urls.view(view.page, view.query),
                sorted(parse_qsl(view.query)) == given,
                view.created_by,
                urls.delete_view(view.id),
            )
            for view in stored.list_(session, page)
        ),
        urlencode(filters),
    )
