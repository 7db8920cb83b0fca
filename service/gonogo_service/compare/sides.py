"""One side of a comparison, base or head: a build, a run, or a build within a run.

It reads what each test did there. Bounded, indexed reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from gonogo.errors import FieldError
from gonogo.flakiness.classes import LOST, RunSummary
from gonogo.spec.selections import KERNEL
from gonogo.spec.verdicts import Verdict
from gonogo_service.builds.model import BuildRow
from gonogo_service.devices import sick_devices
from gonogo_service.flags import suspects
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.ids import is_id
from gonogo_service.kit.database.paging import batched
from gonogo_service.results.model import WHOLE, JobBlockRow, ResultRow, SourceRow
from gonogo_service.results.seeds import OF_SOURCE
from gonogo_service.suites.model import RunJobRow, RunRow
from gonogo_service.tests.variants import COUNTED, FACTS, JobFacts, context_name, job_facts

Iterations = frozenset[tuple[tuple[str, str], int]]
"""((outcome, verdict), number of iterations) of a test of a selection."""
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
MAX_JOBS = 2000
"""Newest jobs of a side that are read: four nights of the largest suite."""
NAMED = 20
_AT_ONCE = 500
_BAD = frozenset({*LOST, Verdict.fail, Verdict.pass_by_tolerance, Verdict.fail_by_tolerance})


class Place(NamedTuple):
    """The key by which tests are compared: the same test, kind of board and context.

    For a selection, each of its tests has a place.
    """

    test_key: str
    arch: str
    board: str
    context: str
    within: str
    """The name of a test of a gtest or pytest selection.

    It is '' for a kernel, and for a selection as a whole.
    """

    @classmethod
    def of(cls, job: Any) -> Place:
        """Return the place of a job's test as a whole."""
        return cls(job.test_key, job.arch, job.board, context_name(job.context), "")


@dataclass(frozen=True)
class SideCounts:
    """The builds, run and jobs of base or head."""

    requested: str
    """The requested name"""
    run: str | None
    builds: tuple[str, ...]
    jobs: int
    waiting: int
    """Jobs that are not over"""
    more_jobs: bool
    """Whether older jobs were not read"""


@dataclass(frozen=True)
class SideResults(SideCounts):
    """The result of each test on one side."""

    build: str | None
    """The requested build; None: all of a run"""
    tests: Mapping[Place, RunSummary]
    facts: Mapping[Place, tuple[JobFacts, ...]] = field(default_factory=dict)
    """For kernels: the jobs that have results, newest first."""
    branches: Mapping[Place, str] = field(default_factory=dict)
    ids: frozenset[str] = frozenset()

    def without(self, places: Collection[Place]) -> SideResults:
        """Return the side without the results of some tests."""
        tests = {place: ran for place, ran in self.tests.items() if place not in places}
        facts = {place: jobs for place, jobs in self.facts.items() if place not in places}
        return replace(self, tests=tests, facts=facts)


def _named(session: Session, text: str, path: str) -> tuple[str | None, str | None]:
    """Return the build and the run that a text names. Raises FieldError."""
    name, _, tail = text.rpartition("@")
    run = text if is_id(text) else tail if name and is_id(tail) else None
    if run is not None:
        if session.get(RunRow, run) is None:
            raise FieldError(path, text, "there is no such run")
        query = select(JobRow.build).join(RunJobRow, RunJobRow.job_id == JobRow.id).distinct()
        builds = sorted(session.scalars(query.where(RunJobRow.run_id == run)))
        if run != text and name not in builds:
            limit = ", ".join(builds[:NAMED])
            raise FieldError(path, text, "the run has no such build", limit=limit)
        if run == text and len(builds) > 1:
            choice = ", ".join(f"{build}@{text}" for build in builds[:NAMED])
            raise FieldError(path, text, "the run has several builds: say which", limit=choice)
        return name if run != text else next(iter(builds), None), run
    build = text
    if session.scalar(select(JobRow.id).where(JobRow.build == text).limit(1)) is None:
        of_commit = select(BuildRow.name).where(BuildRow.commit == text).order_by(BuildRow.name)
        names = session.scalars(of_commit.limit(NAMED)).all()
        if len(names) > 1:
            reason = "several builds are of this commit: say which"
            raise FieldError(path, text, reason, limit=", ".join(names))
        build = names[0] if names else text
    return build, None


