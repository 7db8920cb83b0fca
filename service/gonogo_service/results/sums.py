"""The sums over a batch of results, added to the aggregates by upsert."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from typing import Any
from uuid import UUID

import numpy as np
from sqlalchemy import and_, case, delete, or_, select
from sqlalchemy.orm import Session

from gonogo.flakiness.rates import Outcome, outcome_of
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database import dialect
from gonogo_service.results.batch import Batch, is_green, kernel_s
from gonogo_service.results.model import BLOCK, WHOLE, DailyRow, JobBlockRow, Sums
from gonogo_service.tests.variants import COUNTED, context_name

SUMS = tuple(Sums.__annotations__)
KERNEL_SUMS = ("kernel_n", "kernel_log", "kernel_square")
LOGARITHMIC = ("tolerance_ratio", "rounding_ratio", "rms")
TINY = 1e-30
"""Smaller values count as this in the sums of logarithms."""
UNIT = ("test_key", "executor", "build", "branch", "build_sequence", "arch", "board")
"""The columns of a job that its daily sums have, too, besides its context."""
MAXIMA = (*LOGARITHMIC, "max_abs")
_ROOM = 0x676F6E72  # "gonr": the room of the locks


def add(session: Session, job: JobRow, blocks: Sequence[dict[str, Any]]) -> None:
    """Add the sums of new seeds (see `of_batch`) to those of their job and, if it counts, its test.

    The caller holds the job's lock. From here to the commit, other jobs of the test wait.
    """
    dialect.merge(session, JobBlockRow, blocks, _added)
    if _counts(session, job):
        lock(session, job.test_key)
        _add_days(session, job, blocks)


def _counts(session: Session, job: JobRow) -> bool:
    return session.scalar(select(JobRow.id).where(JobRow.id == job.id, COUNTED)) is not None


def lock(session: Session, test_key: str) -> None:
    """Lock a test's daily sums until the transaction ends; lock the job first."""
    dialect.lock(session, _ROOM, test_key)


def recount(session: Session, job: JobRow) -> None:
    """Remove a job's sums, and count its days again from its test's other jobs."""
    table = JobBlockRow
    days = set(session.scalars(select(table.day).where(table.job_id == job.id).distinct()))
    session.execute(delete(table).where(table.job_id == job.id))
    if not days or not _counts(session, job):
        return
    lock(session, job.test_key)
    alike = [getattr(DailyRow, name) == getattr(job, name) for name in UNIT]
    session.execute(delete(DailyRow).where(*alike, DailyRow.day.in_(days)))
    of_unit = [getattr(JobRow, name) == getattr(job, name) for name in UNIT]
    others = select(JobRow.context, *table.__table__.c).join(JobRow, JobRow.id == table.job_id)
    others = others.where(*of_unit, COUNTED, table.day.in_(days))
    _add_days(session, job, session.execute(others).mappings())


def key_of(axes: Mapping[str, Any]) -> str:
    """Return the key of a daily sum: 128 bits of the SHA-256 of its axes."""
    names = (*UNIT, "context", "device", "day", "output", "verdict", "explanation")
    text = "\x1f".join(f"{len(value)}:{value}" for value in (str(axes[name]) for name in names))
    return str(UUID(bytes=hashlib.sha256(text.encode()).digest()[:16]))


def _add_days(session: Session, job: JobRow, blocks: Iterable[Any]) -> None:
    """Add blocks to the days of a job's test; each has the context of its own job, if another."""
    unit = {name: getattr(job, name) for name in UNIT}
    copied = ("device", "day", "output", "verdict", "explanation", *SUMS)
    rows = []
    for block in blocks:
        context = context_name(block.get("context", job.context))
        row = {**unit, "context": context, **{name: block[name] for name in copied}}
        rows.append({"key": key_of(row), **row})
    dialect.merge(session, DailyRow, sorted(rows, key=lambda row: row["key"]), _added)


def _added(old: Any, new: Any) -> dict[str, Any]:
    """Return the sums of two rows; their first seed, where they have one."""
    added = [name for name in (*SUMS, *KERNEL_SUMS) if name in old and name not in MAXIMA]
    changes: dict[str, Any] = {name: old[name] + new[name] for name in added}
    for name in MAXIMA:
        is_larger = or_(old[name].is_(None), new[name] > old[name])
        changes[name] = case((is_larger, new[name]), else_=old[name])
    if "repeat" in old:
        same = and_(new.seed == old.seed, new.repeat < old.repeat)
        is_earlier = or_(new.seed < old.seed, same)
        changes |= {n: case((is_earlier, new[n]), else_=old[n]) for n in ("seed", "repeat")}
    return changes


