"""One side of a comparison, base or head: a build, a run, or a build within a run; and what each
test did there. Bounded, indexed reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from gonogo.errors import FieldError
from gonogo.flakiness.classes import LOST, Ran
from gonogo.spec.selections import KERNEL
from gonogo.spec.verdicts import Explanation, Verdict
from gonogo_storage.db.ids import is_id
from gonogo_storage.db.states import JobKind, JobState
from gonogo_storage.devices import sick_devices
from gonogo_storage.devices.sick_devices import Spell
from gonogo_storage.flags import suspects
from gonogo_storage.rollups.variants import JobFacts, Variant, context_name
from gonogo_storage.tables import BuildRow, JobRow, RunJobRow, RunRow, SeedResultRow

MOST_JOBS = 2000
"""Newest jobs of a side that are looked at: four nights of the largest suite."""
NAMED = 20
_AT_ONCE = 500
_RED = ("failed",)
_BAD = frozenset({*LOST, Verdict.fail, Verdict.pass_by_tolerance, Verdict.fail_by_tolerance})
_COLUMNS = (
    "id",
    "state",
    "test_key",
    "workload_key",
    "kernel",
    "build",
    "branch",
    "executor",
    "arch",
    "board",
    "context",
    "verdict",
    "error",
    "done",
    "counts",
    "outcomes",
    "suspects",
    "created_at",
    "finished_at",
)


class Place(NamedTuple):
    """What is compared with what: the same test on the same kind of board in the same context; of a
    selection each of its tests.
    """

    test_key: str
    arch: str
    board: str
    context: str
    within: str
    """The name of a test of a gtest or pytest selection; '' for a kernel, and for a selection as a
    whole."""


@dataclass(frozen=True)
class Side:
    """Which jobs are meant. `build` None: all of the run, which has one build then."""

    text: str
    """As it was asked for."""
    build: str | None
    run: str | None


@dataclass(frozen=True)
class Told:
    """What each test did on one side."""

    side: Side
    builds: tuple[str, ...]
    jobs: int
    waiting: int
    more_jobs: bool
    """Whether older jobs were not looked at."""
    tests: Mapping[Place, Ran]
    facts: Mapping[Place, tuple[JobFacts, ...]] = field(default_factory=dict)
    """Of kernels: the jobs that have results, newest first."""
    branches: Mapping[Place, str] = field(default_factory=dict)
    ids: frozenset[str] = frozenset()

    def to_json(self) -> dict[str, Any]:
        """In plain JSON types, without the tests."""
        return {
            "asked": self.side.text, "builds": list(self.builds), "run": self.side.run, "jobs": self.jobs, "waiting": self.waiting,
            "more_jobs": self.more_jobs,
        }  # fmt: skip


def find(session: Session, text: str, path: str) -> Side:
    """The side that a text names: a build, a run's id, `build@run`, or the commit of a registered
    build.

    A build that never ran is a side with nothing in it. Raises FieldError for a run that isn't
    there, one that has several builds, and a commit that several builds have.
    """
    name, _, tail = text.rpartition("@")
    if name and is_id(tail):
        if name not in (known := _builds_of(session, tail, path, text)):
            raise FieldError(
                path, text, "the run has no such build", limit=", ".join(known[:NAMED])
            )
        return Side(text, name, tail)
    if is_id(text):
        builds = _builds_of(session, text, path, text)
        if len(builds) > 1:
            choice = ", ".join(f"{each}@{text}" for each in builds[:NAMED])
            raise FieldError(path, text, "the run has several builds: say which", limit=choice)
        return Side(text, builds[0] if builds else None, text)
    if session.scalar(select(JobRow.id).where(JobRow.build == text).limit(1)) is None:
        of_commit = session.scalars(
            select(BuildRow.name)
            .where(BuildRow.commit == text)
            .order_by(BuildRow.name)
            .limit(NAMED)
        ).all()
        if len(of_commit) > 1:
            raise FieldError(
                path,
                text,
                "several builds are of this commit: say which",
                limit=", ".join(of_commit),
            )
        if of_commit:
            return Side(text, of_commit[0], None)
    return Side(text, text, None)


def read(session: Session, side: Side) -> Told:
    """What each test did on a side, from its newest MOST_JOBS jobs: counters of jobs, and of
    selections the rows of their tests.

    Gauges and jobs that compare two builds (`reference`) are left out. What ran on a device while
    it was suspect or bad is in no count, and said apart; a suspect seed counts as what all seeds of
    its job together said of it.
    """
    table = JobRow
    query = select(*(getattr(table, name) for name in _COLUMNS)).where(
        table.kind != JobKind.gauge, table.reference.is_(None)
    )
    if side.build is not None:
        query = query.where(table.build == side.build)
    if side.run is not None:
        query = query.join(RunJobRow, RunJobRow.job_id == table.id).where(
            RunJobRow.run_id == side.run
        )
    rows = session.execute(query.order_by(table.id.desc()).limit(MOST_JOBS + 1)).all()
    more, rows = len(rows) > MOST_JOBS, rows[:MOST_JOBS]
    counts = _settled(session, rows)
    sick = _without_sick(session, rows, counts)
    within = _within(session, [row.id for row in rows if row.kernel == KERNEL], sick)
    tests: dict[Place, Ran] = {}
    facts: dict[Place, list[JobFacts]] = {}
    branches: dict[Place, str] = {}
    for row in rows:
        whole = Place(row.test_key, row.arch, row.board, context_name(row.context), "")
        for place, ran in _ran(
            row, whole, counts[row.id], sick.get(row.id, {}), within.get(row.id, {})
        ):
            tests[place] = _joined(tests[place], ran) if place in tests else ran
            branches.setdefault(place, row.branch)
        if row.kernel != KERNEL and row.done:
            facts.setdefault(whole, []).append(_facts(row))
    return Told(
        side, tuple(dict.fromkeys(row.build for row in rows)), len(rows), sum(not JobState(row.state).final for row in rows), more, tests,
        {place: tuple(each) for place, each in facts.items()}, branches, frozenset(row.id for row in rows),
    )  # fmt: skip


def _builds_of(session: Session, run: str, path: str, text: str) -> list[str]:
    if session.get(RunRow, run) is None:
        raise FieldError(path, text, "there is no such run")
    query = (
        select(JobRow.build)
        .join(RunJobRow, RunJobRow.job_id == JobRow.id)
        .where(RunJobRow.run_id == run)
        .distinct()
    )
    return sorted(session.scalars(query))


def _ran(
    row: Any,
    whole: Place,
    counts: Mapping[str, int],
    sick: Mapping[str, int],
    within: Mapping[str, Mapping[tuple[str, str], int]],
) -> Iterator[tuple[Place, Ran]]:
    """A job's part: of a kernel one, of a selection one for each of its tests and one for what
    became of whole iterations.
    """
    waiting = int(not JobState(row.state).final)
    empty = {} if row.done or waiting else {row.error or row.state: 1}
    own = Ran(row.build, (row.id,), counts, 0, sick, waiting, empty)
    if row.kernel != KERNEL:
        yield whole, own
        return
    for name, told in within.items():
        said: Counter[str] = Counter()
        red = 0
        for (outcome, verdict), number in told.items():
            said[verdict] += number
            red += number if verdict == Verdict.not_judged and outcome in _RED else 0
        yield whole._replace(within=name), Ran(row.build, (row.id,), said, red)
    lost = {
        verdict: number for verdict, number in counts.items() if verdict in (*LOST, Verdict.not_run)
    }
    if waiting or empty or sick or (lost and not within):
        yield whole, replace(own, counts={} if within else lost)


def _joined(first: Ran, second: Ran) -> Ran:
    """Newest first."""
    return Ran(
        first.build, (*first.jobs, *second.jobs), Counter(first.counts) + Counter(second.counts), first.not_judged_red + second.not_judged_red,
        Counter(first.sick) + Counter(second.sick), first.waiting + second.waiting,
        Counter(first.ended_empty) + Counter(second.ended_empty),
    )  # fmt: skip


def _settled(session: Session, rows: Iterable[Any]) -> dict[str, Mapping[str, int]]:
    """Each job's counters, its suspect seeds as what all seeds together say of them."""
    found: dict[str, Mapping[str, int]] = {}
    for row in rows:
        together = (row.suspects or {}).get("explanation")
        found[row.id] = row.counts
        if together in (Explanation.explained, Explanation.unexplained):
            found[row.id] = suspects.counts(session, row.id, row.counts, Explanation(together))
    return found


