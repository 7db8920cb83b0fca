"""JSON documents of strangers: loaded whole, read leniently where a format leaves freedom."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gonogo.errors import FieldError
from gonogo.reports.texts import clean

MOST_LISTS = 1_000_000
MOST_OBJECTS = 1_000_000
MOST_VALUES = 4_000_000
_SHOWN = 60


def load(data: bytes) -> Any:
    """Return the value of a JSON text in UTF-8. Raises FieldError for anything else.

    Marks are counted first, those within texts, too: "[]," takes three bytes and becomes sixty.
    """
    for mark, most, what in (
        (b"[", MOST_LISTS, "lists"),
        (b"{", MOST_OBJECTS, "objects"),
        (b",", MOST_VALUES, "values"),
    ):
        if (number := data.count(mark)) > most:
            raise FieldError("file", number, f"has too many {what}", limit=str(most))
    try:
        return json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as problem:  # what isn't UTF-8 is a ValueError, too
        raise FieldError("file", data[:_SHOWN], f"is no JSON: {clean(problem, 200)}") from None


def text(value: object, most: int) -> str | None:
    """Text, cleaned and cut; a number as it is written; None for anything else and for nothing."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    return clean(value, most) if not isinstance(value, int) or abs(value) < 2**63 else None


def objects(value: object) -> list[Mapping[str, Any]]:
    """Return the objects of a list; none where there is no list."""
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []
