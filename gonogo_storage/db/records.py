"""Make a noun's dataclass from its row, a smaller dataclass, or an object in a JSON column."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from gonogo_storage.db.base import Base

T = TypeVar("T")


def from_object(shape: type[T], source: object, /, **others: Any) -> T:
    """Return the dataclass with the attributes of the same names, and the `others`.

    The source is a row, or a dataclass with fewer fields.
    """
    copied = {name: getattr(source, name) for name in _names(shape) if name not in others}
    return shape(**copied, **others)


def from_json(shape: type[T], stored: Mapping[str, Any] | None) -> T | None:
    """Return the dataclass with the object's members of the same names; None for None."""
    return None if stored is None else shape(**{name: stored[name] for name in _names(shape)})


def as_columns(table: type[Base], source: object) -> dict[str, Any]:
    """Return the values of the dataclass's fields that have a column of the same name."""
    columns = table.__table__.columns
    return {name: getattr(source, name) for name in _names(type(source)) if name in columns}


def _names(shape: Any) -> Iterable[str]:
    """Return the names of a dataclass's fields, in order."""
    fields: Mapping[str, object] = shape.__dataclass_fields__
    return fields
