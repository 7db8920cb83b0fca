"""Assess a variant when one of its jobs is over: why it flickers, its grade, what changed.

Reads and statistics only; `gonogo_service.tests.assessments` stores the result. It loads numpy,
so the API process must not import it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy.orm import Session

from gonogo.devices.suspicion import Suspicion
from gonogo.flakiness import masking
from gonogo.flakiness.attribution import Attribution, attribute
from gonogo.flakiness.changes import number_changes, rate_changes
from gonogo.flakiness.grades import Grade, grade, hollow
from gonogo.flakiness.history import Changes
from gonogo.flakiness.policy import POLICY
from gonogo.flakiness.rates import Outcome, Rate, rate
from gonogo_service.devices import sick_devices
from gonogo_service.flags.evidence_kinds import ReadExtent
from gonogo_service.gauges import store as gauges
from gonogo_service.tests import build_series, error_signature_runs, samples
from gonogo_service.tests.points import Point, PointsReader
from gonogo_service.tests.samples import Run
from gonogo_service.tests.trends import StoredTrend
from gonogo_service.tests.variants import JobFacts, Variant, job_of, jobs_of

Missed = Callable[[Session, Variant], Mapping[str, Rate]]
"""Returns the pass rate of each known-wrong kernel on a variant's test, by its newest gauge."""


def gauged(session: Session, variant: Variant) -> Mapping[str, Rate]:
    """Return the miss rates from the newest gauge of a variant; {} where none has measured it."""
    sharpness = gauges.sharpness_of(
        session, variant.test_key, variant.branch, variant.arch, variant.board
    )
    return {name: rate(missed.count, missed.of) for name, missed in sharpness.items()}


@dataclass(frozen=True)
class Assessment:
    """The assessment of one build of a variant, the build of the job that is over.

    `changes` and `builds` cover the whole branch.
    """

    variant: Variant
    job: JobFacts
    attribution: Attribution
    grade: Grade
    change: masking.BuildChange | None
    """The change since the nearest earlier build with judged seeds; None: there is none."""
    changes: Mapping[str, Any]
    builds: tuple[Mapping[str, Any], ...]
    """The builds, newest first, as dicts.

    Keys: "build", "sequence", "jobs", "seeds", "counts", "failures", "runs", "last_job".
    """
    era: tuple[str, ...]
    """Earlier builds whose errors look the same; the tail was fitted to their seeds too."""
    extent: ReadExtent
    left_out: Mapping[str, Mapping[str, Any]]
    """Sick devices, each with the number of its runs that were left out, and the reason."""
    runs: tuple[Run, ...]
    """The runs of this build, without those on sick devices."""
    jobs: tuple[JobFacts, ...]
    """The jobs of the whole branch, newest first."""
    trends: tuple[StoredTrend, ...] = ()
    """Trends for the pages of the variant and of its workload's other tests.

    They are stored beside the assessment, not in it.
    """

    def to_json(self) -> dict[str, Any]:
        """Return what a row stores: without the runs, and with the job as its id and build."""
        return {
            **asdict(self.variant),
            "build": self.job.build,
            "build_sequence": self.job.sequence,
            "job": self.job.id,
            "attribution": asdict(self.attribution),
            "grade": asdict(self.grade),
            "change": None if self.change is None else asdict(self.change),
            "changes": dict(self.changes),
            "builds": [dict(build) for build in self.builds],
            "era": list(self.era),
            "extent": asdict(self.extent),
            "left_out": {device: dict(note) for device, note in self.left_out.items()},
            "policy": POLICY.version,
        }


def assess(
    session: Session,
    job_id: str,
    *,
    missed: Missed = gauged,
    suspicions: Mapping[str, Suspicion] | None = None,
    reader: PointsReader | None = None,
) -> Assessment | None:
    """Assess the variant of a job that is over.

    Returns None where there is nothing to assess: the job is not over, has no seed, or compares two
    builds.

    suspicions: devices that are suspected at this moment. Runs from a time when a device was
    suspect or bad are left out anyway. Stability, attribution and the comparison are of the job's
    build. Where all its seeds are green, the tail includes the seeds of earlier builds whose errors
    look the same (`era`). A seed that gives the same result again is the same observation
    (`samples.distinct`, `tail_of`).

    reader: reads the points of its series, and maybe of others afterwards.
    """
    job = job_of(session, job_id)
    if job is None or not job.done:
        return None
    variant = job.variant
    branch = jobs_of(session, variant)
    # the job comes first, even where a clock that went back has put it among older ones
    others = tuple(other for other in branch if other.id != job.id)
    same_build = (job, *(other for other in others if other.build == job.build))
    change, era = error_signature_runs.compare_with_earlier(session, job, same_build, others)
    pooled = (*same_build, *(other for other in others if other.build in era))
    history = samples.of_jobs(session, variant, pooled)
    well_runs, left_out, sick = _without_sick(session, history.runs, suspicions or {})
    build_runs = tuple(run for run in well_runs if run.job.build == job.build)
    if not build_runs and left_out:
        everything = samples.of_runs(run for run in history.runs if run.job.build == job.build)
        attribution = attribute(everything, sick)
    else:
        attribution = attribute(samples.of_runs(build_runs))
    read_all = history.extent.seeds == history.extent.of_seeds
    build_failures = (
        attribution.failures
        if read_all or left_out or job.selection
        else samples.failures_of(same_build)
    )
    failures, pool = build_failures, build_runs
    if build_failures.known and not build_failures.failures:
        era = error_signature_runs.with_same_errors(well_runs, job.build, era)
        pool = tuple(run for run in well_runs if run.job.build in (job.build, *era))
    else:
        era = ()
    distinct = samples.distinct(pool)
    if read_all or left_out or job.selection:
        failures = _failures(distinct) if build_failures.known else build_failures
    # This build's runs come last: where a seed counts once, its newest number counts.
    fitted = samples.tail_of(sorted(pool, key=lambda run: run.job.build == job.build))
    green = _green(same_build if not left_out else None, build_runs)
    grade_result = grade(
        failures, fitted if not job.selection else None, missed(session, variant), green
    )
    return Assessment(
        variant,
        job,
        attribution,
        grade_result,
        change,
        _changes(reader or PointsReader(session), variant),
        _builds((job, *others)),
        era,
        history.extent,
        left_out,
        build_runs,
        tuple(sorted((job, *others), key=lambda job_facts: job_facts.id, reverse=True)),
    )


