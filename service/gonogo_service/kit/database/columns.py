"""Column types that behave the same on SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property
from typing import Any, TypeVar

from pydantic import TypeAdapter
from sqlalchemy import JSON, DateTime, Dialect, SmallInteger, Text, Uuid
from sqlalchemy.types import TypeDecorator

from gonogo.spec.verdicts import Explanation, Verdict

SECRET: dict[str, Any] = {"secret": True}
"""`mapped_column(info=SECRET)`: no answer, file or audit entry has this column."""
INTERNAL: dict[str, Any] = {"internal": True}
"""`mapped_column(info=INTERNAL)`: no secret, but of no use to who asks."""


TextType = Text().with_variant(Text(collation="C"), "postgresql")
"""Text in the order of its characters' codes, as Python and SQLite have it.

Lists go on after a name, so an order of words by the database's language would lose some.
"""


class UtcTime(TypeDecorator[datetime]):
    """An aware datetime in UTC; SQLite, which has no time zones, stores it without one."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Return the value to store.

        Raises ValueError for a naive datetime, because its time zone is unknown.
        """
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"naive datetime {value!r}; needs: a time zone")
        moment = value.astimezone(UTC)
        return moment.replace(tzinfo=None) if dialect.name == "sqlite" else moment

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Return the stored value as an aware datetime in UTC."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)

    def result_processor(
        self, dialect: Dialect, coltype: object
    ) -> Callable[[Any], datetime | None] | None:
        """Return the function from the driver's value to an aware datetime.

        SQLite's text is read in one step, because a page reads thousands of moments.
        """
        if dialect.name == "sqlite":
            return _utc_of_text
        processor: Callable[[Any], datetime | None] | None = super().result_processor(
            dialect, coltype
        )
        return processor


def _utc_of_text(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(f"{text}+00:00")


class Code(TypeDecorator[str]):
    """One of a few words, stored as its place among them; a table has a million of them."""

    impl = SmallInteger
    cache_ok = True

    def __init__(self, words: tuple[str, ...]) -> None:
        super().__init__()
        self.words = words
        self._codes: dict[str | None, int | None] = {
            None: None,
            **{word: code for code, word in enumerate(words)},
        }

    def process_bind_param(self, value: str | None, dialect: Dialect) -> int | None:
        """Return the number to store. Raises ValueError for an unknown word."""
        if value not in self._codes:
            raise ValueError(f"unknown word {value!r}; allowed: {', '.join(self.words)}")
        return self._codes[value]

    def result_processor(
        self, dialect: Dialect, coltype: object
    ) -> Callable[[int | None], str | None]:
        """Return the function from a stored number to its word; a page reads thousands."""
        words: dict[int | None, str | None] = {None: None, **dict(enumerate(self.words))}
        return words.__getitem__


Word = TypeVar("Word", bound=StrEnum)


class WordOf(TypeDecorator[Word]):
    """A word of an enum, stored as its text."""

    impl = TextType
    cache_ok = True

    def __init__(self, words: type[Word]) -> None:
        super().__init__()
        self.words = words

    def process_result_value(self, value: str | None, dialect: Dialect) -> Word | None:
        """Return the member of the enum."""
        return None if value is None else self.words(value)


class Stored(TypeDecorator[Any]):
    """A dataclass, stored as a JSON object; members that it lacks are ignored.

    lenient: an object of another version is None, where it otherwise raises ValueError.
    """

    impl = JSON(none_as_null=True)
    cache_ok = True

    def __init__(self, shape: Any, *, lenient: bool = False) -> None:
        super().__init__(none_as_null=True)
        self.shape, self.lenient = shape, lenient

    @cached_property
    def _reader(self) -> TypeAdapter[Any]:
        return TypeAdapter(self.shape)

    def coerce_compared_value(self, op: Any, value: Any) -> Any:
        """Return the type of a member, as that of plain JSON."""
        return self.impl_instance.coerce_compared_value(op, value)

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        """Return the dataclass."""
        try:
            return None if value is None else self._reader.validate_python(value)
        except ValueError:
            if self.lenient:
                return None
            raise


class _Id(Uuid[str]):
    """A UUID as text.

    SQLite has no UUID type and stores 32 digits. Reading only inserts the dashes instead of parsing
    them, because a page reads thousands of ids.
    """

    cache_ok = True

    def __init__(self) -> None:
        super().__init__(as_uuid=False)

    def result_processor(
        self, dialect: Dialect, coltype: object
    ) -> Callable[[Any], str | None] | None:
        """Return the function from the driver's value to text with dashes."""
        if self.native_uuid and dialect.supports_native_uuid:
            processor: Callable[[Any], str | None] | None = super().result_processor(
                dialect, coltype
            )  # type: ignore[no-untyped-call]
            return processor
        return _with_dashes


def _with_dashes(digits: str | None) -> str | None:
    return (
        None
        if digits is None
        else f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
    )


IdType = _Id()
# json rather than jsonb: it keeps the order of keys, as SQLite does, and is cheaper to write. No
# query searches inside it.
JsonType = JSON(none_as_null=True)
# These orders are stored, so they only ever grow at their ends. Verdicts start worst first, and
# queries sort by their numbers.
VERDICTS = tuple(verdict.value for verdict in Verdict)
EXPLANATIONS = tuple(explanation.value for explanation in Explanation)
VerdictType, ExplanationType = Code(VERDICTS), Code(EXPLANATIONS)
