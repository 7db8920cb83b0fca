"""Untrusted JSON documents: loaded whole, read leniently where a format allows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gonogo import fields
from gonogo.errors import FieldError
from gonogo.reports.texts import clean
from gonogo.spec import json_text

MAX_LISTS = 1_000_000
MAX_OBJECTS = 1_000_000
MAX_VALUES = 4_000_000
_SHOWN = 60


def load(data: bytes) -> Any:
    """Return the value of a JSON text in UTF-8. Raises FieldError for anything else."""
    check_size(data)
    return decoded(data.removeprefix(json_text.BOM), "file")


def check_size(data: bytes) -> None:
    """Raise FieldError for a JSON text that would become too large: "[]," becomes sixty bytes.

    Brackets and commas are counted, also those within texts.
    """
    for mark, limit, what in (
        (b"[", MAX_LISTS, "lists"),
        (b"{", MAX_OBJECTS, "objects"),
        (b",", MAX_VALUES, "values"),
    ):
        fields.check_count(data.count(mark), limit, "file", f"has too many {what}")


def decoded(data: bytes, path: str) -> Any:
    """Return the value of a short JSON text. Raises FieldError."""
    try:
        return json_text.loads(data)
    except (ValueError, RecursionError) as problem:  # invalid UTF-8 is a ValueError, too
        raise FieldError(path, data[:_SHOWN], f"isn't JSON: {clean(problem, 200)}") from None


def name(value: object, path: str) -> str:
    """Return the name of a test. Raises FieldError for a missing, a blank or another one."""
    if not isinstance(value, str) or not value.strip():
        raise FieldError(path, value, "must be text", limit="the name of a test")
    return value


def listed(value: object, path: str, most: int, what: str = "") -> list[Any]:
    """Return a list of at most so many values. Raises FieldError."""
    if not isinstance(value, list) or len(value) > most:
        given = len(value) if isinstance(value, list) else value
        raise FieldError(path, given, f"must be a list{what}", limit=f"at most {most}")
    return value


def text(value: object, most: int) -> str | None:
    """Return text, cleaned and cut; a number as it is written; None for anything else and ""."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    return clean(value, most) if not isinstance(value, int) or abs(value) < 2**63 else None


def objects(value: object) -> list[Mapping[str, Any]]:
    """Return the objects of a list; an empty list if the value isn't one."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