def _without_sick(
    session: Session, rows: Sequence[Any], counts: dict[str, Mapping[str, int]]
) -> dict[str, dict[str, int]]:
    """Takes what ran on sick devices out of `counts`; job -> device -> runs taken out. Not looked
    at are jobs without anything bad, and those that ran when no device was sick: which devices a
    job ran on, only all of its seeds can tell.
    """
    bad = [row for row in rows if any(counts[row.id].get(each) for each in _BAD)]
    spells = sick_devices.spells(session) if bad else {}
    asked = {row.id: row for row in bad if any(_ran_in(row, each) for each in spells.values())}
    table = SeedResultRow
    ran_on: dict[str, set[str]] = {}
    for ids in _parts(list(asked)):
        for job_id, device in session.execute(
            select(table.job_id, table.device).where(table.job_id.in_(ids)).distinct()
        ):
            if device in spells:
                ran_on.setdefault(device, set()).add(job_id)
    found: dict[str, dict[str, int]] = {}
    for device, jobs in ran_on.items():
        for job_id in jobs:
            if _ran_in(asked[job_id], spells[device]):
                taken = _on(session, job_id, device)
                counts[job_id] = Counter(counts[job_id]) - Counter(taken)
                found.setdefault(job_id, {})[device] = sum(taken.values())
    return found


