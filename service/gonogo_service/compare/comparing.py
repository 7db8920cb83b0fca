"""A commit against its base: each test that ran on either side, classified, with evidence.

Reads only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.flakiness.arithmetic_changes import MIN_ELEMENTS, BuildPrograms, pooled
from gonogo.flakiness.classes import Class, Classification, OpenFlag, RunSummary
from gonogo.flakiness.classification import classify
from gonogo.flakiness.gating import FailOn, GateAnswer, gate
from gonogo.flakiness.policy import POLICY
from gonogo.flakiness.waivers import waivable, waived
from gonogo.spec.verdicts import Verdict
from gonogo_service.compare import reruns, sides
from gonogo_service.compare.compared import BuildPair, Compared
from gonogo_service.compare.sides import Place, SideResults
from gonogo_service.flags.model import FlagChangeRow, FlagRow
from gonogo_service.flags.noun import FlagState
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.each import among
from gonogo_service.kit.database.encoding import timestamp, utcnow
from gonogo_service.kit.database.paging import batched
from gonogo_service.kit.database.states import JobKind
from gonogo_service.results import arithmetics, flips
from gonogo_service.suites.model import RunJobRow
from gonogo_service.tests import build_series, device_times, test_specs
from gonogo_service.tests.model import TestSpecRow
from gonogo_service.tests.variants import ISOLATED, JobFacts, Variant
from gonogo_service.waivers import store as waivers

_UNEXPLAINED = (Verdict.fail, Verdict.pass_by_tolerance)
_AT_ONCE = 500
MAX_SEEDS, MIN_SEEDS = 512, 16
"""Seeds whose errors are compared: for all tests of a side together, and for each test at least.

The counts cover all seeds.
"""
MAX_PAIRS = 50
"""Tests whose flips are read: a few milliseconds each."""
PROGRAM_JOBS = 2
"""Newest jobs of a test on a side whose arithmetics are read."""


@dataclass(frozen=True)
class Comparison:
    """All tests of two sides, the most important first."""

    base: SideResults
    head: SideResults
    tests: tuple[Compared, ...]
    policy: str

    @property
    def complete(self) -> bool:
        """Return whether every job of both sides is over."""
        return not (self.base.waiting or self.head.waiting)

    @property
    def counts(self) -> dict[str, int]:
        """Return the number of tests by class, in the order of Class, each test once."""
        counts = Counter(test.classification.kind for test in self.tests)
        return {kind.value: counts[kind] for kind in Class if counts[kind]}

    @property
    def words(self) -> str:
        """Return the counts as one phrase, "1 new hollow pass, 3 passed"."""
        counted = (Class(kind).counted(number) for kind, number in self.counts.items())
        return ", ".join(counted) or "no test ran"

    def of(self, *kinds: Class) -> tuple[Compared, ...]:
        """Return the tests of these classes."""
        return tuple(test for test in self.tests if test.classification.kind in kinds)

    def page_of(self, place: Place) -> str:
        """Return the page of a test, on head's branch where it ran there."""
        branch = self.head.branches.get(place) or self.base.branches[place]
        variant = Variant(place.test_key, branch, place.arch, place.board)
        return urls.history(place.test_key, variant.place)

    def gate(self, fail_on: FailOn | str = FailOn.new) -> GateAnswer:
        """Return the gate's answer: whether head may pass."""
        return gate((test.classification for test in self.tests), fail_on)


def compare(session: Session, base: str, head: str, *, now: datetime | None = None) -> Comparison:
    """Classify every test that ran on head or on base.

    base, head: as in `sides.read`. A base that never ran makes bad results on head unknown. Raises
    FieldError for a run that doesn't exist, and for a head without any job.
    """
    bases = [sides.read(session, base, "base")]
    return compare_each(session, bases, sides.head(session, head), now=now)[0]


def compare_each(
    session: Session,
    bases: Sequence[SideResults],
    head: SideResults,
    *,
    now: datetime | None = None,
    every_record: bool = False,
) -> list[Comparison]:
    """Classify every test of head and of each base; what they compare by is read together.

    every_record: read the seeds of right kernels, too, so that `Compared.change` says of each
    whether its bits are the same.
    """
    *on_bases, on_head = _with_numbers(session, bases, head, every_record)
    return [
        _compare(session, (base, head), on_base, on_head, now or utcnow())
        for base, on_base in zip(bases, on_bases, strict=True)
    ]


