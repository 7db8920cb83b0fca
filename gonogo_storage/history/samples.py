"""Stored seeds as the statistics of gonogo.flakiness take them: samples, tails. Indexed reads of
the newest so many seeds.

`read` looks once; `samples`, `distinct` and `tail_of` are views of what it found. What was left out
is counted: `History.looked`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import ColumnElement, and_, case, or_, select
from sqlalchemy.orm import Session

from gonogo.flakiness.policy import POLICY, FlakinessPolicy
from gonogo.flakiness.rates import Outcome, Rate, outcome_of, rate
from gonogo.flakiness.samples import Sample, once
from gonogo_storage.rollups.variants import MOST_JOBS, JobFacts, Variant, jobs_of
from gonogo_storage.tables import SeedResultRow

if TYPE_CHECKING:
    from gonogo.flakiness.tails import Tail

MOST_SEEDS = 5000
"""(seed, repeat) that one look reads: the tail uses the largest 1,000 of them, and the interval of
a rate of .01 is .3% wide."""
_GREEN, _RED = "passed", ("failed", "error", "crash", "hang")
_COLUMNS = (
    "job_id",
    "seed",
    "repeat",
    "output",
    "seed_verdict",
    "seed_explanation",
    "device",
    "host_run",
    "position",
    "tolerance_ratio",
    "digest",
    "outcome",
    "nonfinite",
)


class Run(NamedTuple):
    """One (seed, repeat) of a job, all its outputs together."""

    job: JobFacts
    seed: int
    """Of a selection: the number of the iteration."""
    repeat: int
    verdict: str
    explanation: str | None
    device: str | None
    host_run: str | None
    position: int | None
    digests: Mapping[str, str]
    """By output; outputs without one are left out."""
    ratio: float | None
    """The largest |tolerance_ratio| of its outputs: Inf where one is infinite, None where one is
    NaN or none has a number."""
    green: bool | None
    """What the tests of an iteration say of themselves; None of a kernel's seed."""

    @property
    def digest(self) -> str | None:
        """Of all outputs, in one text, as `dgamma=... dx=...`; None without any."""
        return " ".join(f"{name}={value}" for name, value in sorted(self.digests.items())) or None


@dataclass(frozen=True)
class Looked:
    """How much of a history was read."""

    jobs: int
    seeds: int
    """(seed, repeat) read."""
    of_seeds: int
    """(seed, repeat) that these jobs have."""
    more_jobs: bool
    """Whether older jobs were not looked at."""

    @property
    def words(self) -> str:
        """One phrase."""
        older = ", older jobs not looked at" if self.more_jobs else ""
        return f"{self.seeds} of {self.of_seeds} seeds of {self.jobs} job{'' if self.jobs == 1 else 's'}{older}"

    def to_json(self) -> dict[str, Any]:
        """In plain JSON types."""
        return {
            "jobs": self.jobs,
            "seeds": self.seeds,
            "of_seeds": self.of_seeds,
            "more_jobs": self.more_jobs,
            "words": self.words,
        }


@dataclass(frozen=True)
class History:
    """The newest seeds of a variant, oldest job first, in each job by seed and repeat; and the
    jobs, newest first.
    """

    variant: Variant
    jobs: tuple[JobFacts, ...]
    runs: tuple[Run, ...]
    looked: Looked


def read(
    session: Session,
    variant: Variant,
    *,
    build: str | None = None,
    jobs: int = MOST_JOBS,
    seeds: int = MOST_SEEDS,
) -> History:
    """The newest `seeds` (seed, repeat) of the newest `jobs` finished jobs of a variant: of its
    whole branch, or of one build.

    Newest by job, then by arrival; jobs with `reference` are left out. Three statements, by index,
    whatever the length of the history.
    """
    found = jobs_of(session, variant, build=build, limit=jobs + 1)
    return of_jobs(session, variant, found[:jobs], seeds=seeds, more_jobs=len(found) > jobs)


def of_jobs(
    session: Session,
    variant: Variant,
    found: Sequence[JobFacts],
    *,
    seeds: int = MOST_SEEDS,
    more_jobs: bool = False,
) -> History:
    """The same of jobs that the caller has chosen, newest first."""
    looked: dict[str, JobFacts] = {}
    whole: list[str] = []
    last: tuple[str, int] | None = None
    left = seeds
    for job in found:
        if left <= 0:
            break
        looked[job.id] = job
        if job.done <= left:
            whole.append(job.id)
        else:
            last = job.id, job.done - left
        left -= job.done
    runs = tuple(_runs(session, looked, whole, last))
    total = sum(job.done for job in found)
    return History(variant, tuple(found), runs, Looked(len(looked), len(runs), total, more_jobs))


