"""Whether a job's outputs were computed by another arithmetic than on its branch's earlier builds.

Reads only.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy.orm import Session

from gonogo.flakiness.arithmetic_changes import (
    LAST_BUILDS,
    MIN_ELEMENTS,
    ArithmeticChange,
    BuildPrograms,
    changes,
    pooled,
)
from gonogo_service.results import arithmetics
from gonogo_service.tests.variants import JobFacts, judged_alike

MAX_JOBS = 2
"""Newest jobs of each earlier build that are read."""
MAX_BUILDS = 2 * LAST_BUILDS
"""Earlier builds that are read; those whose seeds agree on no arithmetic have no vote."""


def changed(
    session: Session,
    job: JobFacts,
    jobs: Sequence[JobFacts],
    *,
    without: Collection[str] = (),
) -> tuple[ArithmeticChange, ...]:
    """Return the outputs whose arithmetic is another one than on the earlier builds.

    job: the ended job. jobs: those of its variant, newest first. without: devices whose seeds are
    left out, because they were sick.
    """
    here = arithmetics.of_jobs(session, [job.id], min_elements=MIN_ELEMENTS, without=without)
    if job.id not in here:
        return ()
    earlier: dict[tuple[int, str], list[str]] = {}
    for other in judged_alike((job, *jobs)):
        if other.sequence < job.sequence and other.build != job.build:
            earlier.setdefault((other.sequence, other.build), []).append(other.id)
    newest = sorted(earlier, reverse=True)[:MAX_BUILDS]
    ids = [job_id for build in newest for job_id in earlier[build][:MAX_JOBS]]
    read = arithmetics.of_jobs(session, ids, min_elements=MIN_ELEMENTS, without=without)
    before = [
        pooled(build[1], [read[id_] for id_ in earlier[build][:MAX_JOBS] if id_ in read])
        for build in newest
    ]
    return changes(BuildPrograms(job.build, here[job.id]), before)