def _compare(
    session: Session,
    both: tuple[SideResults, SideResults],
    on_base: Mapping[Place, RunSummary],
    on_head: Mapping[Place, RunSummary],
    now: datetime,
) -> Comparison:
    places = {place for place, ran in both[0].tests.items() if ran.counts} | both[1].tests.keys()
    keys = sorted({place.test_key for place in places})
    specs = _specs(session, keys)
    flags = _flags(session, keys, *both, now)
    active_waivers = waivers.in_force(session, both[1].ids, now=now)
    short_names, names = _names(session, both, places, specs)
    pairs = _pairs(session, *both)
    compared = []
    classifiers: dict[Any, Callable[..., Classification]] = {}
    for place in places:
        before, after = on_base.get(place), on_head.get(place)
        branches = frozenset(side.branches[place] for side in both if place in side.branches)
        variant = (place.test_key, branches, place.arch, place.board)
        if variant not in classifiers:
            known = [
                flag
                for branch in sorted(branches)
                for flag in flags.get((place.test_key, branch, place.arch, place.board), ())
            ]
            classifiers[variant] = _classifier(known)
        classification = classifiers[variant](before, after)
        if active_waivers.waivers and after is not None and waivable(classification):
            both_names = {names[place], short_names[place]}
            concerned = active_waivers.of(place.test_key, both_names, after.jobs, after.build)
            classification = waived(classification, concerned)
        spec, pair = specs[place.test_key], pairs.get(place)
        compared.append(Compared(place, names[place], *spec, classification, before, after, pair))
    compared.sort(key=lambda test: (test.classification.kind.rank, test.name, test.place))
    return Comparison(*both, tuple(compared), POLICY.version)


def with_checks(
    session: Session, comparison: Comparison, tests: Sequence[Compared]
) -> list[Compared]:
    """Return tests of a comparison with the commands that run the bad ones again.

    The seeds of such a test are read, so ask only for the tests that are shown.
    """
    lines = reruns.lines(session, comparison.head, tests)
    return [test._replace(check=lines.get(test.place)) for test in tests]


def _classifier(flags: Sequence[OpenFlag]) -> Callable[..., Classification]:
    """Return a function that classifies each pair of results once: tests share their results."""
    return sides.shared(lambda before, after: classify(before, after, flags))


