"""A page of a list, and the opaque cursor to the next one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sqlalchemy import Select
from sqlalchemy.orm import InstrumentedAttribute, Session

from gonogo_service.kit.database.ids import is_id

T = TypeVar("T")


@dataclass(frozen=True)
class Page(Generic[T]):
    """Items and the cursor that continues after them (None: there are no more)."""

    items: tuple[T, ...]
    next: str | None

    @classmethod
    def cut(cls, items: Sequence[T], limit: int, cursor: Callable[[T], str]) -> Page[T]:
        """Return the first `limit` of items that a query read with limit + 1."""
        return cls(tuple(items[:limit]), cursor(items[limit - 1]) if len(items) > limit else None)


class BadCursor(ValueError):
    """The cursor is not one that this list returned."""


def newest_first(
    session: Session,
    query: Select[*tuple[Any, ...]],
    key: InstrumentedAttribute[str],
    make: Callable[..., T],
    *,
    limit: int,
    cursor: str | None,
    filters: Mapping[Any, object] | None = None,
) -> Page[T]:
    """Return a page of a list by id. Raises BadCursor.

    The query's first column is the row that has the `key`. `make` returns the item of a result's
    values. `filters` maps columns to values; None allows any value.
    """
    if cursor is not None:
        if not is_id(cursor):
            raise BadCursor(cursor)
        query = query.where(key < cursor)
    wheres = [column == value for column, value in (filters or {}).items() if value is not None]
    query = query.where(*wheres).order_by(key.desc()).limit(limit + 1)
    page = Page.cut(
        session.execute(query).all(), limit, lambda values: str(getattr(values[0], key.key))
    )
    return Page(tuple(make(*values) for values in page.items), page.next)


def numbers(cursor: str | None, count: int) -> tuple[int, ...] | None:
    """Return the integers of a cursor such as "12" or "7.1"; None for None. Raises BadCursor."""
    if cursor is None:
        return None
    parts = cursor.split(".")
    if len(parts) != count or not all(
        part.isascii() and part.isdigit() and len(part) < 19 for part in parts
    ):
        raise BadCursor(cursor)
    return tuple(int(part) for part in parts)


def batched(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield the items in parts of at most `size`, because statements have limits."""
    for start in range(0, len(items), size):
        yield items[start : start + size]
