"""Seed results: stored in bulk, and read as pages (by arrival or by seed) or as a stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from sqlalchemy import func, select, tuple_
from sqlalchemy.orm import Session

from gonogo_service.gauges.model import GaugeResultRow
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.dialect import insert_once, load_once
from gonogo_service.kit.database.encoding import storable
from gonogo_service.kit.database.ids import is_id
from gonogo_service.kit.database.paging import BadCursor, Page, numbers
from gonogo_service.results.rows import SeedLayoutRow, SeedResultRow, SeedSourceRow
from gonogo_service.results.seed_rows import slots, stored
from gonogo_service.results.seed_rows.batch import Batch
from gonogo_service.results.seed_rows.stored import StoredSeed

Pair = tuple[int, int]
_SOURCE = ("device", "host_run", "arithmetic", "judge")
_COLUMNS = (
    *("job_id", "seed", "repeat", "arrival", "source", "verdict", "explanation", "position"),
    *("duration_ms", "message", *slots.NAMES, "layout", "numbers", "rest"),
)


def page(
    session: Session,
    job_id: str,
    *,
    limit: int = 100,
    cursor: str | None = None,
    order: Literal["arrival", "seed"] = "arrival",
    most_outputs: int | None = None,
) -> Page[dict[str, Any]]:
    """Return a page of results, one per (seed, repeat), in the HTTP API's form.

    By arrival the cursor is the number of results read so far, so that a reader of a running job
    misses none. By seed it is "seed.repeat". Raises BadCursor.

    most_outputs: outputs of the whole page. A seed that doesn't fit begins the next page. Only one
    with more than these comes on several pages, each with the next ones by name: an iteration of a
    selection may have 20,000 tests.
    """
    if not is_id(job_id):
        return Page((), None)
    table = SeedResultRow
    of_job = stored.query(table.job_id == job_id)
    place, skip = _place(cursor, 1 if order == "arrival" else 2)
    if order == "arrival":
        (last,) = place or (0,)
        query = of_job.where(table.arrival > last, table.arrival <= last + limit + 1)
        query = query.order_by(table.arrival)
    else:
        key, after = tuple_(table.seed, table.repeat), tuple_(*(place or (-1, -1)))
        query = of_job.where(key >= after if skip else key > after)
        query = query.order_by(*stored.BY_SEED).limit(limit + 1)
    items: list[dict[str, Any]] = []
    left = most_outputs
    for seed in stored.read(session, query):
        if len(items) == limit or (items and left is not None and len(seed.outputs) > left):
            return Page(tuple(items), _cursor(items[-1], order))
        if skip and skip >= len(seed.outputs):
            raise BadCursor(cursor)
        item = _result(seed)
        if left is not None:
            names = sorted(seed.outputs)[skip:] if skip or len(seed.outputs) > left else None
            if names is not None:
                item["outputs"] = {name: seed.outputs[name] for name in names[:left]}
                item["outputs_from"] = skip
            left -= len(item["outputs"])
            if names is not None and left <= 0 and len(names) > len(item["outputs"]):
                read = skip + len(item["outputs"])
                return Page((*items, item), _cursor(item, order, read))
        skip = 0
        items.append(item)
    return Page(tuple(items), None)


def _place(cursor: str | None, parts: int) -> tuple[tuple[int, ...] | None, int]:
    """Return the place in a cursor, and the number of outputs of its result that were read."""
    if cursor is not None and cursor.count(".") == parts:
        *place, skip = numbers(cursor, parts + 1) or ()
        return tuple(place), skip
    return numbers(cursor, parts), 0


def _cursor(item: Mapping[str, Any], order: str, read: int = 0) -> str:
    """Return the cursor after an item, or after `read` of its outputs."""
    tail = f".{read}" if read else ""
    if order == "arrival":
        return f"{item['arrival'] - bool(read)}{tail}"
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


def get(session: Session, job_id: str, seed: int, repeat: int = 0) -> dict[str, Any] | None:
    """Return the result of one (seed, repeat) of a job, or None."""
    table = SeedResultRow
    query = stored.query(table.job_id == job_id, table.seed == seed, table.repeat == repeat)
    return next(map(_result, stored.read(session, query)), None)


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
    pairs = {(seed, repeat) for seed, repeat in session.execute(query.union(other))}
    return pairs & {(int(seed), int(repeat)) for seed, repeat in work}


def contradicted(session: Session, job_id: str, batch: Batch) -> list[str]:
    """Return, in words, the rows of a batch that differ from those stored for the same seed.

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
    seeds = [seed for seed, _ in claims]
    table = SeedResultRow
    known = stored.query(table.job_id == job_id, table.seed.between(min(seeds), max(seeds)))
    words = []
    for seed in stored.read(session, known, "digest"):
        claim = claims.get((seed.seed, seed.repeat))
        if claim is None:
            continue
        verdict, claimed, row = claim
        if verdict != seed.verdict or any(
            output.get("digest") != claimed.get(name, {}).get("digest")
            for name, output in seed.outputs.items()
        ):
            words.append(
                f"seed {seed.seed} of job {job_id} is stored as {seed.verdict} by {seed.device};"
                f" {row.get('device')} sent {verdict} or other bits"
            )
    return words