def _with_numbers(
    session: Session, bases: Sequence[SideResults], head: SideResults, every_record: bool
) -> list[dict[Place, RunSummary]]:
    """Return the results of the bases and of head; kernels on both have what can be compared.

    That is the seeds where some seed is unexplained, the arithmetics, and the seconds on devices. A
    test of a gtest or pytest selection isn't a kernel.
    """
    every = *bases, head
    pairs = [(base, place) for base in bases for place in base.facts.keys() & head.facts.keys()]
    common = {place for _, place in pairs}
    ran = ((place, (base.tests[place], head.tests[place])) for base, place in pairs)
    compared = {
        place
        for place, runs in ran
        if all(run.judged for run in runs)
        if every_record or any(run.of(*_UNEXPLAINED) for run in runs)
    }
    seeds = min(build_series.SEEDS_PER_BUILD, max(MIN_SEEDS, MAX_SEEDS // max(1, len(compared))))
    jobs = (job for side in every for place in common for job in side.facts.get(place, ()))
    times = device_times.per_job(session, jobs)
    # another executor is another program
    executors = {place: head.facts[place][0].executor for place in common}
    sides_with_numbers = []
    for side in every:
        facts = {place: side.facts[place] for place in common & side.facts.keys()}
        judged = (place for place in compared & facts.keys() if side.tests[place].judged)
        of_compared = {place: facts[place] for place in sorted(judged)}
        records = build_series.records_of(session, of_compared, seeds=seeds)
        programs = _programs(session, facts)
        numbers = {
            place: replace(
                side.tests[place],
                record=next(reversed(records.get(place, ())), None),
                programs=programs.get(place),
                times=tuple(
                    time
                    for job in jobs
                    if job.executor == executors[place]
                    for time in times.get(job.id, ())
                ),
            )
            for place, jobs in facts.items()
        }
        sides_with_numbers.append({**side.tests, **numbers})
    return sides_with_numbers


def _programs(
    session: Session, facts: Mapping[Place, Sequence[JobFacts]]
) -> dict[Place, BuildPrograms]:
    """Return the arithmetics that the seeds of kernels on a side show."""
    ids = {place: [job.id for job in jobs[:PROGRAM_JOBS]] for place, jobs in facts.items()}
    every = sorted(job for members in ids.values() for job in members)
    read = arithmetics.of_jobs(session, every, min_elements=MIN_ELEMENTS)
    return {
        place: pooled(facts[place][0].build, stored)
        for place, members in ids.items()
        if (stored := [read[job] for job in members if job in read])
    }


def _pairs(session: Session, base: SideResults, head: SideResults) -> dict[Place, BuildPair]:
    """Return the newest pair of each place, among the newest jobs that have results."""
    before, after = (
        {*side.builds, *filter(None, [side.build])} for side in (base, head)
    )  # a build that never ran by itself is named by the request
    query = select(JobRow).where(
        JobRow.build.in_(after),
        JobRow.reference.in_(before),
        JobRow.kind != JobKind.gauge,
        JobRow.done > 0,
    )
    pairs: dict[Place, BuildPair] = {}
    for job in session.scalars(query.order_by(JobRow.id.desc()).limit(MAX_PAIRS)):
        if (place := Place.of(job)) not in pairs:
            counted = flips.of_job(session, job.id)
            pairs[place] = BuildPair(job.id, job.build, str(job.reference), counted)
    return pairs


def _flags(
    session: Session, keys: Sequence[str], base: SideResults, head: SideResults, now: datetime
) -> dict[tuple[str, str, str, str], list[OpenFlag]]:
    """Return the unresolved flags that may excuse these tests' failures, by full variant."""
    flags: list[FlagRow] = []
    for part in batched(keys, _AT_ONCE):
        query = select(FlagRow).where(
            among(session, FlagRow.test_key, part), FlagRow.state != FlagState.resolved
        )
        flags += session.scalars(query.order_by(FlagRow.kind))
    openings = _openings(session, [flag.id for flag in flags])
    by_variant: dict[tuple[str, str, str, str], list[OpenFlag]] = {}
    for flag in flags:
        job, build = openings.get(flag.id, (flag.first_job, flag.build))
        opened_by_head = job in head.ids or (build in head.builds and build not in base.builds)
        acknowledged = flag.state is FlagState.acknowledged and (flag.expires_at or now) > now
        if opened_by_head and not acknowledged:
            continue  # what head itself raised excuses nothing
        expires = timestamp(flag.expires_at)
        about = (acknowledged, flag.owner, flag.reason, expires, flag.sentence)
        variant = flag.test_key, flag.branch, flag.arch, flag.board
        by_variant.setdefault(variant, []).append(OpenFlag(flag.id, flag.kind.value, *about))
    return by_variant


def _openings(session: Session, flag_ids: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return flag -> (job, build) of the evidence that opened or last reopened it."""
    openings: dict[str, tuple[str, str]] = {}
    table = FlagChangeRow
    for part in batched(flag_ids, _AT_ONCE):
        query = select(table.flag_id, table.detail).where(
            among(session, table.flag_id, part), table.what.in_(("opened", "reopened"))
        )
        for flag_id, detail in session.execute(query.order_by(table.flag_id, table.version)):
            if detail and detail.get("job"):
                openings[flag_id] = str(detail["job"]), str(detail.get("build"))
    return openings


_Spec = tuple[str, str, Mapping[str, Any]]
"""The workload's key, the kernel and the canonical form of a test."""


def _specs(session: Session, keys: Sequence[str]) -> dict[str, _Spec]:
    table = TestSpecRow
    query = select(table.key, table.workload_key, table.kernel, table.test)
    return {
        key: (workload, kernel, canonical)
        for part in batched(keys, _AT_ONCE)
        for key, workload, kernel, canonical in session.execute(
            query.where(among(session, table.key, part))
        )
    }


def _names(
    session: Session,
    both: Iterable[SideResults],
    places: Collection[Place],
    specs: Mapping[str, _Spec],
) -> tuple[dict[Place, str], dict[Place, str]]:
    """Return the name of each test, and the same with its tolerance where several have the name.

    A test has the name that suites give it, if that is one alone; head's count before base's.
    """
    in_suites: dict[str, str] = {}
    for side in both:
        run_names: dict[str, set[str]] = {}
        for part in batched(sorted(side.ids), _AT_ONCE):
            query = select(JobRow.test_key, RunJobRow.name).distinct()
            query = query.join(RunJobRow, RunJobRow.job_id == JobRow.id)
            for key, name in session.execute(query.where(among(session, JobRow.id, part))):
                run_names.setdefault(key, set()).add(name)
        in_suites |= {key: min(names) for key, names in run_names.items() if len(names) == 1}

    def short(place: Place) -> str:
        _, kernel, canonical = specs[place.test_key]
        name = in_suites.get(place.test_key) or test_specs.name_of(kernel, canonical)
        return place.within or (name if place.context == ISOLATED else f"{name} ({place.context})")

    short_names = {place: short(place) for place in places}
    counts = Counter((name, place.arch, place.board) for place, name in short_names.items())
    names = {}
    for place, name in short_names.items():
        # the tolerance distinguishes most tests of the same shape
        is_shared = counts[name, place.arch, place.board] > 1
        tolerance = _tolerance(specs[place.test_key][2].get("tolerance", {})) if is_shared else ""
        names[place] = f"{name} {tolerance}".rstrip()
    return short_names, names


def _tolerance(tolerance: Mapping[str, Any]) -> str:
    """Return the tolerance as text: "rtol 0.001, atol 0.5", "dx: rtol 0.001"."""
    parts = [
        f"{name}: {_tolerance(value)}" if isinstance(value, Mapping) else f"{name} {value:.12g}"
        for name, value in tolerance.items()
    ]
    return ", ".join(parts)
