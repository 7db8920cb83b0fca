"""Storing results: rows and aggregates in one transaction. The first result of a seed counts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from gonogo.spec.verdicts import WORST_FIRST, size
from gonogo_service.gauges.model import GaugeResultRow
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.dialect import insert_once, load_once
from gonogo_service.kit.database.encoding import separate, storable
from gonogo_service.results import seeds, sums
from gonogo_service.results.batch import Batch, kernel_s
from gonogo_service.results.model import WHOLE, ResultRow, SourceRow

Pair = tuple[int, int]
Output = Mapping[str, Any]
RANKS = {str(verdict): verdict.rank for verdict in WORST_FIRST}
_SOURCE = ("device", "host_run", "arithmetic", "judge")
_COLUMNS = tuple(column.name for column in ResultRow.__table__.columns)
_HEAD = frozenset({"verdict", "explanation", *seeds.COLUMNS})


def store(session: Session, job: JobRow, attempt_id: str, batch: Batch, *, now: datetime) -> None:
    """Insert new seeds, and add them to the sums of their job and test.

    The caller holds the job's lock, knows that the seeds are new, and then counts `job.done`.
    """
    columns = zip(*_rows(session, job, attempt_id, batch), strict=True)
    load_once(session, ResultRow, dict(zip(_COLUMNS, columns, strict=True)))
    sums.add(session, job, sums.of_batch(job.id, batch, now.astimezone(UTC).date()))


def present(session: Session, job_id: str, work: Sequence[Sequence[int]]) -> set[Pair]:
    """Return the (seed, repeat) pairs of `work` that are already stored."""
    if not work:
        return set()
    table, gauge_table = ResultRow, GaugeResultRow
    numbers = [int(seed) for seed, _ in work]
    low, high = min(numbers), max(numbers)
    query = select(table.seed, table.repeat).where(
        table.job_id == job_id, table.seed.between(low, high)
    )
    # Results of gauges are in another table; a job's id is in only one of the two.
    other = select(gauge_table.seed, gauge_table.part).where(
        gauge_table.gauge_id == job_id, gauge_table.seed.between(low, high)
    )
    pairs = {(seed, repeat) for seed, repeat in session.execute(query.union(other))}
    return pairs & {(int(seed), int(repeat)) for seed, repeat in work}


def missing(session: Session, job_id: str, work: Sequence[list[int]]) -> list[list[int]]:
    """Return the (seed, repeat) pairs of `work` that aren't stored yet."""
    stored = present(session, job_id, work)
    return [pair for pair in work if (pair[0], pair[1]) not in stored]


def contradicted(session: Session, job_id: str, batch: Batch) -> list[str]:
    """Return a sentence for each row of a batch that differs from the one stored for its seed.

    They differ if the verdict or the digest of an output does.
    """
    outputs: dict[int, Mapping[str, Mapping[str, Any]]] = dict(batch.objects)
    for part in batch.columns:
        outputs |= dict(zip(part.rows, part.objects(), strict=True))
    claims = {
        (int(row["seed"]), int(row["repeat"])): (str(row["verdict"]), outputs[place], row)
        for place, row in enumerate(batch.rows)
        if place in outputs
    }
    if not claims:
        return []
    claimed_seeds = [seed for seed, _ in claims]
    known = ResultRow.seed.between(min(claimed_seeds), max(claimed_seeds))
    sentences = []
    for seed in seeds.read(session, ResultRow.job_id == job_id, known, statistics=("digest",)):
        claim = claims.get((seed.seed, seed.repeat))
        if claim is None:
            continue
        verdict, claimed, row = claim
        if verdict != seed.verdict or any(
            output.get("digest") != claimed.get(name, {}).get("digest")
            for name, output in seed.outputs.items()
        ):
            sentences.append(
                f"seed {seed.seed} of job {job_id} is stored as {seed.verdict} by {seed.device};"
                f" {row.get('device')} sent {verdict} or other bits"
            )
    return sentences


def finite(output: Output) -> Output:
    """Return an output with None for numbers that aren't finite, and their kinds."""
    values, kinds = separate(dict(output))
    known = output.get(seeds.KINDS) or {}
    return {**values, seeds.KINDS: {**known, **kinds} or None} if kinds else output


def _rows(
    session: Session, job: JobRow, attempt_id: str, batch: Batch
) -> Iterator[tuple[Any, ...]]:
    """Yield the values of _COLUMNS, a row for each output of each seed."""
    sources = _sources(session, job.id, attempt_id, batch.rows)
    outputs = {place: _finite_each(seen) for place, seen in batch.objects.items()}
    for part in batch.columns:
        objects = part.objects()
        seen: Iterable[Any] = objects if part.is_finite else map(_finite_each, objects)
        outputs |= dict(zip(part.rows, seen, strict=True))
    for place, row in enumerate(batch.rows):
        verdict, duration = str(row["verdict"]), row.get("duration_ms")
        duration = None if duration is None or duration - duration != 0 else duration
        number, repeat, arrival = int(row["seed"]), int(row["repeat"]), job.done + 1 + place
        of_seed = (arrival, sources[place], verdict, row.get("explanation"), row.get("position"))
        message = storable(row.get("message"))
        judged = sorted(map(_judged, outputs.get(place, {}).items())) or [
            (0, -math.inf, WHOLE, {"verdict": verdict})
        ]
        for order, (_, minus_size, name, output) in enumerate(judged):
            yield (
                *(job.id, number, repeat, name, order, *of_seed, duration, kernel_s(row), message),
                *_of_output(output, minus_size),
            )
            message = None  # in the first row only


def _judged(named: tuple[str, Output]) -> tuple[int, float, str, Output]:
    """Return (rank, minus size, name, output): they sort as gonogo.spec.verdicts.worst_first."""
    name, output = named
    return RANKS[str(output["verdict"])], -size(output), name, output


def _finite_each(outputs: Mapping[str, Output]) -> dict[str, Output]:
    return {name: finite(output) for name, output in outputs.items()}


def _of_output(output: Output, minus_size: float) -> tuple[Any, ...]:
    """Return the values of an output's columns."""
    notes = {n: value for n, value in output.items() if n not in _HEAD and value is not None}
    outcome, arithmetic, *numbers = map(output.get, seeds.COLUMNS)
    head = str(output["verdict"]), output.get("explanation"), outcome, arithmetic, minus_size
    return (*head, *numbers, notes or None)


def _sources(
    session: Session, job_id: str, attempt_id: str, rows: Sequence[Mapping[str, Any]]
) -> list[int]:
    """Return the number of each row's source; new sources are stored."""
    table = SourceRow
    names = ("attempt_id", *_SOURCE)
    query = select(table.number, *(getattr(table, name) for name in names))
    of_attempt = query.where(table.job_id == job_id, table.attempt_id == attempt_id)
    known = {tuple(key): number for number, *key in session.execute(of_attempt)}
    columns = [[row.get(name) for row in rows] for name in _SOURCE]
    keys = [(attempt_id, *key) for key in zip(*columns, strict=True)]
    new_keys = [key for key in dict.fromkeys(keys) if key not in known]
    if new_keys:
        last = session.scalar(select(func.max(table.number)).where(table.job_id == job_id)) or 0
        known |= {key: number for number, key in enumerate(new_keys, last + 1)}
        new = [
            {"job_id": job_id, "number": known[key], **dict(zip(names, key, strict=True))}
            for key in new_keys
        ]
        insert_once(session, table, new)
    return [known[key] for key in keys]
