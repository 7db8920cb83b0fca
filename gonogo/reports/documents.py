"""Untrusted JSON documents: loaded whole, read leniently where a format allows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gonogo.errors import FieldError
from gonogo.reports.texts import clean
from gonogo.spec import json_text

MAX_LISTS = 1_000_000
MAX_OBJECTS = 1_000_000
MAX_VALUES = 4_000_000
_SHOWN = 60


def load(data: bytes) -> Any:
    """Return the value of a JSON text in UTF-8. Raises FieldError for anything else.

    Brackets and commas are counted first, also those within texts: "[]," takes three bytes and
    becomes sixty.
    """
    for mark, limit, what in (
        (b"[", MAX_LISTS, "lists"),
        (b"{", MAX_OBJECTS, "objects"),
        (b",", MAX_VALUES, "values"),
    ):
        if (number := data.count(mark)) > limit:
            raise FieldError("file", number, f"has too many {what}", limit=str(limit))
    try:
        return json_text.loads(data.removeprefix(json_text.BOM))
    except (ValueError, RecursionError) as problem:  # invalid UTF-8 is a ValueError, too
        raise FieldError("file", data[:_SHOWN], f"isn't JSON: {clean(problem, 200)}") from None


def text(value: object, most: int) -> str | None:
    """Return text, cleaned and cut; a number as it is written; None for anything else and ""."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    return clean(value, most) if not isinstance(value, int) or abs(value) < 2**63 else None


def objects(value: object) -> list[Mapping[str, Any]]:
    """Return the objects of a list; an empty list if the value isn't one."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
