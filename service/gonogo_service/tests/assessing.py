"""Assess a variant when one of its jobs is over: why it flickers, its grade, what changed.

Reads and statistics only; `gonogo_service.tests.assessments` stores the result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field
from typing import Any

from sqlalchemy.orm import Session

from gonogo.devices.suspicion import Suspicion
from gonogo.flakiness import masking
from gonogo.flakiness.attribution import Attribution, attribute
from gonogo.flakiness.contrasts import welch
from gonogo.flakiness.grades import Grade, grade, hollow
from gonogo.flakiness.policy import POLICY
from gonogo.flakiness.rates import Outcome
from gonogo_service.devices import sick_devices
from gonogo_service.flags.evidence_kinds import ReadExtent
from gonogo_service.gauges import store as gauges
from gonogo_service.tests import build_series, samples
from gonogo_service.tests.samples import Run
from gonogo_service.tests.variants import ENDED, JobFacts, Variant, job_of, jobs_of

MAX_COMPARED = 10
"""Number of builds back to which a build is compared."""
COMPARED_SEEDS = 32
_SAME = (masking.Change.unchanged, masking.Change.right, masking.Change.still_wrong)


@dataclass(frozen=True)
class Assessment:
    """The assessment of one build of a variant, the build of the job that is over."""

    job: JobFacts
    attribution: Attribution
    grade: Grade
    change: masking.BuildChange | None
    """The change since the nearest earlier build with judged seeds; None: there is none."""
    era: tuple[str, ...]
    """Earlier builds whose errors look the same; the tail was fitted to their seeds too."""
    extent: ReadExtent
    left_out: Mapping[str, Mapping[str, Any]]
    """Sick devices, each with the number of its runs that were left out, and the reason."""
    runs: tuple[Run, ...]
    """The runs of this build, without those on sick devices."""
    jobs: tuple[JobFacts, ...]
    """The jobs of the whole branch, newest first."""
    trends: Mapping[str, Any] = field(default_factory=dict)
    """The stored form of the trends, from gonogo_service.tests.trends.to_store."""

    @property
    def variant(self) -> Variant:
        """Return the variant."""
        return self.job.variant

    def to_json(self) -> dict[str, Any]:
        """Return what a row keeps of it besides its columns."""
        return {
            "attribution": asdict(self.attribution),
            "grade": asdict(self.grade),
            "era": list(self.era),
            "extent": asdict(self.extent),
            "left_out": {device: dict(note) for device, note in self.left_out.items()},
            "trends": dict(self.trends),
        }


def assess(
    session: Session,
    job_id: str,
    *,
    suspicions: Mapping[str, Suspicion] | None = None,
) -> Assessment | None:
    """Assess the variant of a job that is over.

    Returns None where there is nothing to assess: the job is not over, has no seed, compares two
    builds, or is a run of a bisection.

    suspicions: devices that are suspected at this moment. Runs from a time when a device was
    suspect or bad are left out anyway. Stability, attribution and the comparison are of the job's
    build. Where all its seeds are green, the tail includes the seeds of earlier builds whose errors
    look the same (`era`). A seed that gives the same result again is the same observation
    (`samples.distinct`, `tail_of`).
    """
    job = job_of(session, job_id, ENDED)
    if job is None:
        return None
    # the job comes first, even where a clock that went back has put it among older ones
    others = tuple(other for other in jobs_of(session, job.variant) if other.id != job.id)
    same_build = (job, *(other for other in others if other.build == job.build))
    change, era = _compare_with_earlier(session, job, same_build, others)
    pooled = (*same_build, *(other for other in others if other.build in era))
    history = samples.of_jobs(session, pooled)
    well, left_out, sick = _without_sick(session, history.runs, suspicions or {})
    build_runs = tuple(run for run in well if run.job.build == job.build)
    if not build_runs and left_out:
        everything = samples.of_runs(run for run in history.runs if run.job.build == job.build)
        attribution = attribute(everything, sick)
    else:
        attribution = attribute(samples.of_runs(build_runs))
    by_runs = bool(
        history.extent.seeds == history.extent.of_seeds or left_out or job.selection
    )  # else by the counters of whole jobs
    failures = attribution.failures if by_runs else samples.failures_of(same_build)
    pool: Sequence[Run] = build_runs
    if failures.known and not failures.failures:
        era = _with_same_errors(well, job.build, era)
        pool = [run for run in well if run.job.build in (job.build, *era)]
    else:
        era = ()
    if by_runs and failures.known:
        failures = samples.failures_of_runs(samples.distinct(pool))
    # This build's runs come last: where a seed counts once, its newest number counts.
    fitted = samples.tail_of(sorted(pool, key=lambda run: run.job.build == job.build))
    green = (
        [Counter(run.verdict for run in build_runs)]
        if left_out
        else [of_build.counts for of_build in same_build]
    )
    graded = grade(
        failures,
        None if job.selection else fitted,
        gauges.misses(session, *astuple(job.variant)),
        hollow(green),
    )
    jobs = tuple(sorted((job, *others), key=lambda one: one.id, reverse=True))
    return Assessment(
        job, attribution, graded, change, era, history.extent, left_out, build_runs, jobs
    )


def _without_sick(
    session: Session, runs: Sequence[Run], suspicions: Mapping[str, Suspicion]
) -> tuple[list[Run], dict[str, dict[str, Any]], dict[str, Suspicion]]:
    """Split off the runs on sick devices.

    Returns (runs on well devices, what was left out by device, the devices for attribution).
    """
    spells = sick_devices.spells(session, {run.device for run in runs if run.device})
    sick, well = dict(suspicions), []
    left_out: dict[str, dict[str, Any]] = {}
    for run in runs:
        reason = _sick(run, spells, suspicions)
        if reason is None or run.device is None:
            well.append(run)
            continue
        left_out.setdefault(run.device, {"runs": 0, "words": reason})["runs"] += 1
        for spell in spells.get(run.device, ()):
            sick.setdefault(run.device, Suspicion(run.device, spell.failing, spell.tests))
    return well, left_out, sick


def _sick(
    run: Run,
    spells: Mapping[str, Sequence[sick_devices.Spell]],
    suspicions: Mapping[str, Suspicion],
) -> str | None:
    """Return why a run says nothing about its test; None if its device was well."""
    device = run.device or ""
    reason = sick_devices.spell_of(spells, device, run.job) or suspicions.get(device)
    return None if reason is None else reason.words


def _compare_with_earlier(
    session: Session, job: JobFacts, same_build: Sequence[JobFacts], others: Sequence[JobFacts]
) -> tuple[masking.BuildChange | None, tuple[str, ...]]:
    """Compare a job's build with the earlier builds of its variant.

    Returns (the change since the build before, the earlier builds with the same errors and all
    green, newest first).
    """
    here = job.sequence, job.build
    earlier_jobs = [other for other in others if (other.sequence, other.build) < here]
    if job.selection or not earlier_jobs:
        return None, ()
    compared = (*same_build, *earlier_jobs)
    *records, after = build_series.records(
        session, compared, most=MAX_COMPARED, seeds=COMPARED_SEEDS
    )
    seeds: Counter[str] = Counter()
    for one in compared:
        seeds[one.build] += one.done
    red = {one.build for one in compared if samples.outcomes_of(one)[Outcome.failed]}
    last: masking.BuildChange | None = None
    era: list[str] = []
    total = seeds[job.build]
    # like masking.series, but backward from the newest, and no further than needed
    for earlier in filter(masking.judged, reversed(records)):
        step = masking.compare_builds(earlier, after)
        last = last or step
        differs = step.change not in _SAME or red & {earlier.build, job.build}
        if differs or total >= POLICY.tail_most:
            break
        era.append(earlier.build)
        total += seeds[earlier.build]
        after = earlier
    return last, tuple(era)


def _with_same_errors(runs: Sequence[Run], build: str, era: Sequence[str]) -> tuple[str, ...]:
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
