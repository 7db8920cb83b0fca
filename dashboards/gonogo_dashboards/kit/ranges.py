"""The time range of a page, as the query's `range` names it: 24 hours, 7, 30 or 90 days, or all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

PARAMETER = "range"
RANGES: Mapping[str, tuple[str, timedelta | None]] = {
    "1d": ("24 hours", timedelta(days=1)),
    "7d": ("7 days", timedelta(days=7)),
    "30d": ("30 days", timedelta(days=30)),
    "90d": ("90 days", timedelta(days=90)),
    "all": ("All", None),
}
"""The label and the length of each range."""


@dataclass(frozen=True)
class Choice:
    """A range or another value to choose; `url` is the page with it."""

    value: str
    label: str
    url: str
    chosen: bool


@dataclass(frozen=True)
class Range:
    """The range of a page: what began at or after `since`; None is everything."""

    value: str
    since: datetime | None
    choices: tuple[Choice, ...]

    @property
    def label(self) -> str:
        """Return the range in words: "30 days"."""
        return RANGES[self.value][0].lower()

    @property
    def days(self) -> int | None:
        """Return the number of days, None for everything."""
        length = RANGES[self.value][1]
        return None if length is None else length.days


def of(
    query: Mapping[str, str],
    now: datetime,
    url: Callable[[str | None], str],
    *,
    default: str = "all",
    allowed: tuple[str, ...] = tuple(RANGES),
) -> Range:
    """Return the range that the query names, else the default one.

    url: returns the page's address with a range; None leaves it out.
    """
    given = query.get(PARAMETER, "")
    value = given if given in allowed else default
    length = RANGES[value][1]
    return Range(
        value,
        None if length is None else now - length,
        tuple(
            Choice(name, RANGES[name][0], url(None if name == default else name), name == value)
            for name in allowed
        ),
    )
