"""The answers of mapped rows: Pydantic reads a row itself, and sees no column that is a secret."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, ClassVar, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model
from sqlalchemy import inspect
from sqlalchemy.ext.associationproxy import AssociationProxy
from sqlalchemy.orm import Mapped

from gonogo.reports.table import as_text
from gonogo_service.kit.database.base import Base
from gonogo_service.kit.database.columns import INTERNAL, SECRET
from gonogo_service.kit.database.encoding import encode


class Answer(BaseModel):
    """The answer of the API about one thing: its fields are read from a row's attributes."""

    model_config = ConfigDict(from_attributes=True)


def _info(column: Any) -> Any:
    """Return the mark of a column; None for an expression, which has none."""
    return getattr(column, "info", None)


@cache
def secrets_of(row: type[Base]) -> frozenset[str]:
    """Return the names of the attributes that no answer may have."""
    columns = inspect(row).column_attrs
    return frozenset(column.key for column in columns if _info(column.columns[0]) == SECRET)


@cache
def answer_of(row: type[Base]) -> type[Answer]:
    """Return the answer for a row: its columns with their `doc`, but for SECRET and INTERNAL ones.

    Its name is that of the row's class without "Row". A constant with an answer is declared `Any`
    where it is part of a type, such as `Page[LISTED]`: mypy can't know a class made at run time.
    """
    return extended_answer(row, row.__name__.removesuffix("Row"))


def extended_answer(
    row: type[Base], name: str, *, without: Iterable[str] = (), **more: Any
) -> type[Answer]:
    """Return the answer for a row with `more` attributes: name -> type, or (type, description).

    It has the columns, and what else the class annotates: attributes of a related row, and those
    that its store sets. without: names that are left out.
    """
    hints = get_type_hints(row, include_extras=True)
    fields: dict[str, Any] = {}
    for column in inspect(row).column_attrs:
        stored = column.columns[0]
        if column.key not in without and _info(stored) not in (SECRET, INTERNAL):
            (kind,) = get_args(hints[column.key])
            fields[column.key] = (kind, Field(description=getattr(stored, "doc", None)))
    for key, kind in hints.items():
        if key.startswith("_") or key in without or get_origin(kind) in (Mapped, ClassVar):
            continue
        known = get_args(kind)[0] if get_origin(kind) is AssociationProxy else kind
        fields.setdefault(key, (known, Field()))
    for key, given in more.items():
        kind, text = given if isinstance(given, tuple) else (given, None)
        fields[key] = (kind, Field(description=text))
    answer: type[Answer] = create_model(name, __base__=Answer, __doc__=row.__doc__, **fields)
    return answer


def values(answer: type[BaseModel], row: object, **more: Any) -> dict[str, Any]:
    """Return the fields of a row's answer; `more` are those that the row itself doesn't have."""
    names = answer.model_fields.keys() - more.keys()
    return {name: getattr(row, name) for name in names} | more


def plain(row: Any) -> dict[str, Any]:
    """Return the columns of a row that an answer may have. Raises TypeError for anything else."""
    if not isinstance(row, Base):
        raise TypeError(f"{type(row).__name__} is no row")
    return values(answer_of(type(row)), row)


def as_csv(answer: type[BaseModel], items: Iterable[Any]) -> str:
    """Return the items of a list as CSV: a column per field, lists and objects as JSON."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\r\n")
    writer.writerow(answer.model_fields)
    for item in items:
        record = answer.model_validate(item).model_dump(mode="json")
        writer.writerow(map(cell, record.values()))
    return file.getvalue()


def cell(value: Any) -> object:
    """Return a value in a column of CSV: lists and objects as JSON, "" for empty ones."""
    if isinstance(value, Mapping | list):
        return encode(value) if value else ""
    return as_text(value) if isinstance(value, str) else value