def of_batch(job_id: str, batch: Batch, day: date) -> list[dict[str, Any]]:
    """Return the sums of seeds by output, block, device, verdict and explanation.

    Existing tests count into their iteration and have no sums of their own, because a suite has
    thousands; the arrays that they hand over have.
    """
    pairs = [(int(row["seed"]), int(row["repeat"])) for row in batch.rows]
    devices = [row.get("device") or "" for row in batch.rows]
    green = {place: is_green(seen) for place, seen in batch.objects.items()}
    with_outputs = batch.with_outputs()
    sums = []
    for output, places, judged, values in _columns(batch):
        groups: dict[tuple[int, str, str, str], list[int]] = {}
        for number, (place, (verdict, explanation)) in enumerate(zip(places, judged, strict=True)):
            key = pairs[place][0] // BLOCK, devices[place], str(verdict), explanation or ""
            groups.setdefault(key, []).append(number)
        for (block, device, verdict, explanation), numbers in sorted(groups.items()):
            of_group = [places[number] for number in numbers]
            seed, repeat = min(pairs[place] for place in of_group)
            outcomes = Counter[Outcome]()
            for is_passed, count in Counter(map(green.get, of_group)).items():
                outcomes[outcome_of(verdict, is_passed)] += count
            times = _times(batch, of_group, with_outputs) if output == WHOLE else _UNTIMED
            where = {"job_id": job_id, "output": output, "block": block, "day": day}
            what = {"verdict": verdict, "explanation": explanation, "device": device}
            first = {"seed": seed, "repeat": repeat, "n": len(of_group)}
            counts = {name: outcomes[Outcome[name]] for name in ("passed", "failed")}
            figures = _figures({name: column[numbers] for name, column in values.items()})
            sums.append({**where, **what, **first, **counts, **times, **figures})
    return sums


def _columns(batch: Batch) -> Iterator[tuple[str, Sequence[int], Sequence[Any], dict[str, Any]]]:
    """Yield (output, places, (verdict, explanation) of each, values): each output, then WHOLE."""
    parts: dict[str, list[tuple[Sequence[int], Any]]] = {}
    for part in batch.judged:
        for output in part.outputs:
            parts.setdefault(output.name, []).append((part.rows, output))
    worst = {name: np.full(len(batch), np.nan) for name in ("tolerance_ratio", "rounding_ratio")}
    for name, of_output in parts.items():
        places = [place for rows, _ in of_output for place in rows]
        values = {
            statistic: np.concatenate([_values(output, statistic) for _, output in of_output])
            for statistic in (*MAXIMA, "pcc_deficit")
        }
        for statistic, largest in worst.items():
            largest[places] = np.fmax(largest[places], values[statistic])
        words = [
            [word for _, output in of_output for word in output.values(key)]
            for key in ("verdict", "explanation")
        ]
        yield name, places, list(zip(*words, strict=True)), values
    judged = [(row["verdict"], row.get("explanation")) for row in batch.rows]
    yield WHOLE, range(len(batch)), judged, worst


def _values(output: Any, statistic: str) -> Any:
    """Return the finite values of a statistic, NaN for others."""
    column = output.find(statistic)
    if column is None:
        given = output.values(statistic)
        column = np.array([np.nan if value is None else value for value in given], np.float64)
    return np.where(np.isfinite(column), np.abs(column), np.nan)


_UNTIMED = {"empty": 0, "duration_ms": 0.0, "timed": 0, "timed_ms": 0.0}
_UNTIMED |= dict.fromkeys(KERNEL_SUMS, 0)


def _times(batch: Batch, places: Sequence[int], with_outputs: set[int]) -> dict[str, Any]:
    """Return the number of seeds without outputs, and the times of all and of the others."""
    given = {place: batch.rows[place].get("duration_ms") for place in places}
    times = {place: ms for place, ms in given.items() if ms is not None and 0 < ms < 1e12}
    timed = [ms for place, ms in times.items() if place in with_outputs]
    seconds = (kernel_s(batch.rows[place]) for place in places)
    logs = [math.log(second) for second in seconds if second is not None]
    return {
        "empty": len(set(places) - with_outputs),
        "duration_ms": float(sum(times.values())),
        "timed": len(timed),
        "timed_ms": float(sum(timed)),
        "kernel_n": len(logs),
        "kernel_log": math.fsum(logs),
        "kernel_square": math.fsum(log * log for log in logs),
    }


def _figures(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the largest values and the sums of statistics."""
    figures: dict[str, Any] = {"max_abs": None, "rms_sum": 0.0}
    figures |= {"pcc_deficit_n": 0, "pcc_deficit_sum": 0.0}
    for name in LOGARITHMIC:
        figures |= {name: None, f"{name}_n": 0, f"{name}_log": 0.0}
    for name, column in values.items():
        places = np.flatnonzero(~np.isnan(column))
        if not len(places):
            continue
        known = column[places]
        sums = {
            name: float(known.max()),
            f"{name}_n": len(known),
            f"{name}_log": float(np.log(np.maximum(known, TINY)).sum()),
            f"{name}_sum": float(known.sum()),
        }
        figures |= {key: value for key, value in sums.items() if key in figures}
    return figures
