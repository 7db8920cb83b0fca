"""A build of a variant against the ones before it: fixed, masked or unchanged, and how far back its
errors are the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.orm import Session

from gonogo.flakiness import masking
from gonogo.flakiness.contrasts import welch
from gonogo.flakiness.policy import FlakinessPolicy
from gonogo.flakiness.rates import Outcome
from gonogo_storage.history import build_series, samples
from gonogo_storage.history.samples import Run
from gonogo_storage.rollups.variants import JobFacts

MOST_COMPARED = 10
"""Builds back to which a build is compared."""
COMPARED_SEEDS = 32
_SAME = (masking.Change.unchanged, masking.Change.right, masking.Change.still_wrong)


def compared(
    session: Session,
    job: JobFacts,
    own: Sequence[JobFacts],
    others: Sequence[JobFacts],
    policy: FlakinessPolicy,
) -> tuple[masking.BuildChange | None, tuple[str, ...]]:
    """(what became of the kernel since the build before, the builds before that are the same and
    all green, back from the job's).
    """
    before = [each for each in others if (each.sequence, each.build) < (job.sequence, job.build)]
    if job.selection or not before:
        return None, ()
    records = build_series.records(
        session, (*own, *before), most=MOST_COMPARED, seeds=COMPARED_SEEDS
    )
    seeds: dict[str, int] = {}
    red = set()
    for each in (*own, *before):
        seeds[each.build] = seeds.get(each.build, 0) + each.done
        if samples.outcomes_of(each)[Outcome.failed]:
            red.add(each.build)
    last: masking.BuildChange | None = None
    era: list[str] = []
    after = records[-1]
    total = seeds[job.build]
    for earlier in reversed(
        records[:-1]
    ):  # as masking.series, but back from the newest, and no further than anything is asked of
        if not masking.judged(earlier):
            continue
        step = masking.compare_builds(earlier, after, policy)
        last = last or step
        if (
            step.change not in _SAME
            or red & {earlier.build, job.build}
            or total >= policy.tail_most
        ):
            break
        era.append(earlier.build)
        total += seeds[earlier.build]
        after = earlier
    return last, tuple(era)


def alike(
    runs: Sequence[Run], build: str, era: Sequence[str], policy: FlakinessPolicy
) -> tuple[str, ...]:
    """The builds of an era, newest first, back to the first whose tolerance_ratios differ from
    those of the newer ones (Welch's test): seeds of a build whose errors were larger, though
    explained, would make a tail that is none of this build's.
    """
    ratios: dict[str, list[float]] = {}
    for run in samples.distinct(runs):
        if run.ratio is not None:
            ratios.setdefault(run.job.build, []).append(run.ratio)
    pool = list(ratios.get(build, ()))
    kept: list[str] = []
    for name in era:
        other = ratios.get(name, [])
        if welch(pool, other).p <= policy.significance:
            break
        kept.append(name)
        pool += other
    return tuple(kept)