def add(session: Session, job: JobRow, attempt_id: str, batch: Batch, *, arrival: int) -> None:
    """Insert new seeds.

    The caller holds the job's lock and knows that the seeds are new. `arrival` is the last number
    in use.
    """
    # Imported here because it loads NumPy, which the API doesn't need.
    from gonogo_service.results.seed_rows.packing import pack

    rows = batch.rows
    packed = pack(batch)
    layouts = {layout.id: layout for layout in packed.layouts if layout is not None}
    contents = [{"id": id_, "content": layouts[id_].outputs} for id_ in sorted(layouts)]
    durations = [row.get("duration_ms") for row in rows]
    columns: Sequence[Sequence[Any]] = (
        [job.id] * len(rows),
        [int(row["seed"]) for row in rows],
        [int(row["repeat"]) for row in rows],
        range(arrival + 1, arrival + 1 + len(rows)),
        _sources(session, job.id, attempt_id, rows),
        [str(row["verdict"]) for row in rows],
        [row.get("explanation") for row in rows],
        [row.get("position") for row in rows],
        [None if ms is None or ms - ms != 0 else ms for ms in durations],
        [storable(row.get("message")) for row in rows],
        *slots.values(slots.assign(job, batch), batch),
        [None if layout is None else layout.id for layout in packed.layouts],
        packed.numbers,
        packed.rest,
    )
    insert_once(session, SeedLayoutRow, contents)
    load_once(session, SeedResultRow, dict(zip(_COLUMNS, columns, strict=True)))


def _sources(
    session: Session, job_id: str, attempt_id: str, rows: Sequence[Mapping[str, Any]]
) -> list[int]:
    """Return the number of each row's source; new sources are stored."""
    table = SeedSourceRow
    names = ("attempt_id", *_SOURCE)
    query = select(table.number, *(getattr(table, name) for name in names))
    of_attempt = query.where(table.job_id == job_id, table.attempt_id == attempt_id)
    known = {tuple(key): number for number, *key in session.execute(of_attempt)}
    columns = [[row.get(name) for row in rows] for name in _SOURCE]
    keys = [(attempt_id, *key) for key in zip(*columns, strict=True)]
    new_keys = [key for key in dict.fromkeys(keys) if key not in known]
    new: list[dict[str, Any]] = []
    if new_keys:
        last = session.scalar(select(func.max(table.number)).where(table.job_id == job_id)) or 0
        known |= {key: number for number, key in enumerate(new_keys, last + 1)}
        new = [
            {"job_id": job_id, "number": known[key], **dict(zip(names, key, strict=True))}
            for key in new_keys
        ]
    insert_once(session, table, new)
    return [known[key] for key in keys]


def _result(seed: StoredSeed) -> dict[str, Any]:
    """Return a seed in the HTTP API's form."""
    return {
        "seed": seed.seed,
        "repeat": seed.repeat,
        "verdict": seed.verdict,
        "explanation": seed.explanation,
        "device": seed.device,
        "host_run": seed.host_run,
        "position": seed.position,
        "duration_ms": seed.duration_ms,
        "arithmetic": seed.arithmetic,
        "judge": seed.judge,
        "message": seed.message,
        "attempt": seed.attempt,
        "arrival": seed.arrival,
        "outputs": seed.outputs,
        "outputs_from": 0,
        "outputs_total": len(seed.outputs),
    }
