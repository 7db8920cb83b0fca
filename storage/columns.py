"""Column types that read the same on SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, DateTime, Dialect, Uuid
from sqlalchemy.types import TypeDecorator


class UtcTime(TypeDecorator[datetime]):
    """An aware datetime in UTC; SQLite, which has no time zones, stores it without."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """The value to store. Raises ValueError for a naive datetime: nobody could say which hour it means."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"naive datetime {value!r}")
        moment = value.astimezone(UTC)
        return moment.replace(tzinfo=None) if dialect.name == "sqlite" else moment

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """The stored value, aware, in UTC."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Id(Uuid[str]):
    """A UUID as canonical text. SQLite holds 32 digits: putting dashes in is many times faster than making a UUID of each, and a page
    may read ten thousand. (PostgreSQL's driver has a type of its own, which SQLAlchemy puts in the place of this one.)"""

    cache_ok = True

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], str | None] | None:
        """What makes a column's value of a stored one."""
        if dialect.name == "sqlite":
            return _dashed
        made: Callable[[Any], str | None] | None = super().result_processor(dialect, coltype)  # type: ignore[no-untyped-call]  # SQLAlchemy's
        return made


def _dashed(digits: str | None) -> str | None:
    return None if digits is None else f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


IdType = Id(as_uuid=False)
# json rather than jsonb: it keeps the order of the keys, as SQLite does, and is cheaper to write; nothing here searches inside.
JsonType = JSON(none_as_null=True)
