"""The view of a list without anything of its own: lines, filters, and where the list goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gonogo_service.kit.database.encoding import timestamp
from gonogo_service.kit.database.paging import Page


@dataclass(frozen=True)
class ListView:
    """A page of a list; `next_url` leads to the next one, or is None."""

    items: tuple[Any, ...]
    filters: Mapping[str, str]
    next: str | None
    next_url: str | None
    at: str | None


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
