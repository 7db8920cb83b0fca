"""Stored seeds as readers see them: one object per (seed, repeat), with its outputs by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import (
    JSON,
    ColumnElement,
    CompoundSelect,
    Select,
    Text,
    and_,
    cast,
    func,
    select,
    true,
)
from sqlalchemy.orm import Session

from gonogo_service.kit.database.encoding import decode
from gonogo_service.kit.database.engine import is_postgres
from gonogo_service.results.rows import SeedResultRow, SeedSourceRow
from gonogo_service.results.seed_rows import unpacking

OF_SOURCE = and_(
    SeedSourceRow.job_id == SeedResultRow.job_id, SeedSourceRow.number == SeedResultRow.source
)
"""Joins the attempt, device and process of a seed."""
BY_SEED = (SeedResultRow.job_id, SeedResultRow.seed, SeedResultRow.repeat)
_COLUMNS = (
    SeedResultRow.job_id,
    SeedResultRow.seed,
    SeedResultRow.repeat,
    SeedResultRow.arrival,
    SeedResultRow.verdict,
    SeedResultRow.explanation,
    SeedResultRow.position,
    SeedResultRow.duration_ms,
    SeedResultRow.message,
    SeedSourceRow.attempt_id,
    SeedSourceRow.device,
    SeedSourceRow.host_run,
    SeedSourceRow.arithmetic,
    SeedSourceRow.judge,
    SeedResultRow.layout,
    SeedResultRow.numbers,
    SeedResultRow.rest,
)


class StoredSeed(NamedTuple):
    """One (seed, repeat) of a job.

    Each output has its verdict, its explanation and the statistics that were asked for.
    """

    job: str
    seed: int
    repeat: int
    arrival: int
    verdict: str
    explanation: str | None
    position: int | None
    duration_ms: float | None
    message: str | None
    attempt: str
    device: str | None
    host_run: str | None
    arithmetic: str | None
    judge: str | None
    outputs: Mapping[str, dict[str, Any]]


def query(*conditions: ColumnElement[bool]) -> Select[Any]:
    """Return the query of the seeds that meet the conditions, for `read`."""
    columns: Sequence[Any] = _COLUMNS
    return select(*columns).join(SeedSourceRow, OF_SOURCE).where(*conditions)


def read(
    session: Session, seeds: Select[Any] | CompoundSelect[Any], *statistics: str
) -> Iterator[StoredSeed]:
    """Yield the seeds of a `query`; without `statistics`, each output has all of them."""
    names = frozenset(statistics) or None
    for part in session.execute(seeds).partitions(1000):
        unpacking.load(session, {row.layout for row in part})
        for *columns, layout, numbers, rest in part:
            outputs = unpacking.unpack(layout, numbers, rest, names)
            yield StoredSeed._make((*columns, outputs))


class JudgedSeed(NamedTuple):
    """The judgment of one (seed, repeat) of a job, with its outputs."""

    job: str
    seed: int
    verdict: str
    explanation: str | None
    outputs: unpacking.Outputs


def read_judged(
    session: Session,
    conditions: Sequence[ColumnElement[bool]],
    statistics: Callable[[str | None], unpacking.Names],
) -> Iterator[JudgedSeed]:
    """Yield the seeds that meet the conditions, which are on columns of the table itself.

    statistics: the names to read of seeds with an explanation. It takes half the time of `read`,
    for comparisons, which read a thousand seeds.
    """
    table = SeedResultRow.__table__.c
    columns = (table.job_id, table.seed, table.verdict, table.explanation)
    query = select(*columns, table.layout, table.numbers, table.rest).where(*conditions)
    for part in session.execute(query).partitions(1000):
        unpacking.load(session, {row.layout for row in part})
        for job, seed, verdict, explanation, layout, numbers, rest in part:
            outputs = unpacking.unpack(layout, numbers, rest, statistics(explanation))
            yield JudgedSeed(job, seed, verdict, explanation, outputs)


class SeedOutcomes(NamedTuple):
    """One (seed, repeat) of a job, with the (outcome, verdict) of each output."""

    job: str
    seed: int
    repeat: int
    verdict: str
    device: str | None
    outputs: Mapping[str, tuple[str | None, str]]


def read_outcomes(
    session: Session, conditions: Sequence[ColumnElement[bool]]
) -> Iterator[SeedOutcomes]:
    """Yield the outcomes of the seeds that meet the conditions, in the order of jobs and seeds."""
    table = SeedResultRow
    head = (table.job_id, table.seed, table.repeat, table.verdict, SeedSourceRow.device)
    columns = (*head, table.layout, table.numbers, table.rest)
    query = select(*columns).join(SeedSourceRow, OF_SOURCE).where(*conditions).order_by(*BY_SEED)
    for part in session.execute(query).partitions(100):
        unpacking.load(session, {row.layout for row in part})
        for *values, layout, numbers, rest in part:
            outcomes = unpacking.unpack_outcomes(layout, numbers, rest)
            yield SeedOutcomes._make((*values, outcomes))


class OutcomeGroup(NamedTuple):
    """The tests of one iteration that have the same outcome and verdict."""

    job: str
    seed: int
    repeat: int
    device: str | None
    outcome: str
    verdict: str
    names: Sequence[str]


def read_tests(session: Session, job_ids: Sequence[str]) -> Iterator[OutcomeGroup]:
    """Yield the tests of each iteration of selections, grouped by the database.

    An iteration may have 20,000 tests in 6 MB of JSON, which would stop every thread of this
    process while it is read.
    """
    table = SeedResultRow
    outcome: ColumnElement[Any]
    verdict: ColumnElement[Any]
    names: ColumnElement[Any]
    if is_postgres(session):
        entry = func.json_each(cast(table.rest, JSON)).table_valued("key", "value", name="test")
        outcome, verdict = entry.c.value.op("->>")("outcome"), entry.c.value.op("->>")("verdict")
        names = cast(func.json_agg(entry.c.key), Text)
    else:
        entry = func.json_each(table.rest).table_valued("key", "value", name="test")
        outcome = func.json_extract(entry.c.value, "$.outcome")
        verdict = func.json_extract(entry.c.value, "$.verdict")
        names = func.json_group_array(entry.c.key)
    head = (table.job_id, table.seed, table.repeat, SeedSourceRow.device, outcome, verdict)
    query = (
        select(*head, names)
        .select_from(table)
        .join(SeedSourceRow, OF_SOURCE)
        .join(entry, true())
        .where(
            table.job_id.in_(job_ids),
            table.layout.is_(None),
            table.rest.is_not(None),
            outcome.is_not(None),
        )
        .group_by(*head)
    )
    for *values, content in session.execute(query):
        yield OutcomeGroup._make((*values, decode(content)))


def read_outputs(
    session: Session, conditions: Sequence[ColumnElement[bool]], *statistics: str
) -> Iterator[tuple[int, int, unpacking.Outputs]]:
    """Yield (seed, repeat, outputs) of the seeds that meet the conditions.

    It takes half the time of `read`, for functions that hold a job's lock.
    """
    table = SeedResultRow
    columns = table.seed, table.repeat, table.layout, table.numbers, table.rest
    names = frozenset(statistics)
    query = select(*columns).join(SeedSourceRow, OF_SOURCE).where(*conditions)
    for part in session.execute(query).partitions(1000):
        unpacking.load(session, {row.layout for row in part})
        for seed, repeat, layout, numbers, rest in part:
            yield seed, repeat, unpacking.unpack(layout, numbers, rest, names)
