"""What the stored numbers say of a full variant, computed when one of its jobs is over: why it
flickers, its grade, what changed.

Reads and statistics only; `gonogo_storage.history.assessments` stores the answer. It loads numpy: not for
the API process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from gonogo.devices.suspicion import Suspicion
from gonogo.flakiness import masking
from gonogo.flakiness.attribution import Attribution, attribute
from gonogo.flakiness.changes import Changes, number_changes, rate_changes
from gonogo.flakiness.grades import Grade, grade
from gonogo.flakiness.policy import POLICY, FlakinessPolicy
from gonogo.flakiness.rates import Outcome, Rate, rate
from gonogo.spec.verdicts import Verdict
from gonogo_storage.devices import sick_devices
from gonogo_storage.gauges import gauges
from gonogo_storage.history import build_series, error_signature_runs, samples
from gonogo_storage.history.build_series import Point
from gonogo_storage.history.samples import Looked, Run
from gonogo_storage.history.trends import Kept
from gonogo_storage.rollups.variants import JobFacts, Variant, job_of, jobs_of

Missed = Callable[[Session, Variant], Mapping[str, Rate]]
"""How often each known-wrong kernel passed a variant's test, by the newest gauge of it."""


def gauged(session: Session, variant: Variant) -> Mapping[str, Rate]:
    """What the newest gauge of a variant found; {} where none has measured it."""
    found = gauges.sharpness_of(
        session, variant.test_key, variant.branch, variant.arch, variant.board
    )
    return {name: rate(each.count, each.of) for name, each in found.items()}


@dataclass(frozen=True)
class Assessment:
    """Of one build of a variant: that of the job that is over. `changes`, `builds` are of the whole
    branch.
    """

    variant: Variant
    job: JobFacts
    attribution: Attribution
    grade: Grade
    change: masking.BuildChange | None
    """Against the nearest earlier build with judged seeds; None: there is none."""
    changes: Mapping[str, Any]
    builds: tuple[Mapping[str, Any], ...]
    """Newest first: {"build", "sequence", "jobs", "seeds", "counts", "failures", "runs",
    "last_job"}."""
    era: tuple[str, ...]
    """Earlier builds whose errors look the same, and whose seeds the tail was fitted to as well."""
    looked: Looked
    left_out: Mapping[str, Mapping[str, Any]]
    """Devices that were sick: how many runs of them were left out, and why."""
    runs: tuple[Run, ...]
    """The build's own, without those on sick devices."""
    jobs: tuple[JobFacts, ...]
    """Of the whole branch, newest first."""
    policy: FlakinessPolicy
    trends: tuple[Kept, ...] = ()
    """What the pages of the variant, and of its workload's other tests, show over builds and days:
    stored beside it, not in it."""

    def to_json(self) -> dict[str, Any]:
        """In plain JSON types."""
        return {
            **self.variant.to_json(), "build": self.job.build, "build_sequence": self.job.sequence, "job": self.job.id,
            "attribution": self.attribution.to_json(), "grade": self.grade.to_json(),
            "change": None if self.change is None else self.change.to_json(), "changes": dict(self.changes),
            "builds": [dict(each) for each in self.builds], "era": list(self.era), "looked": self.looked.to_json(),
            "left_out": {name: dict(each) for name, each in self.left_out.items()}, "policy": self.policy.version,
        }  # fmt: skip


def assess(
    session: Session,
    job_id: str,
    *,
    missed: Missed = gauged,
    suspicions: Mapping[str, Suspicion] | None = None,
    policy: FlakinessPolicy = POLICY,
) -> Assessment | None:
    """Assess the variant of a job that is over; None where there is nothing to say (not over, no
    seed, compares two builds).

    suspicions: devices that are suspected at this moment; what ran while a device was suspect or
    bad is left out anyway. Stability, attribution and the comparison are of the job's build. Where
    all its seeds are green, the tail takes in those of the builds before it whose errors look the
    same (`era`); a seed that gives the same again is the same observation (`samples.distinct`,
    `tail_of`).
    """
    job = job_of(session, job_id)
    if job is None or not job.done:
        return None
    variant = job.variant
    branch = jobs_of(session, variant)
    others = tuple(
        each for each in branch if each.id != job.id
    )  # a clock that went back may have put it behind: it is looked at anyway
    own = (job, *(each for each in others if each.build == job.build))
    change, era = error_signature_runs.compared(session, job, own, others, policy)
    pooled = (*own, *(each for each in others if each.build in era))
    history = samples.of_jobs(session, variant, pooled)
    kept, left_out, sick = _without_sick(session, history.runs, suspicions or {})
    mine = tuple(run for run in kept if run.job.build == job.build)
    if not mine and left_out:
        everything = samples.of_runs(run for run in history.runs if run.job.build == job.build)
        attribution = attribute(everything, policy, sick)
    else:
        attribution = attribute(samples.of_runs(mine), policy)
    read_all = history.looked.seeds == history.looked.of_seeds
    own_failures = (
        attribution.failures if read_all or left_out or job.selection else samples.failures_of(own)
    )
    failures, pool = own_failures, mine
    if own_failures.known and not own_failures.failures:
        era = error_signature_runs.alike(kept, job.build, era, policy)
        pool = tuple(run for run in kept if run.job.build in (job.build, *era))
    else:
        era = ()
    distinct = samples.distinct(pool)
    if read_all or left_out or job.selection:
        failures = _failures(distinct, policy) if own_failures.known else own_failures
    # the build's own last: of a seed that stands for itself however often it runs the newest number
    # counts
    fitted = samples.tail_of(sorted(pool, key=lambda run: run.job.build == job.build), policy)
    green = _green(own if not left_out else None, mine, policy)
    given = grade(
        failures, fitted if not job.selection else None, missed(session, variant), green, policy
    )
    return Assessment(
        variant, job, attribution, given, change, _changes(session, variant, policy), _builds((job, *others)), era, history.looked,
        left_out, mine, tuple(sorted((job, *others), key=lambda each: each.id, reverse=True)), policy,
    )  # fmt: skip


