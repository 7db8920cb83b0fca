"""A test's roll-ups, summed over any of their axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo.flakiness.rates import Outcome, Rate, rate
from gonogo_service.kit.database.records import from_object
from gonogo_service.results.rollups.tallies import WHOLE, Tally, total
from gonogo_service.results.rows import DayRollupRow


@dataclass(frozen=True)
class Rollup(Tally):
    """One cell of a table over the requested AXES, with sums over all other axes.

    It has the sums of whole seeds, and of each output.
    """

    place: Mapping[str, Any] = field(default_factory=dict)
    """Requested axis -> value: text, but an int for build_sequence and a date for day."""
    outputs: Mapping[str, Tally] = field(default_factory=dict)

    @property
    def duration_ms(self) -> float:
        """The total time of all seeds."""
        return self.duration_us / 1000

    def rates(self) -> tuple[Rate, Rate]:
        """Return the rate of failures, and that of hangs, crashes and errors.

        The first is of the runs that gave a result, the second of all runs.
        """
        failed, passed, lost = (
            self.outcomes.get(outcome.value, 0)
            for outcome in (Outcome.failed, Outcome.passed, Outcome.infrastructure)
        )
        return rate(failed, failed + passed), rate(lost, lost + failed + passed)


def of_test(session: Session, test_key: str, by: Sequence[str] = ()) -> list[Rollup]:
    """Return a test's sums: one Rollup per existing combination of the axes `by`, in order.

    Other axes are summed over; without `by` there is at most one Rollup.
    """
    table = DayRollupRow
    query = select(*(getattr(table, name) for name in by), table.output, *Tally.of(table))
    query = query.where(table.test_key == test_key, table.shadow.is_(False))
    cells: dict[tuple[Any, ...], dict[str, list[Tally]]] = {}
    for row in session.execute(query):
        cell = cells.setdefault(tuple(row)[: len(by)], {})
        cell.setdefault(row.output, []).append(Tally.stored(row))
    rollups = []
    for place in sorted(cells):
        parts = {output: total(cells[place][output]) for output in sorted(cells[place])}
        outputs = {name: tally for name, tally in parts.items() if name != WHOLE}
        of_place = dict(zip(by, place, strict=True))
        whole = parts.get(WHOLE, Tally())
        rollups.append(from_object(Rollup, whole, place=of_place, outputs=outputs))
    return rollups
