"""The rows of a results message, put together from its columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gonogo.judging.columns import SeedColumns


def rows_of(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows with all their outputs, as `columns.in_columns` got them."""
    rows = [dict(row) for row in message["rows"]]
    for part in map(SeedColumns.parse, message["columns"]):
        for place, outputs in zip(part.rows, part.objects(), strict=True):
            rows[place]["outputs"] = outputs
    return rows
