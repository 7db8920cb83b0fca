"""Stored seeds as the samples and tails of gonogo.flakiness. Bounded, indexed reads of the newest.

`read` reads once; `of_runs`, `distinct` and `tail_of` are views of the result. `History.extent`
counts what was left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import and_, or_
from sqlalchemy.orm import Session

from gonogo.flakiness import tails
from gonogo.flakiness.rates import Outcome, Rate, outcome_of, rate
from gonogo.flakiness.samples import Sample, distinct_places
from gonogo_service.flags.evidence_kinds import ReadExtent
from gonogo_service.results import seeds as stored
from gonogo_service.results.batch import is_green
from gonogo_service.results.model import ResultRow
from gonogo_service.results.seeds import KINDS, value_of
from gonogo_service.tests.variants import MAX_JOBS, JobFacts, Variant, jobs_of

if TYPE_CHECKING:
    from gonogo.flakiness.history import Tail

MAX_SEEDS = 5000
"""The (seed, repeat) that one read takes.

The tail uses the largest 1,000 of them, and the interval of a rate of .01 is .3% wide.
"""
_READ = ("tolerance_ratio", "digest", "outcome", "nonfinite_statistics", KINDS)


class Run(NamedTuple):
    """One (seed, repeat) of a job, all its outputs together."""

    job: JobFacts
    seed: int
    """For a selection: the number of the iteration."""
    repeat: int
    verdict: str
    explanation: str | None
    device: str | None
    host_run: str | None
    position: int | None
    digests: Mapping[str, str]
    """Digests by output; outputs without one are left out."""
    ratio: float | None
    """The largest |tolerance_ratio| of its outputs.

    Inf where one is infinite; None where one is NaN or none has a number.
    """
    green: bool | None
    """True if the tests of an iteration report themselves as passed; None for a kernel's seed."""

    @property
    def digest(self) -> str | None:
        """Return all outputs' digests in one text, as `dgamma=... dx=...`; None without any."""
        return " ".join(f"{name}={value}" for name, value in sorted(self.digests.items())) or None


@dataclass(frozen=True)
class History:
    """The newest seeds of a variant: oldest job first, each job's by seed and repeat."""

    runs: tuple[Run, ...]
    extent: ReadExtent


def read(
    session: Session,
    variant: Variant,
    *,
    build: str | None = None,
    seeds: int = MAX_SEEDS,
) -> History:
    """Read the newest `seeds` (seed, repeat) of the newest MAX_JOBS ended jobs of a variant.

    build: of this build only; None: of the whole branch. Newest means by job, then by arrival.
    """
    newest = jobs_of(session, variant, build=build, limit=MAX_JOBS + 1)
    more_jobs = len(newest) > MAX_JOBS
    return of_jobs(session, newest[:MAX_JOBS], seeds=seeds, more_jobs=more_jobs)


def of_jobs(
    session: Session,
    chosen: Sequence[JobFacts],
    *,
    seeds: int = MAX_SEEDS,
    more_jobs: bool = False,
) -> History:
    """Read the newest seeds of jobs that the caller has chosen, newest first."""
    table, left = ResultRow, seeds
    jobs_read: dict[str, JobFacts] = {}
    whole: list[str] = []
    parts: list[Any] = []
    for job in chosen:
        if left <= 0:
            break
        jobs_read[job.id] = job
        if job.done <= left:
            whole.append(job.id)
        else:
            parts = [and_(table.job_id == job.id, table.arrival > job.done - left)]
        left -= job.done
    runs: tuple[Run, ...] = ()
    if jobs_read:
        chosen_rows = or_(table.job_id.in_(whole), *parts)
        kinds_of = table.tolerance_ratio.is_(None)
        rows = stored.read(session, chosen_rows, statistics=_READ, notes_of=kinds_of)
        runs = tuple(_run(jobs_read[row.job], row) for row in rows)
    total = sum(job.done for job in chosen)
    extent = ReadExtent.of(len(jobs_read), len(runs), total, more_jobs=more_jobs)
    return History(runs, extent)


def _run(job: JobFacts, row: stored.StoredSeed) -> Run:
    outputs = row.outputs
    ratios = [value_of(output, "tolerance_ratio") for output in outputs.values()]
    known = [abs(ratio) for ratio in ratios if ratio is not None]
    return Run(
        job,
        row.seed,
        row.repeat,
        row.verdict,
        row.explanation,
        row.device,
        row.host_run,
        row.position,
        {name: output["digest"] for name, output in outputs.items() if output["digest"]},
        None if any(ratio != ratio for ratio in known) else max(known, default=None),
        is_green(outputs),
    )


def of_runs(runs: Iterable[Run], cards: Mapping[str, str] | None = None) -> list[Sample]:
    """Return runs as samples for attribution; cards: serial numbers by device.

    An iteration of a selection has seed None: nobody controls it.
    """
    return [
        Sample(
            seed=None if run.job.selection else run.seed,
            repeat=run.repeat,
            device=run.device or "",
            build=run.job.build,
            context=run.job.context,
            host_run=run.host_run or run.job.id,
            position=run.position or 0,
            digest=run.digest,
            outcome=outcome_of(run.verdict, run.green),
            verdict=run.verdict,
            card=(cards or {}).get(run.device or "", ""),
        )
        for run in runs
    ]


def distinct(runs: Iterable[Run]) -> list[Run]:
    """Return the runs that are new observations (gonogo.flakiness.samples.distinct_places).

    The same seed with the same bits, in another job or on another build, is the same observation.
    So is the same largest ratio on another build. Counted twice, they would make a history of eight
    seeds look like one of hundreds. Runs without a digest, iterations, and the runs of a build that
    is known to be nondeterministic all stay.
    """
    every = list(runs)
    return [every[place] for place in distinct_places(of_runs(every), [run.ratio for run in every])]


def tail_of(runs: Iterable[Run]) -> Tail:
    """Fit the tail of chosen runs, oldest first: what to expect of seeds that have not run."""
    # hangs, crashes and errors have no outputs
    with_outputs = [run for run in runs if run.digests or run.ratio is not None]
    # reversed: where a build returns to old bits, the newest run of a seed counts
    new_runs = distinct(reversed(with_outputs))[::-1]
    ratios = [
        (None if run.job.selection or run.digest is None else run.seed, run.ratio)
        for run in new_runs
    ]
    return tails.tail_of(ratios, left=len(with_outputs) - len(new_runs))


def outcomes_of(job: JobFacts) -> dict[Outcome, int]:
    """Count the (seed, repeat) of a job by outcome, from its counters.

    The counts are exact, however many there are. Not-judged iterations of a selection count as
    silent: only their rows say whether they are green or red.
    """
    counts = dict.fromkeys(Outcome, 0)
    for verdict, number in job.counts.items():
        counts[outcome_of(verdict)] += number
    return counts


def failures_of(jobs: Iterable[JobFacts]) -> Rate:
    """Return the failure rate of the kernel's runs over whole jobs, from their counters."""
    outcomes = [outcomes_of(job) for job in jobs]
    failed = sum(counts[Outcome.failed] for counts in outcomes)
    return rate(failed, failed + sum(counts[Outcome.passed] for counts in outcomes))


def failures_of_runs(runs: Iterable[Run]) -> Rate:
    """Return the failure rate of some runs."""
    outcomes = [outcome_of(run.verdict, run.green) for run in runs]
    failed = outcomes.count(Outcome.failed)
    return rate(failed, failed + outcomes.count(Outcome.passed))
