"""A page of a list, and the opaque cursor to the next one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

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
