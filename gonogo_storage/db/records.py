"""Make a noun's dataclass from its row, or from an object in a JSON column, field by field."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


def names(shape: Any) -> Iterable[str]:
    """Return the names of a dataclass's fields, in order."""
    fields: Mapping[str, object] = shape.__dataclass_fields__
    return fields


def from_row(shape: type[T], row: object, **others: Any) -> T:
    """Return the dataclass with the row's attributes of the same names, and the `others`."""
    copied = {name: getattr(row, name) for name in names(shape) if name not in others}
    return shape(**copied, **others)


def from_json(shape: type[T], stored: Mapping[str, Any] | None) -> T | None:
    """Return the dataclass with the object's members of the same names; None for None."""
    return None if stored is None else shape(**{name: stored[name] for name in names(shape)})
