"""The view of a list without anything of its own: lines, filters, and where the list goes on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any

from sqlalchemy.orm import Session

from gonogo_service.kit import rows
from gonogo_service.kit.database.encoding import timestamp
from gonogo_service.kit.database.paging import Page
from gonogo_service.kit.resource import Resource


@dataclass(frozen=True)
class ListView:
    """A page of a list; `next_url` leads to the next one, or is None."""

    items: tuple[Any, ...]
    filters: Mapping[str, str]
    next: str | None
    next_url: str | None
    at: str | None


def filters_of(
    query: Mapping[str, str],
    names: Collection[str],
    kinds: Mapping[str, Iterable[str]] = MappingProxyType({}),
) -> dict[str, str]:
    """Return the filters that a query gives, without empty ones.

    kinds: the values that a filter may have; one with another value is ignored.
    """
    given = {name: value for name in names if (value := query.get(name, "").strip())}
    for name in given.keys() & kinds:
        if given[name] not in tuple(kinds[name]):
            del given[name]
    return given


def list_view(
    page: Page[Any],
    line: Callable[[Any], Any],
    address: Callable[..., str],
    now: datetime,
    *filters: Mapping[str, str],
) -> ListView:
    """Return the view of a stored page.

    line: returns the line of an item. address: returns the address of the list, with its filters
    where it has any.
    """
    return ListView(
        items=tuple(line(item) for item in page.items),
        filters=filters[0] if filters else {},
        next=page.next,
        next_url=address(*filters, cursor=page.next) if page.next else None,
        at=timestamp(now),
    )


def list_of(
    resource: Resource[Any],
    address: Callable[..., str],
    line: Callable[[Session, Any], Any] | None = None,
) -> Callable[[Session, Mapping[str, str], str | None, int, datetime], ListView]:
    """Return the reader of a resource's list, with the resource's filters; others are ignored.

    line: returns the line of a row; default: the fields that the API's list has of it.
    """
    noun = resource.noun

    def read(
        session: Session, query: Mapping[str, str], cursor: str | None, limit: int, now: datetime
    ) -> ListView:
        given = filters_of(query, noun.filters, noun.kinds)
        page = resource.page(session, **given, limit=limit, cursor=cursor or None)
        filters = (given,) if noun.filters else ()
        shown = line or (lambda _, row: rows.values(resource.line, row))
        return list_view(page, lambda row: shown(session, row), address, now, *filters)

    return read
