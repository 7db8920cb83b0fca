"""A list's lines as CSV: plain values as columns, one level of parts, and no formulas."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from types import NoneType, UnionType
from typing import Any, Literal, TypeGuard, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel

from gonogo_service.kit import rows
from gonogo_service.kit.database.base import Base
from gonogo_service.kit.database.encoding import timestamp

_PLAIN = (str, int, float, datetime, Mapping)


def text(line: type, items: Iterable[Any]) -> str:
    """Return the lines (of the class `line`: a dataclass, or an answer of the API) as CSV.

    The header depends on the class alone, so that a script finds the same columns each time, also
    in an empty list. Lists in a line, such as its findings, are left out.
    """
    if issubclass(line, BaseModel):
        return rows.as_csv(line, items)
    paths = list(_paths(line, deep=True))
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\r\n")
    writer.writerow(".".join(path) for path in paths)
    writer.writerows([_cell(item, path) for path in paths] for item in items)
    return file.getvalue()


def _paths(line: type, *, deep: bool) -> Iterator[tuple[str, ...]]:
    """Yield the attributes that become columns; of a part ("after"), those of its own fields."""
    for name, hint in _fields(line).items():
        if get_origin(hint) in {Union, UnionType}:
            hint = next(kind for kind in get_args(hint) if kind is not NoneType)
        origin = get_origin(hint) or hint
        if origin is Literal or (isinstance(origin, type) and issubclass(origin, _PLAIN)):
            yield (name,)
        elif deep and isinstance(origin, type) and (is_dataclass(origin) or _is_row(origin)):
            yield from ((name, *path) for path in _paths(origin, deep=False))


def _fields(line: type) -> Mapping[str, Any]:
    """Return the types of a class's fields: those of a dataclass, or of the answer for a row."""
    if _is_row(line):
        return {name: field.annotation for name, field in rows.answer_of(line).model_fields.items()}
    hints = get_type_hints(line)
    return {field.name: hints[field.name] for field in fields(line)}


def _is_row(line: type) -> TypeGuard[type[Base]]:
    return issubclass(line, Base)


def _cell(item: Any, path: tuple[str, ...]) -> object:
    value = item
    for name in path:
        value = None if value is None else getattr(value, name)
    return timestamp(value) if isinstance(value, datetime) else rows.cell(value)
