"""The tests of a selection's job, each with its outcomes over all iterations. Reads only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Any

from sqlalchemy import Select
from sqlalchemy.orm import Session

from gonogo.spec.selections import KERNEL
from gonogo.spec.verdicts import WORST_FIRST
from gonogo_service.jobs.job import Job
from gonogo_service.results.rows import SeedResultRow
from gonogo_service.results.seed_rows import slots, stored
from gonogo_service.results.seed_rows.stored import StoredSeed
from gonogo_service.results.seed_rows.unpacking import statistics_of

_WORST_OUTCOME = {
    "error": 0,
    "crash": 1,
    "hang": 2,
    "failed": 3,
    "skipped": 4,
    "not_run": 5,
    "passed": 6,
}
_RANK = {str(verdict): verdict.rank for verdict in WORST_FIRST}


@dataclass(frozen=True)
class TestRecord:
    """One test of a job over its iterations.

    `sample` is the entry of the worst iteration, as the worker sent it.
    """

    __test__ = False  # pytest: not a test case

    name: str
    verdict: str
    outcomes: Mapping[str, int]
    iteration: int
    repeat: int
    sample: Mapping[str, Any] = field(default_factory=dict)


def judged_outputs(session: Session, job_id: str) -> set[str]:
    """Return the outputs with numbers: the arrays that tests handed over."""
    if not slots.with_numbers(session, [job_id]):
        return set()
    return {
        name
        for seed in stored.read(session, _of_job(job_id), "outcome")
        for name, output in seed.outputs.items()
        if output.get("outcome") is None
    }


def census(session: Session, job: Job) -> dict[tuple[str, str | None], int]:
    """Count the seeds of a kernel's job, or a selection's tests, by (verdict, outcome).

    A selection's tests count once for each iteration.
    """
    if job.kernel != KERNEL:
        return {(verdict, None): number for verdict, number in job.counts.items()}
    runs: Counter[tuple[str, str | None]] = Counter()
    for seed in stored.read(session, _of_job(job.id), "outcome"):
        if not seed.outputs:
            runs[seed.verdict, None] += 1
        for output in seed.outputs.values():
            if output.get("outcome") is not None:
                runs[output["verdict"], output["outcome"]] += 1
    return dict(runs)


def tests(
    session: Session, job_id: str, limit: int, *, skip: int, search: str
) -> tuple[list[TestRecord], int]:
    """Return the worst `limit` tests of a job after the first `skip`, and the number of all.

    Only those count whose names hold the text of `search`, whatever its case.

    The order is the worst verdict, then the worst outcome (red before green), then the name.
    """
    worst: dict[str, tuple[tuple[int, int, int, int], dict[str, Any]]] = {}
    counts: dict[str, Counter[str]] = {}
    for name, seed, output in _runs(session, job_id):
        if search.casefold() not in name.casefold():
            continue
        counts.setdefault(name, Counter())[output["outcome"]] += 1
        verdict = _RANK.get(output["verdict"], len(_RANK))
        place = (verdict, _WORST_OUTCOME.get(output["outcome"], 0), seed.seed, seed.repeat)
        if name not in worst or place < worst[name][0]:
            worst[name] = place, output
    ordered = nsmallest(skip + limit, worst, key=lambda name: (*worst[name][0][:2], name))[skip:]
    records = [
        TestRecord(
            name,
            worst[name][1]["verdict"],
            dict(sorted(counts[name].items(), key=lambda item: _WORST_OUTCOME.get(item[0], 0))),
            *worst[name][0][2:],
            statistics_of(worst[name][1]),
        )
        for name in ordered
    ]
    return records, len(worst)


def _of_job(job_id: str) -> Select[Any]:
    return stored.query(SeedResultRow.job_id == job_id)


def _runs(session: Session, job_id: str) -> Iterator[tuple[str, StoredSeed, dict[str, Any]]]:
    """Yield each test of each iteration: its name, the iteration, and its entry."""
    for seed in stored.read(session, _of_job(job_id)):
        for name, output in seed.outputs.items():
            if output.get("outcome") is not None:
                yield name, seed, output