def head(session: Session, text: str) -> SideResults:
    """Return the side that is compared with another. Raises FieldError where it has no job, too."""
    side = read(session, text, "head")
    if not side.jobs:
        reason, limit = "nothing was submitted for it", "a build that has jobs, or a run's id"
        raise FieldError("head", text, reason, limit=limit)
    return side


def read(session: Session, text: str, path: str) -> SideResults:
    """Read the result of each test on the side that a text names, from its newest MAX_JOBS jobs.

    That is a build, a run's id, `build@run`, or the commit of a registered build. A build that
    never ran is an empty side. Raises FieldError for a run that doesn't exist or has several
    builds, and for a commit that several builds have.

    They come from the counters of jobs and, for selections, from the rows of their tests. Gauges,
    jobs that compare two builds (`reference`) and runs of bisections are left out. Runs on a device
    that was suspect or bad at the time are in no count, but reported separately. A suspect seed
    counts by the joint verdict of all seeds of its job.
    """
    build, run = _named(session, text, path)
    rows, more_jobs = _jobs(session, text, build, run)
    counts = {row.id: suspects.settled_counts(row.counts, row.suspects) for row in rows}
    sick = _without_sick(session, rows, counts)
    within = _within(session, [row.id for row in rows if row.kernel == KERNEL], sick)
    tests: dict[Place, RunSummary] = {}
    facts: dict[Place, list[JobFacts]] = {}
    branches: dict[Place, str] = {}
    joined = shared(_joined)
    for row in rows:
        ran_here = _ran(row, counts[row.id], sick.get(row.id, {}), within.get(row.id, {}))
        for place, ran in ran_here:
            newer = tests.get(place)
            tests[place] = ran if newer is None else joined(newer, ran)
            branches.setdefault(place, row.branch)
        if row.kernel != KERNEL and row.done:
            # the same sequence for all: a side is one build, whatever place it had at the time
            facts.setdefault(Place.of(row), []).append(job_facts(row, 0))
    return SideResults(
        text,
        run,
        tuple(dict.fromkeys(row.build for row in rows)),
        len(rows),
        sum(not row.state.final for row in rows),
        more_jobs,
        build,
        tests,
        {place: tuple(jobs) for place, jobs in facts.items()},
        branches,
        frozenset(row.id for row in rows),
    )


def _jobs(
    session: Session, requested: str, build: str | None, run: str | None
) -> tuple[Sequence[Any], bool]:
    """Return the jobs of a side, newest first, and whether there are more.

    Raises FieldError where retention has removed the tests of a selection.
    """
    table = JobRow
    columns = table.state, table.error, table.suspects, table.seeds_removed_at
    query = select(*FACTS, *columns).where(COUNTED)
    if build is not None:
        query = query.where(table.build == build)
    if run is not None:
        query = query.join(RunJobRow, RunJobRow.job_id == table.id)
        query = query.where(RunJobRow.run_id == run)
    rows = session.execute(query.order_by(table.id.desc()).limit(MAX_JOBS + 1)).all()
    more_jobs, rows = len(rows) > MAX_JOBS, rows[:MAX_JOBS]
    # The tests of a selection are in its rows only: without them they would look as if not run.
    known = [row for row in rows if row.kernel != KERNEL or row.seeds_removed_at is None]
    places = {(row.test_key, row.arch, row.board) for row in known}
    if any((row.test_key, row.arch, row.board) not in places for row in rows):
        day = max(row.seeds_removed_at for row in rows if row.seeds_removed_at)
        raise FieldError(
            "build" if run is None else "run",
            requested,
            f"can't be compared: its results per test were removed on {day:%Y-%m-%d}, as the "
            "server's retention says",
            limit="a build or a run that still has them",
        )
    return known, more_jobs or len(known) < len(rows)


def _ran(
    row: Any,
    counts: Mapping[str, int],
    sick: Mapping[str, int],
    within: Mapping[str, Iterations],
) -> Iterator[tuple[Place, RunSummary]]:
    """Yield the results of one job: one for a kernel; for a selection one for each of its tests.

    A selection has one more for iterations that were lost as a whole.
    """
    whole, waiting = Place.of(row), int(not row.state.final)
    ended_empty = {} if row.done or waiting else {row.error or row.state.value: 1}
    whole_job = RunSummary(row.build, (row.id,), counts, 0, sick, waiting, ended_empty)
    if row.kernel != KERNEL:
        yield whole, whole_job
        return
    # most tests of a selection have equal results: these share one object
    summaries: dict[Iterations, RunSummary] = {}
    for name, iterations in within.items():
        if (ran := summaries.get(iterations)) is None:
            ran = summaries[iterations] = _of_test(row, iterations)
        yield whole._replace(within=name), ran
    lost = {name: number for name, number in counts.items() if name in (*LOST, Verdict.not_run)}
    if waiting or ended_empty or sick or (lost and not within):
        yield whole, replace(whole_job, counts={} if within else lost)


