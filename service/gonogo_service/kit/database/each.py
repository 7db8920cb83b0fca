"""Statements about many values, which PostgreSQL gets as arrays.

So a statement has the same few words for any number of values. psycopg reads a statement of more
than 4 kB or 50 parameters anew each time, and PostgreSQL plans a hundred parts longer than it runs
them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import (
    ARRAY,
    ColumnElement,
    CompoundSelect,
    Row,
    Select,
    any_,
    bindparam,
    column,
    func,
    literal,
    literal_column,
    select,
    true,
    union_all,
)
from sqlalchemy.orm import Session
from sqlalchemy.types import TypeEngine

from gonogo_service.kit.database.engine import is_postgres

Given = Callable[[str], ColumnElement[Any]]
"""Returns the value of a name in the row that is asked for."""
Ask = Callable[[Given], Select[*tuple[Any, ...]]]
"""Makes the query of one row; always the same function, because its statement is kept."""
Columns = tuple[tuple[str, TypeEngine[Any]], ...]
"""The names and types of the values in a row."""


def of_each(
    session: Session,
    ask: Ask,
    columns: Columns,
    rows: Sequence[Sequence[Any]],
    values: Mapping[str, Any] | None = None,
) -> Sequence[Row[*tuple[Any, ...]]]:
    """Return the results of `ask` for each row; each begins with the place of its row.

    columns: the names and types of a row's values. rows: at least one, and on SQLite at most 500.
    values: further parameters of `ask`. SQLite, which has no LATERAL, gets a part for each row.
    """
    if is_postgres(session):
        arrays = {name: [row[place] for row in rows] for place, (name, _) in enumerate(columns)}
        return session.execute(_lateral(ask, columns), {**arrays, **(values or {})}).all()
    of_rows = {
        f"{name}{place}": value
        for place, row in enumerate(rows)
        for (name, _), value in zip(columns, row, strict=True)
    }
    return session.execute(_union(ask, columns, len(rows)), {**of_rows, **(values or {})}).all()


def among(session: Session, tested: Any, values: Collection[Any]) -> ColumnElement[bool]:
    """Return the condition that a column has one of many values."""
    condition: ColumnElement[bool] = (
        tested == any_(literal(list(values), ARRAY(tested.type)))
        if is_postgres(session)
        else tested.in_(values)
    )
    return condition


@cache  # building a statement takes longer than running it
def _lateral(ask: Ask, columns: Columns) -> Select[*tuple[Any, ...]]:
    arrays = (bindparam(name, type_=ARRAY(type_)) for name, type_ in columns)
    values = (column(name, type_) for name, type_ in columns)
    given = func.unnest(*arrays).table_valued(*values, with_ordinality="place")
    given = given.render_derived(name="given")
    types = dict(columns)
    # as text: a nested query of `ask` would list a column's table in its own FROM
    of_row = ask(lambda name: literal_column(f"given.{name}", types[name])).lateral("of_row")
    place: Any = (given.c.place - literal_column("1")).label("place")
    return select(place, *of_row.c).select_from(given).join(of_row, true())


@cache
def _union(ask: Ask, columns: Columns, rows: int) -> CompoundSelect[*tuple[Any, ...]]:
    types, parts = dict(columns), []
    for number in range(rows):
        place: Any = literal_column(str(number)).label("place")

        def given(name: str, number: int = number) -> ColumnElement[Any]:
            return bindparam(f"{name}{number}", type_=types[name])

        of_row = ask(given).subquery()
        parts.append(select(place, *of_row.c))
    return union_all(*parts)