def _without_sick(
    session: Session, runs: Sequence[Run], suspicions: Mapping[str, Suspicion]
) -> tuple[list[Run], dict[str, dict[str, Any]], dict[str, Suspicion]]:
    """Split off the runs on sick devices.

    Returns (runs on well devices, what was left out by device, the devices for attribution).
    """
    spells = sick_devices.spells(session, {run.device for run in runs if run.device})
    sick = dict(suspicions)
    left_out: dict[str, dict[str, Any]] = {}
    well_runs = []
    for run in runs:
        reason = _sick(run, spells, suspicions)
        if reason is None or run.device is None:
            well_runs.append(run)
            continue
        entry = left_out.setdefault(run.device, {"runs": 0, "words": reason})
        entry["runs"] += 1
        for spell in spells.get(run.device, ()):
            sick.setdefault(run.device, Suspicion(run.device, spell.failing, spell.tests, ()))
    return well_runs, left_out, sick


def _sick(
    run: Run,
    spells: Mapping[str, Sequence[sick_devices.Spell]],
    suspicions: Mapping[str, Suspicion],
) -> str | None:
    if run.device is None:
        return None
    ended = run.job.finished_at or run.job.created_at
    for spell in spells.get(run.device, ()):
        if spell.covers(run.job.created_at, ended):
            return spell.words
    suspicion = suspicions.get(run.device)
    return None if suspicion is None else suspicion.words


def _failures(runs: Sequence[Run]) -> Rate:
    outcomes = [sample.outcome for sample in samples.of_runs(runs)]
    failed = outcomes.count(Outcome.failed)
    return rate(failed, failed + outcomes.count(Outcome.passed))


def _green(jobs: Sequence[JobFacts] | None, runs: Sequence[Run]) -> Rate:
    """Return the rate of unexplained seeds among the green seeds of a build.

    It is over whole jobs or, where sick devices were left out, over the runs.
    """
    counted = [Counter(run.verdict for run in runs)] if jobs is None else [j.counts for j in jobs]
    return hollow(counted)


def _builds(jobs: Sequence[JobFacts]) -> tuple[dict[str, Any], ...]:
    builds: dict[str, dict[str, Any]] = {}
    for job in jobs:
        empty = {
            "build": job.build,
            "sequence": job.sequence,
            "jobs": 0,
            "seeds": 0,
            "counts": {},
            "failures": 0,
            "runs": 0,
        }
        empty["last_job"] = job.id
        entry = builds.setdefault(job.build, empty)
        entry["jobs"] += 1
        entry["seeds"] += job.done
        entry["last_job"] = max(entry["last_job"], job.id)
        for verdict, number in job.counts.items():
            entry["counts"][verdict] = entry["counts"].get(verdict, 0) + number
        outcomes = samples.outcomes_of(job)
        entry["failures"] += outcomes[Outcome.failed]
        entry["runs"] += outcomes[Outcome.failed] + outcomes[Outcome.passed]
    newest = sorted(
        builds.values(), key=lambda entry: (entry["sequence"], entry["build"]), reverse=True
    )
    return tuple(newest[: build_series.MAX_BUILDS])


def _changes(reader: PointsReader, variant: Variant) -> dict[str, Any]:
    """Find where the error or the rate moved.

    Returns {"build" | "day": {"points": [names], "rates": changes, "numbers": {output: changes}}}.
    """
    changes: dict[str, Any] = {}
    for by in ("build", "day"):
        points = reader.points(variant, by="build" if by == "build" else "day")
        at = [point.at for point in points]
        outputs = sorted({output for point in points for output in point.numbers})
        numbers = {
            output: _named(
                number_changes([point.numbers.get(output, ()) for point in points], at),
                points,
            )
            for output in outputs
        }
        rates = rate_changes([(point.failures, point.runs) for point in points], at)
        changes[by] = {
            "points": [point.name for point in points],
            "metric": reader.metric,
            "rates": _named(rates, points),
            "numbers": numbers,
        }
    return changes


def _named(changes: Changes, points: Sequence[Point]) -> dict[str, Any]:
    """Add the names of builds or days to the changes, at their place and their interval's ends."""
    plain = asdict(changes)
    plain["changes"] = [
        {
            **change,
            "from": points[change["place"] - 1].name if change["place"] else None,
            "name": points[change["place"]].name,
            "low_name": points[change["low"]].name,
            "high_name": points[change["high"]].name,
        }
        for change in plain["changes"]
    ]
    return plain
