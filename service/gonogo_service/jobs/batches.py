"""Batches of results: what a worker posts while its attempt runs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from gonogo.reports.forms import SenselessResult
from gonogo_service.devices import periods
from gonogo_service.hosts.senders import ConflictingContent, ForeignSender, Sender, owned
from gonogo_service.jobs import artifacts, closing
from gonogo_service.jobs.attempts import Locked
from gonogo_service.jobs.kinds import kind_of
from gonogo_service.kit.database.states import OPEN_ATTEMPT, AttemptState, ChunkState, JobKind
from gonogo_service.results import store as results
from gonogo_service.results.batch import Batch
from gonogo_service.results.store import Pair

MAX_BATCHES = 100_000
"""A worker sends two a second at the most, for two hours."""


def store(
    session: Session,
    attempt_id: str,
    body: Mapping[str, Any],
    *,
    now: datetime,
    sender: Sender | None,
    digest: str = "",
) -> str | None:
    """Store one batch of results: each (seed, repeat) without a row yet, and the artifacts.

    Returns the job's id when something changed. `sender` None: no host sent it, and nothing is
    checked. `digest` is the message's: a batch that comes twice changes nothing, and one of the
    same number with another content raises ConflictingContent.

    Rows without numbers (hang, crash, error) count only from the chunk's current attempt while it
    is open. Rows with numbers count from a lost attempt too. Results that the attempt was not asked
    for are dropped, and so are those of seeds that a decision has canceled.
    """
    locked = Locked.read(session, attempt_id, now, sender)
    if locked is None:
        return None
    job, chunk, attempt = locked.job, locked.chunk, locked.attempt
    owned(attempt, sender)
    number = _batch_number(body)
    if sender is not None and number is None:  # else nothing bounds what an attempt may send
        raise SenselessResult(f"the batch has the number {str(body.get('batch'))[:40]!r}")
    if digest and number is not None and number in attempt.batches:
        if attempt.batches[number] == digest:
            return None
        raise ConflictingContent(f"batch {number} of attempt {attempt.id} came with other content")
    if job.state.final or (job.sequential is not None and chunk.state == ChunkState.lost):
        return None
    was_open = locked.is_current and attempt.state in OPEN_ATTEMPT
    locked.begin()
    try:
        whole = Batch.parse(body)
    except (AttributeError, KeyError, TypeError, ValueError) as problem:
        reason = f"the rows or columns of the batch have another form: {problem!r}"
        raise SenselessResult(reason[:200]) from problem
    whole.check(of_gauge=job.kind is JobKind.gauge)
    others = {str(row.get("device")) for row in whole.rows} - {str(attempt.device)}
    if sender is not None and others:
        what = f"rows of {sorted(others)[0][:200]!r}"
        raise ForeignSender(f"{what} came for an attempt of {attempt.device}")
    requested = {(seed, repeat) for seed, repeat in attempt.work}
    batch = _fresh(locked, whole, requested)
    closing.record(session, job, attempt.id, batch, now=now)
    evidence = [item for item in body.get("artifacts") or () if _pair(item) in requested]
    if left_out := artifacts.add(session, job.id, attempt.id, evidence, now=now):
        most = f"{artifacts.MAX_BYTES} bytes of attempt {attempt.id}"
        locked.refuse("size", f"{left_out} artifacts beyond {most}")
    if attempt.state in OPEN_ATTEMPT:
        attempt.heard_at = now
    if number is not None:
        attempt.batches = {**attempt.batches, number: digest}
    session.flush()
    closing.advance_sequential(session, job, now=now)
    if attempt.state == AttemptState.reported:
        locked.conclude()
    elif not was_open and chunk.state == ChunkState.waiting and not locked.lacks(chunk.work):
        closing.end_chunk(session, job, chunk, ChunkState.done, now=now)
    session.flush()
    if batch.rows and kind_of(job).on_devices:
        periods.record_seeds(session, attempt.device, len(batch), now=now)
    return job.id


def _batch_number(body: Mapping[str, Any]) -> str | None:
    number = body.get("batch")
    is_number = type(number) is int and 0 <= number < MAX_BATCHES
    return str(number) if is_number else None


def _pair(item: Mapping[str, Any]) -> Pair:
    return int(item["seed"]), int(item.get("repeat") or 0)


def _fresh(locked: Locked, batch: Batch, requested: set[Pair]) -> Batch:
    """Return the rows that were asked for, count and aren't stored yet.

    Others than those that are stored for the same seed are held against their sender.
    """
    counts_all = locked.is_current and locked.attempt.state in OPEN_ATTEMPT
    with_outputs = set() if counts_all else batch.with_outputs()
    places: dict[Pair, int] = {}
    for place, row in enumerate(batch.rows):
        if counts_all or place in with_outputs:
            places.setdefault(_pair(row), place)
    stored = results.present(locked.session, locked.job.id, list(places))
    if locked.sender is not None and stored:
        again = batch.take(sorted(places[pair] for pair in stored))
        for sentence in results.contradicted(locked.session, locked.job.id, again)[:1]:
            locked.refuse("conflict", sentence)
    return batch.take([places[pair] for pair in places if pair in requested and pair not in stored])
