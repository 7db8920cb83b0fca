"""Stored seeds as readers see them: one object per (seed, repeat), with its outputs by name."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import accumulate, groupby
from operator import itemgetter
from typing import Any, Literal, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Integer,
    and_,
    case,
    func,
    literal_column,
    or_,
    select,
    tuple_,
)
from sqlalchemy.orm import Session

from gonogo.spec import statistics
from gonogo_service.kit.database.columns import IdType
from gonogo_service.kit.database.each import Given, of_each
from gonogo_service.kit.database.ids import is_id
from gonogo_service.kit.database.paging import BadCursor, Page, batched, numbers
from gonogo_service.results.model import WHOLE, ResultRow, SourceRow

Order = Literal["arrival", "seed"]
KINDS = "nonfinite_kinds"
COLUMNS = (
    *("outcome", "arithmetic", "tolerance_ratio", "rounding_ratio", "max_abs", "rms"),
    *("rel_frobenius", "pcc_deficit", "ulp_max", "nonfinite", "digest"),
)
"""The statistics of an output that have a column; `notes` has the others."""
ALWAYS = frozenset({*statistics.ALWAYS, "digest", KINDS})
"""The statistics that every output has, if only as None."""
OF_SOURCE = and_(SourceRow.job_id == ResultRow.job_id, SourceRow.number == ResultRow.source)
"""Joins the attempt, device and process of a seed."""
SEED = ResultRow.place == literal_column("0")  # no parameter: a partial index needs it
"""The one row of a seed: that of its worst output."""
_NONFINITE = {"nan": math.nan, "inf": math.inf, "-inf": math.inf}
MAX_PLACE = 2**31 - 1
"""The largest number of a repeat, an arrival and an output's place that a database takes."""
MAX_ROWS = 20_000
"""Rows of a page of whole seeds, unless its first seed has more."""
_HEAD = (
    *(ResultRow.job_id, ResultRow.seed, ResultRow.repeat, ResultRow.arrival),
    *(ResultRow.seed_verdict, ResultRow.seed_explanation, ResultRow.position),
    *(
        ResultRow.duration_ms,
        ResultRow.kernel_s,
        ResultRow.message,
        SourceRow.attempt_id,
        SourceRow.device,
    ),
    *(SourceRow.host_run, SourceRow.arithmetic, SourceRow.judge),
)
_ORDERS: Mapping[Order, tuple[Any, ...]] = {
    "arrival": (ResultRow.job_id, ResultRow.arrival),
    "seed": (ResultRow.job_id, ResultRow.seed, ResultRow.repeat),
}
Outputs = dict[str, dict[str, Any]]
_PLACE = (("job", IdType), ("arrival", Integer()))


class StoredSeed(NamedTuple):
    """One (seed, repeat) of a job, with its outputs, worst first.

    Each has its verdict, its explanation and the statistics that were asked for.
    """

    job: str
    seed: int
    repeat: int
    arrival: int
    verdict: str
    explanation: str | None
    position: int | None
    duration_ms: float | None
    kernel_s: float | None
    message: str | None
    attempt: str
    device: str | None
    host_run: str | None
    arithmetic: str | None
    judge: str | None
    outputs: Outputs


def read(
    session: Session,
    *conditions: ColumnElement[bool],
    statistics: Collection[str] | None = None,
    by: Order = "seed",
    limit: int | None = None,
    notes_of: ColumnElement[bool] | None = None,
) -> Iterator[StoredSeed]:
    """Yield the seeds of the rows that meet the conditions, each with these rows' outputs.

    statistics: the names to read besides verdict and explanation; None: all. limit: the number of
    seeds, counted by the rows of place 0. notes_of: the rows whose `notes` are read; None: all.
    """
    reader = Reader.of(None if statistics is None else frozenset(statistics))
    order = _ORDERS[by]
    query = select(*_HEAD, *reader.columns(notes_of)).join(SourceRow, OF_SOURCE).where(*conditions)
    if limit is not None:
        chosen = select(*order).join(SourceRow, OF_SOURCE).where(*conditions, SEED)
        part = chosen.order_by(*order).limit(limit).subquery()
        query = query.join(part, and_(*(column == part.c[column.key] for column in order)))
    parts = session.execute(query.order_by(*order, ResultRow.place)).partitions(1000)
    return _seeds((row for part in parts for row in part), reader)