def _without_sick(
    session: Session, runs: Sequence[Run], suspicions: Mapping[str, Suspicion]
) -> tuple[list[Run], dict[str, dict[str, Any]], dict[str, Suspicion]]:
    """(runs on devices that were well, what was left out by device, the devices as attribution
    takes them).
    """
    spells = sick_devices.spells(session, {run.device for run in runs if run.device})
    sick = dict(suspicions)
    left: dict[str, dict[str, Any]] = {}
    kept = []
    for run in runs:
        why = _sick(run, spells, suspicions)
        if why is None or run.device is None:
            kept.append(run)
            continue
        entry = left.setdefault(run.device, {"runs": 0, "words": why})
        entry["runs"] += 1
        for spell in spells.get(run.device, ()):
            sick.setdefault(run.device, Suspicion(run.device, spell.failing, spell.tests, ()))
    return kept, left, sick


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
    found = suspicions.get(run.device)
    return None if found is None else found.words


def _failures(runs: Sequence[Run], policy: FlakinessPolicy) -> Rate:
    outcomes = [each.outcome for each in samples.of_runs(runs)]
    failed = outcomes.count(Outcome.failed)
    return rate(failed, failed + outcomes.count(Outcome.passed), policy)


def _green(jobs: Sequence[JobFacts] | None, runs: Sequence[Run], policy: FlakinessPolicy) -> Rate:
    """Unexplained among the green seeds of a build: over whole jobs, or, where sick devices were
    left out, over the runs.
    """
    wanted = (Verdict.pass_, Verdict.suspect, Verdict.pass_by_tolerance)
    if jobs is None:
        counts = {verdict: sum(run.verdict == verdict for run in runs) for verdict in wanted}
    else:
        counts = {verdict: sum(job.counts.get(verdict, 0) for job in jobs) for verdict in wanted}
    return rate(counts[Verdict.pass_by_tolerance], sum(counts.values()), policy)


def _builds(jobs: Sequence[JobFacts]) -> tuple[dict[str, Any], ...]:
    found: dict[str, dict[str, Any]] = {}
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
        entry = found.setdefault(job.build, empty)
        entry["jobs"] += 1
        entry["seeds"] += job.done
        entry["last_job"] = max(entry["last_job"], job.id)
        for verdict, number in job.counts.items():
            entry["counts"][verdict] = entry["counts"].get(verdict, 0) + number
        outcomes = samples.outcomes_of(job)
        entry["failures"] += outcomes[Outcome.failed]
        entry["runs"] += outcomes[Outcome.failed] + outcomes[Outcome.passed]
    newest = sorted(
        found.values(), key=lambda entry: (entry["sequence"], entry["build"]), reverse=True
    )
    return tuple(newest[: build_series.MOST_BUILDS])


def _changes(session: Session, variant: Variant, policy: FlakinessPolicy) -> dict[str, Any]:
    """{"build" | "day": {"points": [names], "rates": changes, "numbers": {output: changes}}}: where
    the error or the rate moved.
    """
    found: dict[str, Any] = {}
    for by in ("build", "day"):
        points = build_series.points(session, variant, by="build" if by == "build" else "day")
        at = [point.at for point in points]
        outputs = sorted({output for point in points for output in point.numbers})
        numbers = {
            output: _named(
                number_changes([point.numbers.get(output, ()) for point in points], policy, at),
                points,
            )
            for output in outputs
        }
        rates = rate_changes([(point.failures, point.runs) for point in points], policy, at)
        found[by] = {
            "points": [point.name for point in points],
            "metric": "rms",
            "rates": _named(rates, points),
            "numbers": numbers,
        }
    return found


def _named(changes: Changes, points: Sequence[Point]) -> dict[str, Any]:
    """The changes with the names of the build or day at their place and at the ends of its
    interval.
    """
    told = changes.to_json()
    told["changes"] = [
        {
            **each, "from": points[each["place"] - 1].name if each["place"] else None, "name": points[each["place"]].name,
            "low_name": points[each["low"]].name, "high_name": points[each["high"]].name,
        }
        for each in told["changes"]
    ]  # fmt: skip
    return told
