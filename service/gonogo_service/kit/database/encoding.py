"""The JSON encoder of database and API, and the storage of non-finite numbers.

JSON and SQL can't hold NaN and infinity. Such a statistic is stored as NULL, beside its kind.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, overload

import orjson


def encode(value: Any, default: Callable[[Any], Any] | None = None) -> str:
    """Return compact JSON text.

    Non-finite floats become null (see `separate`), aware datetimes RFC 3339 in UTC, and enums their
    values. default: makes something plain of what JSON doesn't know.
    """
    return orjson.dumps(
        value, default, option=orjson.OPT_UTC_Z | orjson.OPT_SERIALIZE_NUMPY
    ).decode()


def decode(text: str | bytes) -> Any:
    """Return the values in JSON text.

    Raises ValueError (orjson.JSONDecodeError) for anything else, including the words NaN and
    Infinity.
    """
    return orjson.loads(text)


def kind_of(value: float) -> str:
    """Return the kind of a non-finite number: "nan", "inf" or "-inf"."""
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


def separate(statistics: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the statistics with None for non-finite numbers, and {name: kind} of these.

    Otherwise the databases would differ: SQLite silently stores NaN as NULL, and PostgreSQL's JSON
    refuses it.
    """
    kinds = {
        name: kind_of(value)
        for name, value in statistics.items()
        if isinstance(value, float) and not math.isfinite(value)
    }
    return ({**statistics, **dict.fromkeys(kinds)} if kinds else statistics), kinds


def storable(text: str | None) -> str | None:
    """Return a worker's text without the characters that PostgreSQL refuses.

    These are NUL and lone halves of surrogate pairs.
    """
    return (
        None
        if text is None
        else text.replace("\x00", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()
    )


def utcnow() -> datetime:
    """Return the current time as an aware datetime in UTC."""
    return datetime.now(UTC)


@overload
def timestamp(moment: datetime) -> str: ...


@overload
def timestamp(moment: None) -> None: ...


@overload
def timestamp(moment: datetime | None) -> str | None: ...


def timestamp(moment: datetime | None) -> str | None:
    """Return RFC 3339 text in UTC ("2026-01-31T12:00:00.123456Z"); None for None."""
    return None if moment is None else moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