def read_at(session: Session, places: Sequence[tuple[str, int]]) -> Iterator[StoredSeed]:
    """Yield the seeds of jobs at these (job, arrival), in their order, with all statistics.

    Each is a step of its own along an index: PostgreSQL expects few rows of a new job until it has
    counted them, and would read all of it for a list of arrivals.
    """
    for some in batched(places, 100):
        rows = of_each(session, _at, _PLACE, some)
        yield from _seeds((row[1:] for row in rows), Reader.of(None))


def _at(given: Given) -> Any:
    at = ResultRow.job_id == given("job"), ResultRow.arrival == given("arrival")
    query = select(*_HEAD, *Reader.of(None).columns()).join(SourceRow, OF_SOURCE).where(*at)
    return query.order_by(ResultRow.place).limit(MAX_ROWS)


class Reader:
    """Reads the outputs of rows: some of their statistics, or all (None)."""

    def __init__(self, statistics: frozenset[str] | None) -> None:
        self.names = [name for name in COLUMNS if statistics is None or name in statistics]
        self.further = statistics is None or not statistics <= frozenset(COLUMNS)
        always = ALWAYS if statistics is None else ALWAYS & statistics
        self.always: dict[str, Any] = dict.fromkeys(sorted(always))

    @classmethod
    @cache
    def of(cls, statistics: frozenset[str] | None) -> Reader:
        """Return the reader of some statistics, which is made once."""
        return cls(statistics)

    def columns(self, notes_of: ColumnElement[bool] | None = None) -> list[Any]:
        """Return the columns of an output; notes_of: the rows whose notes are read."""
        table = ResultRow
        columns: list[Any] = [table.output, table.verdict, table.explanation]
        columns += [getattr(table, name).label(f"_{name}") for name in self.names]
        if self.further:
            columns.append(table.notes if notes_of is None else case((notes_of, table.notes)))
        return columns

    def output(self, values: Sequence[Any]) -> dict[str, Any]:
        """Return an output from the values of its `columns`."""
        output = {"verdict": values[1], "explanation": values[2], **self.always}
        for name, value in zip(self.names, values[3:], strict=False):
            if value is not None:
                output[name] = value
        if self.further and values[-1]:
            output |= values[-1]
        return output


def _seeds(rows: Iterable[Any], reader: Reader) -> Iterator[StoredSeed]:
    first = len(_HEAD)
    for _, of_seed in groupby(rows, key=itemgetter(0, 3)):
        outputs: Outputs = {}
        head: Any = None
        for row in of_seed:
            head = head or row
            if row[first] != WHOLE:
                outputs[row[first]] = reader.output(row[first:])
        yield StoredSeed._make((*head[:first], outputs))


def value_of(output: Mapping[str, Any], name: str) -> float | None:
    """Return a statistic of an output, or None if there is none.

    It is NaN or Inf if it is None and its kind is known.
    """
    value = output.get(name)
    if value is not None:
        return float(value)
    # The kinds come from ingest, and from a comparison, which names them itself.
    kinds = {**(output.get("nonfinite_statistics") or {}), **(output.get(KINDS) or {})}
    return _NONFINITE.get(str(kinds.get(name))) if kinds else None


