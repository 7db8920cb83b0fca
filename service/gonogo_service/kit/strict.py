"""Strict reading of bodies: no coercion and no unknown fields."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, AwareDatetime, BeforeValidator, ConfigDict, Field

from gonogo.spec.validation import Model


def _is_text(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError("must be a time as text, for example: 2026-01-31T12:00:00Z")
    return value


def _in_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("must be within the years 1 to 9999 in UTC") from None


Moment = Annotated[
    AwareDatetime, Field(strict=False), BeforeValidator(_is_text), AfterValidator(_in_utc)
]
"""A time in a body: RFC 3339 with a time zone, converted to UTC."""


class Strict(Model):
    """A request's body: unknown fields are rejected by name, and text is never read as a number."""

    model_config = ConfigDict(defer_build=False)  # a server builds when it starts