def _of_test(row: Any, iterations: Iterations) -> RunSummary:
    counts: Counter[str] = Counter()
    not_judged_red = 0
    for (outcome, verdict), number in iterations:
        counts[verdict] += number
        not_judged_red += number * (verdict == Verdict.not_judged and outcome == "failed")
    return RunSummary(row.build, (row.id,), counts, not_judged_red)


def shared(function: Callable[[A, B], C]) -> Callable[[A, B], C]:
    """Return the function with one result for each pair of objects.

    Thousands of tests of a selection share their objects.
    """
    results: dict[tuple[int, int], tuple[A, B, C]] = {}

    def result_of(first: A, second: B) -> C:
        key = id(first), id(second)
        if key not in results:
            results[key] = first, second, function(first, second)  # keeps the ids in use
        return results[key][2]

    return result_of


def _joined(first: RunSummary, second: RunSummary) -> RunSummary:
    """Join two results of a place, the newer one first."""
    return RunSummary(
        first.build,
        (*first.jobs, *second.jobs),
        Counter(first.counts) + Counter(second.counts),
        first.not_judged_red + second.not_judged_red,
        Counter(first.sick) + Counter(second.sick),
        first.waiting + second.waiting,
        Counter(first.ended_empty) + Counter(second.ended_empty),
    )


def _without_sick(
    session: Session, rows: Sequence[Any], counts: dict[str, Mapping[str, int]]
) -> dict[str, dict[str, int]]:
    """Remove runs on sick devices from `counts`; return job -> device -> runs removed.

    Jobs without a bad result, and jobs from times when no device was sick, aren't read.
    """
    bad = [row for row in rows if any(counts[row.id].get(verdict) for verdict in _BAD)]
    spells = sick_devices.spells(session) if bad else {}
    was_sick = partial(sick_devices.spell_of, spells)
    candidates = {row.id: row for row in bad if any(was_sick(device, row) for device in spells)}
    table = JobBlockRow
    by = table.job_id, table.device, table.verdict
    query = select(*by, func.sum(table.n)).where(table.output == WHOLE).group_by(*by)
    left_out: dict[str, dict[str, int]] = {}
    for ids in batched(list(candidates), _AT_ONCE):
        on_devices = table.job_id.in_(ids), table.device.in_(list(spells))
        for job, device, verdict, number in session.execute(query.where(*on_devices)):
            if was_sick(device, candidates[job]):
                counts[job] = Counter(counts[job]) - Counter({verdict: int(number)})
                removed = left_out.setdefault(job, {})
                removed[device] = removed.get(device, 0) + int(number)
    return left_out


def _within(
    session: Session, job_ids: Sequence[str], sick: Mapping[str, Mapping[str, int]]
) -> dict[str, dict[str, Iterations]]:
    """Return the iterations of the tests of selections, by job and test.

    Runs on sick devices are left out.
    """
    table = ResultRow
    by = table.job_id, SourceRow.device, table.output, table.outcome, table.verdict
    query = select(*by, func.count()).join(SourceRow, OF_SOURCE).group_by(*by)
    counted: dict[str, dict[str, Counter[tuple[str, str]]]] = {}
    for ids in batched(job_ids, _AT_ONCE):
        of_tests = table.job_id.in_(ids), table.outcome.is_not(None)
        for job, device, name, outcome, verdict, number in session.execute(query.where(*of_tests)):
            if device not in sick.get(job, {}):
                counts = counted.setdefault(job, {}).setdefault(name, Counter())
                counts[str(outcome), verdict] += number
    # most tests of a selection have equal results: these share one object
    equal: dict[Iterations, Iterations] = {}
    within: dict[str, dict[str, Iterations]] = {}
    for job, of_job in counted.items():
        for name, counts in of_job.items():
            iterations = frozenset(counts.items())
            within.setdefault(job, {})[name] = equal.setdefault(iterations, iterations)
    return within
