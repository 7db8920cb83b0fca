"""The rows of a noun: a page of a list by its filters, and one by its key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import InstrumentedAttribute, Session
from sqlalchemy.sql.base import ExecutableOption

from gonogo.cli.kit.noun import Noun
from gonogo_service.kit.answers import missing
from gonogo_service.kit.database.base import Base
from gonogo_service.kit.database.columns import IdType
from gonogo_service.kit.database.ids import is_id
from gonogo_service.kit.database.paging import BadCursor, Page
from gonogo_service.kit.principals import Principal
from gonogo_service.kit.problems import BadField, Problem

R = TypeVar("R", bound=Base)
MAX_NAMES = 2000
"""Things among which a misspelled name is looked for."""


class Listing(Generic[R]):
    """The rows of a noun: by name, or the newest first where their key is an id.

    Archived rows are hidden, unless the list has the filter `archived`.
    """

    def __init__(
        self,
        noun: Noun,
        row: type[R],
        *,
        where: Mapping[str, Any] | None = None,
        find: Callable[[str], R | None] = lambda key: None,
        more: Callable[[], Iterable[R]] = tuple,
        options: Sequence[ExecutableOption] = (),
        only: Sequence[ColumnElement[bool]] = (),
        complete: Callable[[Session, Sequence[R]], object] = lambda session, rows: None,
    ) -> None:
        """Make the listing of a table.

        where: filter -> its column, or a function from its value to a condition; default: the
        column of that name. find: returns what is not stored, such as a built-in build, by its key;
        more: returns all of these for lists. options: SQLAlchemy's, of the query of a list. only:
        conditions of all rows. complete: reads what the rows of a page need, for all together.
        """
        self.noun, self.row = noun, row
        self.find, self._more, self._options, self._complete = find, more, options, complete
        self._where = dict(where or {})
        self.key: InstrumentedAttribute[str] = getattr(row, noun.key)
        self.by_id = self.key.type is IdType
        hides = hasattr(row, "archived_at") and "archived" not in noun.filters
        columns: Any = row
        self._in_use = [*only, *([columns.archived_at.is_(None)] if hides else [])]

    def page(
        self, session: Session, *, limit: int = 50, cursor: str | None = None, **filters: Any
    ) -> Page[R]:
        """Return a page of the list: by name, or the newest first. Raises BadCursor."""
        conditions = self.conditions(filters)
        if conditions is None:
            return Page((), None)
        query = select(self.row).options(*self._options).where(*conditions).limit(limit + 1)
        if self.by_id and cursor is not None and not is_id(cursor):
            raise BadCursor(cursor)
        if cursor is not None:
            query = query.where(self.key < cursor if self.by_id else self.key > cursor)
        query = query.order_by(self.key.desc() if self.by_id else self.key)
        rows = [*session.scalars(query), *self._unstored(filters, cursor)]
        if not self.by_id:
            rows.sort(key=self.key_of)
        self._complete(session, rows)
        return Page.cut(rows, limit, self.key_of)

    def get(self, session: Session, key: str, *, lock: bool = False) -> R | None:
        """Return the row of this key, which is in use; None if there is none."""
        if self.by_id and not is_id(key):
            return None
        query = select(self.row).where(self.key == key, *self._in_use)
        if lock:
            query = query.with_for_update().execution_options(populate_existing=True)
        return session.scalar(query)

    def changeable(self, session: Session, who: Principal, key: str) -> R:
        """Lock the row of this key, and return it. Raises Problem for one that is built in."""
        if self.find(key) is not None:
            limit = f"a registered {self.noun.one}"
            raise BadField(self.noun.one, key, "is built in", limit=limit)
        return self.require(session, who, key, lock=True)

    def require(self, session: Session, who: Principal, key: str, *, lock: bool = False) -> R:
        """Return the row of this key. Raises Problem 404, which says what was meant."""
        row = self.get(session, key, lock=lock)
        if row is None:
            raise self.missing(session, who, key)
        return row

    def missing(self, session: Session, who: Principal, key: str) -> Problem:
        """Return a 404. A limited token doesn't learn other names."""
        names: Iterable[str] = ()
        if not self.by_id and not who.bounded:
            page = self.page(session, limit=MAX_NAMES)
            names = map(self.key_of, page.items)
        return missing(self.noun.one, key, names)

    def key_of(self, row: R) -> str:
        """Return the key of a row."""
        return str(getattr(row, self.noun.key))

    def conditions(self, filters: Mapping[str, Any]) -> list[ColumnElement[bool]] | None:
        """Return the conditions of filters in SQL; None where a value can't be anything's."""
        conditions = list(self._in_use)
        for name, value in filters.items():
            column = self._where.get(name) or getattr(self.row, name)
            if value is None:
                continue
            if not isinstance(column, InstrumentedAttribute):
                conditions.append(column(value))
            elif column.type is IdType and not is_id(value):
                return None
            else:
                conditions.append(column == value)
        return conditions

    def _unstored(self, filters: Mapping[str, Any], cursor: str | None) -> Iterator[R]:
        for row in self._more():
            after = cursor is None or self.key_of(row) > cursor
            given = {name: value for name, value in filters.items() if value is not None}
            if after and all(getattr(row, name) == value for name, value in given.items()):
                yield row
