"""The one JSON encoder of database and API, and the split of a statistic that JSON and SQL can't
hold into NULL and its kind.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import orjson


def encode(value: Any) -> str:
    """Compact JSON text. Non-finite floats become null (see `separate`), aware datetimes RFC 3339
    in UTC, enums their value.
    """
    return orjson.dumps(value, option=orjson.OPT_UTC_Z | orjson.OPT_SERIALIZE_NUMPY).decode()


def decode(text: str | bytes) -> Any:
    """Values from JSON text. Raises ValueError (orjson.JSONDecodeError) on anything else, the words
    NaN and Infinity included.
    """
    return orjson.loads(text)


def kind_of(value: float) -> str:
    """The word for a non-finite number: "nan", "inf" or "-inf"."""
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


def separate(statistics: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Statistics with every non-finite number as None, and a map from the names of those to their
    kinds.

    The same on both databases: SQLite would store NaN as NULL without a word, PostgreSQL's JSON
    refuses it.
    """
    kinds = {
        name: kind_of(value)
        for name, value in statistics.items()
        if isinstance(value, float) and not math.isfinite(value)
    }
    return ({**statistics, **dict.fromkeys(kinds)} if kinds else statistics), kinds


def storable(text: str | None) -> str | None:
    """Text from a worker without what PostgreSQL refuses: NUL characters, and halves of surrogate
    pairs.
    """
    return (
        None
        if text is None
        else text.replace("\x00", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()
    )


def utcnow() -> datetime:
    """The current time, aware, in UTC."""
    return datetime.now(UTC)


def timestamp(moment: datetime | None) -> str | None:
    """A moment as RFC 3339 text in UTC ("2026-01-31T12:00:00.123456Z"), None stays None."""
    return None if moment is None else moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
