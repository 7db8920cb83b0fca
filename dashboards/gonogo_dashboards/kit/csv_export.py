"""A list's lines as CSV: plain values as columns, one level of parts, and no formulas."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from gonogo_storage.db.encoding import encode

_FORMULAS = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet takes a text that begins with one of these for a formula."""


def text(items: Iterable[Any]) -> str:
    """Return the lines (dataclasses of one class) as CSV with a head; "" for none."""
    rows = [_row("", item, deep=True) for item in items]
    if not rows:
        return ""
    file = io.StringIO()
    columns = dict.fromkeys(name for row in rows for name in row)  # a part may be missing in some
    writer = csv.DictWriter(file, list(columns), lineterminator="\r\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def _row(prefix: str, item: Any, *, deep: bool) -> dict[str, str | int | float | None]:
    row: dict[str, str | int | float | None] = {}
    for field in fields(item):
        value, name = getattr(item, field.name), f"{prefix}{field.name}"
        if isinstance(value, Mapping):
            value = encode(value) if value else ""
        if value is None or isinstance(value, bool | int | float):
            row[name] = value
        elif isinstance(value, str):
            row[name] = f"'{value}" if value.startswith(_FORMULAS) else value
        elif deep and is_dataclass(value):
            row |= _row(f"{name}.", value, deep=False)
    return row
