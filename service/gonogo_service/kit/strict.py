"""Strict reading of bodies: no coercion and no unknown fields; and the types of their fields.

The command reads this module in a bare install.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, AwareDatetime, BeforeValidator, ConfigDict, Field

from gonogo.spec.validation import Model


def _is_text(value: object) -> object:
    # pydantic takes a number for seconds since 1970, also one in a text
    if not isinstance(value, str) or "-" not in value[1:]:
        raise ValueError("must be a time as text, for example: 2026-01-31T12:00:00Z")
    return value


def _in_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("must be within the years 1 to 9999 in UTC") from None


NAME = r"^[A-Za-z0-9][A-Za-z0-9._+/@-]*$"
WORD = r"^[a-z0-9][a-z0-9_-]*$"
MAX_LABELS = 32
MAX_BUILDS = 100
Name = Annotated[str, Field(pattern=NAME, max_length=200)]
Word = Annotated[str, Field(pattern=WORD, max_length=64)]
Label = Annotated[str, Field(pattern=NAME, max_length=64)]
Labels = Annotated[dict[Label, Annotated[str, Field(max_length=200)]], Field(max_length=MAX_LABELS)]
Builds = Annotated[list[Name], Field(max_length=MAX_BUILDS)]
Moment = Annotated[
    AwareDatetime, Field(strict=False), BeforeValidator(_is_text), AfterValidator(_in_utc)
]
"""A time in a body: RFC 3339 with a time zone, converted to UTC."""


class Strict(Model):
    """A request's body: unknown fields are rejected by name, and text is never read as a number."""

    model_config = ConfigDict(defer_build=False)  # a server builds when it starts
