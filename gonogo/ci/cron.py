"""Cron lines in a time zone: compute the next due moment.

It is pure, a moment in and a moment out, except that the zones' rules are read from the system.

A line whose hour is `*` runs by elapsed time: every hour that passes counts. Every other line runs
by the wall clock:

- a time that is skipped when clocks go forward runs once, at the first moment after the gap;
- a time that comes twice when they go back runs once, the first time.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from gonogo.errors import FieldError
from gonogo.fields import did_you_mean

FIELDS = 5
MAX_LENGTH = 200
EXAMPLE = "minute, hour, day of month, month, day of week, such as 30 2 * * MON-FRI"


@dataclass(frozen=True)
class CronLine:
    """A cron line and the time zone of its clock. Make one with `parse`."""

    expression: str
    zone: str

    @classmethod
    def parse(
        cls, expression: str, zone: str, *, fields: tuple[str, str] = ("cron", "timezone")
    ) -> CronLine:
        """Parse and check a line; `fields` are the names of the two values in errors.

        Raises FieldError for an invalid line, a line that is never due, and an unknown zone.
        """
        if len(expression) > MAX_LENGTH or len(expression.split()) != FIELDS:
            raise FieldError(
                fields[0], expression, "must be the five fields of cron", limit=EXAMPLE
            )
        _zone(zone, fields[1])
        line = cls(" ".join(expression.split()), zone)
        try:
            line.after(datetime(2024, 1, 1, tzinfo=UTC))
        except CronSimError as problem:
            raise FieldError(
                fields[0], expression, f"isn't a cron line: {str(problem).lower()}", limit=EXAMPLE
            ) from None
        except StopIteration:
            raise FieldError(
                fields[0], expression, "is never due", limit="a day that exists"
            ) from None
        return line

    def after(self, moment: datetime) -> datetime:
        """Return the first due time later than a time zone aware moment, in UTC."""
        zone = _zone(self.zone, "timezone")
        local = moment.astimezone(zone)
        if self.expression.split()[1] == "*":
            return next(CronSim(self.expression, local)).astimezone(UTC)
        for wall in CronSim(self.expression, local.replace(tzinfo=None)):
            due = _on(wall, zone)
            # a time that isn't later belongs to a doubled hour, and was due the first time already
            if due > moment:
                return due
        raise StopIteration

    def next(self, moment: datetime, count: int) -> list[datetime]:
        """Return the next `count` due times."""
        due_times: list[datetime] = []
        for _ in range(count):
            moment = self.after(moment)
            due_times.append(moment)
        return due_times


def _on(wall: datetime, zone: ZoneInfo) -> datetime:
    """Return the first moment at which the wall clock shows `wall`, or has just passed it."""
    while True:
        moment = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
        if moment.astimezone(zone).replace(tzinfo=None) == wall:
            return moment
        wall += timedelta(minutes=1)


def _zone(name: str, field: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, LookupError):
        raise FieldError(
            field,
            name,
            "unknown time zone" + did_you_mean(name, available_timezones()),
            limit="a name of the IANA database, such as Europe/Berlin",
        ) from None