def samples(history: History, *, job: str | None = None) -> list[Sample]:
    """The runs as attribution takes them (of one job, if named). An iteration of a selection has
    seed None: nobody controls it.
    """
    return of_runs(run for run in history.runs if job is None or run.job.id == job)


def of_runs(runs: Iterable[Run]) -> list[Sample]:
    """The same of chosen runs."""
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
        )
        for run in runs
    ]


def distinct(runs: Iterable[Run]) -> list[Run]:
    """The runs that tell something new (gonogo.flakiness.samples.once).

    The same seed that gives the same bits, in another job or on another build, or the same largest
    ratio on another build, is the same
    observation: counted twice it would make a history of eight seeds look like one of hundreds.
    Runs without a digest, iterations, and the runs of a build that is known to be nondeterministic
    are all kept.
    """
    found = list(runs)
    return [found[place] for place in once(of_runs(found), [run.ratio for run in found])]


def tail_of(runs: Iterable[Run], policy: FlakinessPolicy = POLICY) -> Tail:
    """What the tail of chosen runs, oldest first, tells of seeds that have not run."""
    from gonogo.flakiness.repeated import (
        tail_of as tail,
    )  # numpy: not for the API's process, which reads samples, too

    found = [
        run for run in runs if run.digests or run.ratio is not None
    ]  # not hangs, crashes and errors: they have no outputs
    news = distinct(reversed(found))[
        ::-1
    ]  # a build that goes back to old bits is the newest that a seed gave
    told = [
        (None if run.job.selection or run.digest is None else run.seed, run.ratio) for run in news
    ]
    return tail(told, policy, left=len(found) - len(news))


def outcomes_of(job: JobFacts) -> dict[Outcome, int]:
    """The (seed, repeat) of a job by outcome, from its counters, exact however many there are.
    Not-judged iterations of a selection count as silent here: their green or red stands in their rows
    only.
    """
    found = dict.fromkeys(Outcome, 0)
    for verdict, number in job.counts.items():
        found[outcome_of(verdict)] += number
    return found


def failures_of(jobs: Iterable[JobFacts]) -> Rate:
    """Failures of the kernel's runs over whole jobs, from their counters."""
    told = [outcomes_of(job) for job in jobs]
    failed = sum(each[Outcome.failed] for each in told)
    return rate(failed, failed + sum(each[Outcome.passed] for each in told))


def _runs(
    session: Session,
    jobs: Mapping[str, JobFacts],
    whole: Sequence[str],
    last: tuple[str, int] | None,
) -> Iterator[Run]:
    table = SeedResultRow
    parts: list[ColumnElement[bool]] = []
    if whole:
        parts.append(table.job_id.in_(whole))
    if last is not None:
        parts.append(and_(table.job_id == last[0], table.arrival > last[1]))
    if not parts:
        return
    # the comparison names an infinite statistic itself; only of a row without the number is its
    # JSON read
    named = table.statistics["nonfinite_statistics"]["tolerance_ratio"].as_string()
    infinite = case((table.tolerance_ratio.is_(None), named), else_=None).label("infinite")
    query = select(*(getattr(table, name) for name in _COLUMNS), infinite).where(or_(*parts))
    rows = session.execute(query.order_by(table.job_id, table.seed, table.repeat, table.output))
    for (job_id, seed, repeat), group in groupby(
        rows, key=lambda row: (row.job_id, row.seed, row.repeat)
    ):
        members = list(group)
        head = members[0]
        yield Run(
            job=jobs[job_id],
            seed=seed,
            repeat=repeat,
            verdict=head.seed_verdict,
            explanation=head.seed_explanation,
            device=head.device,
            host_run=head.host_run,
            position=head.position,
            digests={row.output: row.digest for row in members if row.digest is not None},
            ratio=_largest(members),
            green=_green(members),
        )


def _largest(rows: Sequence[Any]) -> float | None:
    kinds = {row.infinite or (row.nonfinite or {}).get("tolerance_ratio") for row in rows}
    if "nan" in kinds:
        return None
    if kinds - {None}:
        return float("inf")
    return max(
        (abs(row.tolerance_ratio) for row in rows if row.tolerance_ratio is not None), default=None
    )


def _green(rows: Sequence[Any]) -> bool | None:
    told = {row.outcome for row in rows if row.outcome is not None}
    if not told:
        return None
    return False if told.intersection(_RED) else True if _GREEN in told else None