def page(
    session: Session,
    job_id: str,
    *,
    limit: int = 100,
    cursor: str | None = None,
    order: Order = "arrival",
    most_outputs: int | None = None,
) -> Page[dict[str, Any]]:
    """Return a page of results, one per (seed, repeat), in the HTTP API's form.

    By arrival the cursor is the number of results read so far, so that a reader of a running job
    misses none. By seed it is "seed.repeat". Raises BadCursor.

    most_outputs: outputs of the whole page. A seed that doesn't fit begins the next page. Only one
    with more than these comes on several pages, each with the next ones, worst first: an iteration
    of a selection may have 20,000 tests. None: all seeds are whole.
    """
    if not is_id(job_id):
        return Page((), None)
    after, skip = _place(cursor, 1 if order == "arrival" else 2)
    key = _ORDERS[order][1:]
    place: Any = tuple_(*key) if len(key) > 1 else key[0]
    start: Any = tuple_(*(after or (-1, -1))) if len(key) > 1 else (after or (0,))[0] + bool(skip)
    of_job = ResultRow.job_id == job_id
    # a seed without outputs has one row all the same
    outputs = func.count().filter(ResultRow.output != WHOLE)
    query = select(*key, outputs).where(of_job, place >= start if skip else place > start)
    rows = session.execute(query.group_by(*key).order_by(*key).limit(limit + 1)).all()
    if skip and (not rows or rows[0][-1] <= skip):
        raise BadCursor(cursor)
    if not rows:
        return Page((), None)
    most = most_outputs or MAX_ROWS
    counts = [row[-1] for row in rows]
    shown = _fitting([counts[0] - skip, *counts[1:limit]], most)
    first, last = _value(rows[0], key), _value(rows[shown - 1], key)
    is_cut = most_outputs is not None and counts[0] - skip > most
    of_first = ResultRow.place.between(skip, skip + most - 1 if is_cut else max(counts))
    part = of_job, place >= first, place <= last, or_(place > first, of_first)
    items = [_result(seed) for seed in read(session, *part, by=order)]
    items[0]["outputs_from"] = skip
    for item, count in zip(items, counts, strict=False):
        item["outputs_total"] = count
    if is_cut:
        return Page(tuple(items), _cursor(items[-1], order, skip + len(items[-1]["outputs"])))
    more = len(rows) > shown
    return Page(tuple(items), _cursor(items[-1], order) if more else None)


def _fitting(sizes: Sequence[int], most: int) -> int:
    """Return how many of the seeds with these outputs fit a page; the first one always does."""
    totals = list(accumulate(sizes))
    return max(1, sum(total <= most for total in totals))


def _value(row: Any, key: Sequence[Any]) -> Any:
    return tuple_(*row[: len(key)]) if len(key) > 1 else row[0]


def _place(cursor: str | None, parts: int) -> tuple[tuple[int, ...] | None, int]:
    """Return the place in a cursor, and the number of outputs of its result that were read."""
    if cursor is None:
        return None, 0
    read = numbers(cursor, parts + (cursor.count(".") == parts)) or ()
    if max(read[parts - 1 :]) > MAX_PLACE:
        raise BadCursor(cursor)
    return read[:parts], sum(read[parts:])


def _cursor(item: Mapping[str, Any], order: Order, read_outputs: int = 0) -> str:
    """Return the cursor after an item, or after `read_outputs` of its outputs."""
    tail = f".{read_outputs}" if read_outputs else ""
    if order == "arrival":
        return f"{item['arrival'] - bool(read_outputs)}{tail}"
    return f"{item['seed']}.{item['repeat']}{tail}"


def stream(session: Session, job_id: str, *, size: int = 500) -> Iterator[dict[str, Any]]:
    """Yield all results in the order of seeds, reading pages, so that memory use stays constant."""
    cursor: str | None = None
    while True:
        part = page(session, job_id, limit=size, cursor=cursor, order="seed")
        yield from part.items
        if part.next is None:
            return
        cursor = part.next


def get(session: Session, job_id: str, seed: int, repeat: int = 0) -> StoredSeed | None:
    """Return one (seed, repeat) of a job, or None."""
    of_seed = ResultRow.job_id == job_id, ResultRow.seed == seed, ResultRow.repeat == repeat
    return next(read(session, *of_seed), None)


def _result(seed: StoredSeed) -> dict[str, Any]:
    """Return a seed in the HTTP API's form."""
    result = seed._asdict()
    del result["job"]
    return {**result, "outputs_from": 0, "outputs_total": len(seed.outputs)}
