"""Roll-ups: what a test did per day, build, device and context. Kept by ingest with the rows, read
by pages.

The rule that everything rests on: the roll-ups hold a job's rows of arrival 1 to `rolled.upto`,
each once. Whoever changes roll-ups or `upto` holds the lock of the test (after that of the job, if
it needs both): two ingests of different jobs of a test wait for each other here, and lose nothing.
Jobs that compare two builds have sums of their own only: their verdicts aren't about float64.

The day is that of the transaction that stored the row, in UTC, by the clock of the process that
stored it. The job's `progress` event of that transaction keeps it, so a rebuild finds the same day.
A clock that goes back puts rows into an earlier day, and loses none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo.flakiness.outcomes import Outcome
from gonogo.flakiness.sketches import Sketch
from gonogo_storage.db import dialect
from gonogo_storage.db.ids import is_id
from gonogo_storage.rollups.tallies import WHOLE, Tally, tallies, total
from gonogo_storage.rollups.variants import context_name
from gonogo_storage.tables import DayRollupRow, JobRow, JobTallyRow, RolledRow

if TYPE_CHECKING:
    from gonogo.flakiness.rates import Rate

AXES = (
    "executor",
    "build",
    "branch",
    "build_sequence",
    "arch",
    "board",
    "context",
    "device",
    "day",
)
_OF_JOB = ("test_key", "executor", "build", "branch", "build_sequence", "arch", "board")
ON_JOB = ("id", *_OF_JOB, "context", "reference")
"""Columns of a job that `merge` reads."""
_KEY = ("test_key", *AXES, "output")
_ROOM = 0x676F6E72  # "gonr": the room of these locks
SHARES = (0.01, 0.1, 0.5, 0.9, 0.99, 1.0)


@dataclass(frozen=True)
class Sums:
    """Counts and quantiles: of whole seeds, or of one output of them."""

    tally: Tally

    @property
    def seeds(self) -> int:
        """(seed, repeat) counted."""
        return self.tally.seeds

    @property
    def empty(self) -> int:
        """Of these, those without any output: hangs, crashes, errors."""
        return self.tally.empty

    @property
    def counts(self) -> Mapping[str, int]:
        """By verdict."""
        return self.tally.counts

    @property
    def explanations(self) -> Mapping[str, int]:
        """By explanation."""
        return self.tally.explanations

    def sketch(self, metric: str) -> Sketch:
        """Of tolerance_ratio or budget_ratio (of whole seeds: their worst output's); of an output
        also rms; of whole seeds also duration_ms. The empty sketch where nothing was counted.
        """
        return self.tally.sketches.get(metric, Sketch())

    def to_json(self) -> dict[str, Any]:
        """In plain JSON types; quantiles that are infinite are Inf, which the encoder makes null,
        beside the counts of them.
        """
        return {
            "seeds": self.seeds,
            "counts": dict(self.counts),
            "explanations": dict(self.explanations),
            "quantiles": {name: _quantiles(each) for name, each in self.tally.sketches.items()},
        }


@dataclass(frozen=True)
class Rollup(Sums):
    """One cell of a table over AXES: the axes that were asked for, and the sums over all others;
    each output's beside the whole seeds'.
    """

    test_key: str
    place: Mapping[str, Any]
    """Axis -> value (text; build_sequence an int, day a date), for the axes of `by`."""
    outputs: Mapping[str, Sums] = field(default_factory=dict)

    @property
    def outcomes(self) -> Mapping[str, int]:
        """Whole seeds by gonogo.flakiness.rates.Outcome."""
        return self.tally.outcomes

    @property
    def duration_ms(self) -> float:
        """Time of all seeds together."""
        return self.tally.duration_us / 1000

    def rates(self) -> tuple[Rate, Rate]:
        """(failures of the kernel's runs, hangs, crashes and errors of all runs that were
        tried).
        """
        from gonogo.flakiness.rates import (
            rate,
        )  # loads numpy, which ingest and most of the API do without

        failed, passed, lost = (
            self.outcomes.get(each.value, 0)
            for each in (Outcome.failed, Outcome.passed, Outcome.infrastructure)
        )
        return rate(failed, failed + passed), rate(lost, lost + failed + passed)

    def to_json(self) -> dict[str, Any]:
        """In plain JSON types."""
        failures, trouble = self.rates()
        return {
            **{
                name: value.isoformat() if isinstance(value, date) else value
                for name, value in self.place.items()
            },
            **super().to_json(),
            "outcomes": dict(self.outcomes),
            "failures": failures.to_json(),
            "trouble": trouble.to_json(),
            "duration_ms": self.duration_ms,
            "outputs": {name: each.to_json() for name, each in self.outputs.items()},
        }


def of_test(
    session: Session,
    test_key: str,
    *,
    by: Sequence[str] = (),
    since: date | None = None,
    until: date | None = None,
    numbers: bool = True,
    **only: Any,
) -> list[Rollup]:
    """The sums of a test, one Rollup for each combination of the axes `by` that there is, in their
    order; without any, at most one.

    `only`: axis=value, or axis=[values]; `since` and `until` are UTC days, both included. Whatever
    isn't in `by` is summed over. numbers
    False: counts of whole seeds only, no outputs and no sketches, which is many times cheaper.
    Raises ValueError for what is no axis.
    """
    return of_tests(
        session, [test_key], by=by, since=since, until=until, numbers=numbers, **only
    ).get(test_key, [])


def of_tests(
    session: Session,
    test_keys: Sequence[str],
    *,
    by: Sequence[str] = (),
    since: date | None = None,
    until: date | None = None,
    numbers: bool = True,
    **only: Any,
) -> dict[str, list[Rollup]]:
    """The same of several tests, in one statement; tests without any are left out."""
    unknown = [name for name in (*by, *only) if name not in AXES]
    if unknown:
        raise ValueError(
            f"{', '.join(unknown)}: no axis of the roll-ups; there are {', '.join(AXES)}"
        )
    table = DayRollupRow
    axes = [getattr(table, name) for name in ("test_key", *by)]
    query = select(*axes, table.output, *Tally.of(table, sketches=numbers))
    query = query.where(table.test_key.in_(list(test_keys)), table.shadow.is_(False))
    if not numbers:
        query = query.where(table.output == WHOLE)
    for name, value in only.items():
        column = getattr(table, name)
        query = query.where(
            column.in_(list(value))
            if isinstance(value, list | tuple | set | frozenset)
            else column == value
        )
    if since is not None:
        query = query.where(table.day >= since)
    if until is not None:
        query = query.where(table.day <= until)
    cells: dict[tuple[Any, ...], dict[str, list[Tally]]] = {}
    for row in session.execute(
        query
    ):  # columns, not entities: what another process committed since must be seen
        cells.setdefault(tuple(row)[: len(axes)], {}).setdefault(row.output, []).append(
            Tally.stored(row)
        )
    found: dict[str, list[Rollup]] = {}
    for place in sorted(cells):
        parts = {output: total(cells[place][output]) for output in sorted(cells[place])}
        sums = {name: Sums(tally) for name, tally in parts.items() if name != WHOLE}
        made = Rollup(
            parts.get(WHOLE, Tally()), place[0], dict(zip(by, place[1:], strict=True)), sums
        )
        found.setdefault(place[0], []).append(made)
    return found


def add(
    session: Session, job: JobRow, parts: Sequence[Mapping[str, Any]], *, first: int, now: datetime
) -> None:
    """Count rows that were stored in this transaction, `parts` as in `seed_results`, of the
    arrivals `first`, `first` + 1, ...

    The caller holds the job's lock. Where earlier rows of the job aren't counted yet (a process of
    an older version stored them, or a rebuild is about to), these aren't either:
    gonogo_storage.rollups.rebuild.catch_up counts them all, in order.
    """
    if not parts:
        return
    sums = tallies(parts)  # before the lock: others of this test shall not wait for arithmetic
    lock(session, job.test_key)
    if upto(session, job.id) == first - 1:
        merge(session, job, {now.astimezone(UTC).date(): sums})
        advance(session, job.id, max(part["arrival"] for part in parts))


def lock(session: Session, test_key: str) -> None:
    """The lock of a test's roll-ups, until the transaction ends. After the job's lock, never before
    it; one test a transaction.
    """
    dialect.lock(session, _ROOM, test_key)


def upto(session: Session, job_id: str, *, shadow: bool = False) -> int:
    """The last arrival of a job that is counted; 0 for none."""
    found = session.scalar(
        select(RolledRow.upto).where(RolledRow.job_id == job_id, RolledRow.shadow.is_(shadow))
    )
    return found or 0


def advance(session: Session, job_id: str, arrival: int, *, shadow: bool = False) -> None:
    """Note how far a job is counted now."""
    dialect.upsert(session, RolledRow, [{"job_id": job_id, "shadow": shadow, "upto": arrival}])


def key_of(axes: Mapping[str, Any]) -> str:
    """The id of a roll-up: 128 bits of the SHA-256 of its axes."""
    text = "\x1f".join(f"{len(value)}:{value}" for value in (str(axes[name]) for name in _KEY))
    return str(UUID(bytes=hashlib.sha256(text.encode()).digest()[:16]))


def merge(
    session: Session,
    job: Any,
    days: Mapping[date, Mapping[tuple[str, str], Tally]],
    *,
    shadow: bool = False,
) -> None:
    """Add a job's sums, by day, device and output, to those that are stored: a read and an upsert
    of its own, and of its test.

    job: its row, or the columns of it that ON_JOB names. The caller holds the lock of the test.
    """
    whole: dict[str, Tally] = {}
    for parts in days.values():
        for (_, output), tally in parts.items():
            whole[output] = whole.get(output, Tally()) + tally
    table = JobTallyRow
    query = select(table.output, *Tally.of(table)).where(
        table.job_id == job.id, table.shadow.is_(shadow), table.output.in_(list(whole))
    )
    there = {row.output: Tally.stored(row) for row in session.execute(query)}
    own = [
        {
            "job_id": job.id,
            "output": output,
            "shadow": shadow,
            **(there.get(output, Tally()) + tally).columns(),
        }
        for output, tally in whole.items()
    ]
    dialect.upsert(session, JobTallyRow, own)
    if job.reference is None:
        _merge_days(session, job, days, shadow)


def _merge_days(
    session: Session, job: Any, days: Mapping[date, Mapping[tuple[str, str], Tally]], shadow: bool
) -> None:
    places = {name: getattr(job, name) for name in _OF_JOB} | {"context": context_name(job.context)}
    found: dict[str, tuple[dict[str, Any], Tally]] = {}
    for day, parts in days.items():
        for (device, output), tally in parts.items():
            axes = {**places, "device": device, "day": day, "output": output}
            found[key_of(axes)] = axes, tally
    table = DayRollupRow
    query = select(table.key, *Tally.of(table)).where(
        table.key.in_(list(found)), table.shadow.is_(shadow)
    )
    there = {row.key: Tally.stored(row) for row in session.execute(query)}
    rows = [
        {"key": key, "shadow": shadow, **axes, **(there.get(key, Tally()) + tally).columns()}
        for key, (axes, tally) in found.items()
    ]
    dialect.upsert(session, DayRollupRow, rows)


def of_job(session: Session, job_id: str) -> dict[str, Sums] | None:
    """The sums of one job by output, '' for whole seeds; None while some of its rows aren't
    counted, or where there is no such job.
    """
    done = session.scalar(select(JobRow.done).where(JobRow.id == job_id)) if is_id(job_id) else None
    if done is None or upto(session, job_id) < done:
        return None
    table = JobTallyRow
    query = (
        select(table.output, *Tally.of(table))
        .where(table.job_id == job_id, table.shadow.is_(False))
        .order_by(table.output)
    )
    return {row.output: Sums(Tally.stored(row)) for row in session.execute(query)}


def _quantiles(sketch: Sketch) -> dict[str, Any]:
    told: Iterable[tuple[str, Any]] = [
        (f"p{100 * share:g}", sketch.quantile(share)) for share in SHARES
    ]
    counts = {
        "values": sketch.count,
        "infinite": sketch.inf,
        "nan": sketch.nan,
        "missing": sketch.missing,
    }
    return {**dict(told), "mean": sketch.mean(), "relative_error": sketch.error, **counts}
