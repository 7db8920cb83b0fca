"""Compare a build of a variant with the builds before it.

It says whether the kernel was fixed, masked or unchanged, and how far back its errors are the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.orm import Session

from gonogo.flakiness import masking
from gonogo.flakiness.contrasts import welch
from gonogo.flakiness.policy import POLICY
from gonogo.flakiness.rates import Outcome
from gonogo_service.tests import build_series, samples
from gonogo_service.tests.samples import Run
from gonogo_service.tests.variants import JobFacts

MAX_COMPARED = 10
"""Number of builds back to which a build is compared."""
COMPARED_SEEDS = 32
_SAME = (masking.Change.unchanged, masking.Change.right, masking.Change.still_wrong)


def compare_with_earlier(
    session: Session,
    job: JobFacts,
    same_build: Sequence[JobFacts],
    others: Sequence[JobFacts],
) -> tuple[masking.BuildChange | None, tuple[str, ...]]:
    """Compare a job's build with the earlier builds of its variant.

    Returns (the change since the build before, the earlier builds with the same errors and all
    green, newest first).
    """
    earlier_jobs = [
        job_facts
        for job_facts in others
        if (job_facts.sequence, job_facts.build) < (job.sequence, job.build)
    ]
    if job.selection or not earlier_jobs:
        return None, ()
    records = build_series.records(
        session, (*same_build, *earlier_jobs), most=MAX_COMPARED, seeds=COMPARED_SEEDS
    )
    seeds: dict[str, int] = {}
    red = set()
    for job_facts in (*same_build, *earlier_jobs):
        seeds[job_facts.build] = seeds.get(job_facts.build, 0) + job_facts.done
        if samples.outcomes_of(job_facts)[Outcome.failed]:
            red.add(job_facts.build)
    last: masking.BuildChange | None = None
    era: list[str] = []
    after = records[-1]
    total = seeds[job.build]
    # like masking.series, but backward from the newest, and no further than needed
    for earlier in reversed(records[:-1]):
        if not masking.judged(earlier):
            continue
        step = masking.compare_builds(earlier, after)
        last = last or step
        if (
            step.change not in _SAME
            or red & {earlier.build, job.build}
            or total >= POLICY.tail_most
        ):
            break
        era.append(earlier.build)
        total += seeds[earlier.build]
        after = earlier
    return last, tuple(era)


def with_same_errors(runs: Sequence[Run], build: str, era: Sequence[str]) -> tuple[str, ...]:
    """Return the builds of an era, newest first, whose tolerance ratios look like the newer ones'.

    It stops at the first build that differs (Welch's test). Its seeds had larger errors, though
    explained ones, and would make a tail that isn't this build's.
    """
    ratios: dict[str, list[float]] = {}
    for run in samples.distinct(runs):
        if run.ratio is not None:
            ratios.setdefault(run.job.build, []).append(run.ratio)
    pool = list(ratios.get(build, ()))
    similar: list[str] = []
    for name in era:
        other = ratios.get(name, [])
        if welch(pool, other).p <= POLICY.significance:
            break
        similar.append(name)
        pool += other
    return tuple(similar)