def _ran_in(row: Any, spells: Iterable[Spell]) -> bool:
    return any(spell.covers(row.created_at, row.finished_at or row.created_at) for spell in spells)


def _on(session: Session, job_id: str, device: str) -> dict[str, int]:
    """(seed, repeat) of a job on a device, by verdict."""
    table = SeedResultRow
    each = (
        select(table.seed, table.repeat, table.seed_verdict)
        .where(table.job_id == job_id, table.device == device)
        .distinct()
        .subquery()
    )
    query = select(each.c.seed_verdict, func.count()).group_by(each.c.seed_verdict)
    return dict(session.execute(query).all())


def _within(
    session: Session, job_ids: Sequence[str], sick: Mapping[str, Mapping[str, int]]
) -> dict[str, dict[str, Counter[tuple[str, str]]]]:
    """{job: {test: {(outcome, verdict): iterations}}} of selections, without what ran on a sick
    device.
    """
    table = SeedResultRow
    found: dict[str, dict[str, Counter[tuple[str, str]]]] = {}
    for ids in _parts(job_ids):
        axes = (table.job_id, table.output, table.outcome, table.verdict, table.device)
        query = (
            select(*axes, func.count())
            .where(table.job_id.in_(ids), table.outcome.is_not(None))
            .group_by(*axes)
        )
        for job_id, name, outcome, verdict, device, number in session.execute(query):
            if device not in sick.get(job_id, {}):
                found.setdefault(job_id, {}).setdefault(name, Counter())[str(outcome), verdict] += (
                    number
                )
    return found


def _parts(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(ids), _AT_ONCE):
        yield ids[start : start + _AT_ONCE]


def _facts(row: Any) -> JobFacts:
    """With one sequence for all: a side is one build, whatever place it had in its branch at the
    time.
    """
    return JobFacts(
        id=row.id, variant=Variant(row.test_key, row.branch, row.arch, row.board), workload_key=row.workload_key, kernel=row.kernel,
        build=row.build, sequence=0, executor=row.executor, context=context_name(row.context), context_asked=row.context,
        verdict=row.verdict, done=row.done,
        counts=row.counts, told=row.outcomes or {}, created_at=row.created_at, finished_at=row.finished_at,
    )  # fmt: skip
