"""Make a noun's dataclass from its row, a smaller dataclass, or an object in a JSON column."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter

T = TypeVar("T")
SCHEMA_OF = "x-schema-of"
"""The key of a schema that stands for a shape of `documented`, by its number."""
documented: list[Any] = []
"""The shapes that OpenAPI has in the places of objects, which pydantic only knows as objects."""


@dataclass(frozen=True)
class Documented:
    """Documents a field that holds a stored JSON object by the shape that was stored.

    The object is answered as it is stored: without defaults, and whole if its shape is an older
    one's.
    """

    shape: Any

    def __get_pydantic_json_schema__(self, _schema: object, _handler: object) -> dict[str, Any]:
        return schema_of(self.shape)


def schema_of(shape: Any) -> dict[str, Any]:
    """Return a schema that stands for a shape; the OpenAPI document puts the shape in its place."""
    return {SCHEMA_OF: _number(shape)}


@cache
def _number(shape: Any) -> int:
    documented.append(shape)
    return len(documented) - 1


def from_object(shape: type[T], source: object, /, *more: object, **others: Any) -> T:
    """Return the dataclass with the attributes of the same names, and the `others`.

    A source is a row, or a dataclass with fewer fields. Of several, the first that has an attribute
    counts.
    """

    def holder(name: str) -> object:
        # without more sources nothing is looked for: a property may compute
        return next((s for s in (source, *more) if hasattr(s, name)), source) if more else source

    given: Any = shape
    names = {field.name for field in dataclasses.fields(given)}
    copied = {name: getattr(holder(name), name) for name in names - others.keys()}
    return shape(**copied, **others)


def from_json(shape: type[T], stored: Mapping[str, Any]) -> T:
    """Return the dataclass, with those inside it, of an object in a JSON column.

    Members that the dataclass doesn't have are ignored. Raises ValueError for an object that isn't
    of this shape, such as one that another version has stored.
    """
    known: Any = shape
    read: T = _reader(known).validate_python(stored)
    return read


def if_readable(shape: type[T], stored: Mapping[str, Any] | None) -> T | None:
    """Return the dataclass of an object; None without one, or if it isn't of this shape."""
    try:
        return None if stored is None else from_json(shape, stored)
    except ValueError:
        return None


@cache
def _reader(shape: Any) -> TypeAdapter[Any]:
    return TypeAdapter(shape)
