"""Seed results: stored in bulk, and read as pages (by arrival or by seed) or as a stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Literal

from sqlalchemy import func, select, tuple_
from sqlalchemy.orm import Session

from gonogo_storage.db.dialect import insert_once
from gonogo_storage.db.encoding import separate, storable
from gonogo_storage.db.ids import is_id
from gonogo_storage.db.paging import Page, numbers
from gonogo_storage.tables import GaugeResultRow, SeedResultRow

Pair = tuple[int, int]

# Statistics with a column, because queries sort, chart or sum them; the others are in the JSON
# column.
COLUMNS = (
    "tolerance_ratio",
    "budget_ratio",
    "chi",
    "max_abs",
    "rms",
    "pcc_deficit",
    "row_z",
    "xhat_z",
    "scale_z",
)
SEED_FIELDS = ("device", "host_run", "position", "duration_ms", "arithmetic", "policy", "message")
_KINDS = "nonfinite_kinds"


def page(
    session: Session,
    job_id: str,
    *,
    limit: int = 100,
    cursor: str | None = None,
    order: Literal["arrival", "seed"] = "arrival",
) -> Page[dict[str, Any]]:
    """Return a page of results, one per (seed, repeat), in the HTTP API's form.

    By arrival the cursor is the number of results read so far, so that a reader of a running job
    misses none. By seed it is "seed.repeat". Raises BadCursor.
    """
    if not is_id(job_id):
        return Page((), None)
    table = SeedResultRow
    if order == "arrival":
        (last,) = numbers(cursor, 1) or (0,)
        query = select(table).where(
            table.job_id == job_id, table.arrival > last, table.arrival <= last + limit + 1
        )
        seeds = _seeds(session.scalars(query.order_by(table.arrival, table.output)))
        return Page.cut(list(seeds), limit, lambda item: str(item["arrival"]))
    after = numbers(cursor, 2) or (-1, -1)
    keys = select(table.seed, table.repeat).where(
        table.job_id == job_id, tuple_(table.seed, table.repeat) > tuple_(*after)
    )
    pairs = session.execute(
        keys.group_by(table.seed, table.repeat).order_by(table.seed, table.repeat).limit(limit + 1)
    ).all()
    if not pairs:
        return Page((), None)
    first, last_pair = pairs[0], pairs[-1]
    query = select(table).where(
        table.job_id == job_id,
        tuple_(table.seed, table.repeat) >= tuple_(*first),
        tuple_(table.seed, table.repeat) <= tuple_(*last_pair),
    )
    seeds = _seeds(session.scalars(query.order_by(table.seed, table.repeat, table.output)))
    return Page.cut(list(seeds), limit, lambda item: f"{item['seed']}.{item['repeat']}")


def stream(session: Session, job_id: str, *, size: int = 500) -> Iterator[dict[str, Any]]:
    """Yield all results in the order of seeds, reading pages, so that memory use stays constant."""
    cursor: str | None = None
    while True:
        part = page(session, job_id, limit=size, cursor=cursor, order="seed")
        yield from part.items
        if part.next is None:
            return
        cursor = part.next


def get(session: Session, job_id: str, seed: int, repeat: int = 0) -> dict[str, Any] | None:
    """Return the result of one (seed, repeat) of a job, or None."""
    table = SeedResultRow
    query = (
        select(table)
        .where(table.job_id == job_id, table.seed == seed, table.repeat == repeat)
        .order_by(table.output)
    )
    return next(_seeds(session.scalars(query)), None)


def worst(session: Session, job_id: str, *, limit: int = 10) -> list[dict[str, Any]]:
    """Return the seeds with the largest budget_ratio over their outputs, the largest first.

    A missing ratio, as for a hang or a NaN, counts as the largest.
    """
    table = SeedResultRow
    size = func.max(func.coalesce(table.budget_ratio, 1e300)).label("size")
    query = (
        select(table.seed, table.repeat)
        .where(table.job_id == job_id)
        .group_by(table.seed, table.repeat)
    )
    pairs = session.execute(
        query.order_by(size.desc(), table.seed, table.repeat).limit(limit)
    ).all()
    seeds = (get(session, job_id, seed, repeat) for seed, repeat in pairs)
    return [seed for seed in seeds if seed is not None]


def points(session: Session, job_id: str, *, limit: int = 20000) -> list[dict[str, Any]]:
    """Return one small object per row for a scatter plot, by arrival.

    The keys: "seed", "repeat", "output", "verdict", "tolerance_ratio", "budget_ratio".
    """
    table = SeedResultRow
    names = ("seed", "repeat", "output", "seed_verdict", "tolerance_ratio", "budget_ratio")
    columns = [getattr(table, name) for name in names]
    query = (
        select(*columns)
        .where(table.job_id == job_id)
        .order_by(table.arrival, table.output)
        .limit(limit)
    )
    keys = ("seed", "repeat", "output", "verdict", "tolerance_ratio", "budget_ratio")
    return [dict(zip(keys, row, strict=True)) for row in session.execute(query)]


def present(session: Session, job_id: str, work: Sequence[Sequence[int]]) -> set[Pair]:
    """Return the (seed, repeat) pairs of `work` that are already stored."""
    if not work:
        return set()
    table, gauge_table = SeedResultRow, GaugeResultRow
    seeds = [int(seed) for seed, _ in work]
    low, high = min(seeds), max(seeds)
    query = select(table.seed, table.repeat).where(
        table.job_id == job_id, table.seed.between(low, high)
    )
    # Results of gauges are in another table; a job's id is in only one of the two.
    other = select(gauge_table.seed, gauge_table.part).where(
        gauge_table.gauge_id == job_id, gauge_table.seed.between(low, high)
    )
    stored = {(seed, repeat) for seed, repeat in session.execute(query.union(other))}
    return stored & {(int(seed), int(repeat)) for seed, repeat in work}


def add(
    session: Session,
    job_id: str,
    attempt_id: str,
    rows: Iterable[Mapping[str, Any]],
    *,
    arrival: int,
) -> list[dict[str, Any]]:
    """Insert new rows (as in a results message); return what was inserted, one mapping per output.

    The caller holds the job's lock and knows that the rows are new. `arrival` is the last number in
    use.
    """
    parts = [
        part
        for n, row in enumerate(rows, arrival + 1)
        for part in _parts(job_id, attempt_id, row, n)
    ]
    insert_once(session, SeedResultRow, parts)
    return parts


def _parts(
    job_id: str, attempt_id: str, row: Mapping[str, Any], arrival: int
) -> Iterator[dict[str, Any]]:
    seed_fields, _ = separate({name: row.get(name) for name in SEED_FIELDS})
    seed_fields["message"] = storable(seed_fields["message"])
    shared = {
        "job_id": job_id,
        "seed": int(row["seed"]),
        "repeat": int(row["repeat"]),
        "arrival": arrival,
        "attempt_id": attempt_id,
        "seed_verdict": str(row["verdict"]),
        "seed_explanation": row.get("explanation"),
        **seed_fields,
    }
    outputs: Mapping[str, Mapping[str, Any]] = row.get("outputs") or {}
    for output, judged in outputs.items():
        statistics = dict(judged)
        verdict, explanation, digest = (
            statistics.pop("verdict"),
            statistics.pop("explanation", None),
            statistics.pop("digest", None),
        )
        outcome = statistics.pop("outcome", None)
        sent_kinds: dict[str, str] = statistics.pop(_KINDS, None) or {}
        values, kinds = separate(statistics)
        columns = {name: values.pop(name, None) for name in COLUMNS}
        yield {
            **shared,
            **columns,
            "output": output,
            "verdict": verdict,
            "explanation": explanation,
            "digest": digest,
            "outcome": outcome,
            "nonfinite": {**sent_kinds, **kinds} or None,
            "statistics": values or None,
        }
    if not outputs:
        empty = dict.fromkeys((*COLUMNS, "digest", "outcome", "nonfinite", "statistics"))
        yield {
            **shared,
            **empty,
            "output": "",
            "verdict": shared["seed_verdict"],
            "explanation": shared["seed_explanation"],
        }


def _seeds(rows: Iterable[SeedResultRow]) -> Iterator[dict[str, Any]]:
    """Group ordered rows into one object per (seed, repeat)."""
    for _, group in groupby(rows, key=lambda row: (row.seed, row.repeat)):
        members = list(group)
        head = members[0]
        yield {
            "seed": head.seed,
            "repeat": head.repeat,
            "verdict": head.seed_verdict,
            "explanation": head.seed_explanation,
            **{name: getattr(head, name) for name in SEED_FIELDS},
            "attempt": head.attempt_id,
            "arrival": head.arrival,
            "outputs": {row.output: _output(row) for row in members if row.output},
        }


def _output(row: SeedResultRow) -> dict[str, Any]:
    return {
        "verdict": row.verdict,
        "explanation": row.explanation,
        **{name: getattr(row, name) for name in COLUMNS},
        **(row.statistics or {}),
        **({} if row.outcome is None else {"outcome": row.outcome}),
        "digest": row.digest,
        _KINDS: row.nonfinite,
    }
