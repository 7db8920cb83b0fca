"""A commit against its base: each test that ran on either side, classified, with evidence.

Reads only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo.errors import FieldError
from gonogo.flakiness.classes import Class, Classification, OpenFlag, RunSummary
from gonogo.flakiness.classification import classify
from gonogo.flakiness.gating import FailOn, Gate, gate
from gonogo.flakiness.policy import POLICY
from gonogo.flakiness.waivers import waivable, waived
from gonogo.spec.verdicts import Verdict
from gonogo_service.compare import arithmetics, build_pairs, check_lines, comparison_side
from gonogo_service.compare.build_pairs import BuildPair
from gonogo_service.compare.check_lines import RerunCandidate
from gonogo_service.compare.comparison_side import Place, Side, SideResults
from gonogo_service.flags.model import FlagChangeRow, FlagRow, FlagState
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.each import among
from gonogo_service.kit.database.encoding import timestamp, utcnow
from gonogo_service.suites.model import RunJobRow
from gonogo_service.tests import build_series, test_specs
from gonogo_service.tests.model import TestSpecRow
from gonogo_service.tests.variants import ISOLATED
from gonogo_service.waivers import store as waivers

_UNEXPLAINED = (Verdict.fail, Verdict.pass_by_tolerance)
_AT_ONCE = 500
MAX_SEEDS, MIN_SEEDS = 512, 16
"""Seeds whose errors are compared: for all tests of a side together, and for each test at least.

The counts cover all seeds.
"""
_FLAG = (
    "id",
    "test_key",
    "branch",
    "arch",
    "board",
    "kind",
    "state",
    "first_job",
    "build",
    "owner",
    "reason",
    "expires_at",
    "evidence",
)


class Compared(NamedTuple):
    """One test of a comparison, of which there may be 20,000."""

    place: Place
    name: str
    """Its name in its suite, else kernel and shape; for a selection, the test within it."""
    workload_key: str
    kernel: str
    canonical: Mapping[str, Any]
    classification: Classification
    base: RunSummary | None
    head: RunSummary | None
    pair: BuildPair | None = None
    """Head's build against base's on equal seeds, if a job compared them."""
    check: str | None = None
    """The `gonogo check` line that runs it again on head's build; `with_checks` reads it."""


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
        return (
            ", ".join(Class(kind).counted(number) for kind, number in self.counts.items())
            or "no test ran"
        )

    def of(self, *kinds: Class) -> tuple[Compared, ...]:
        """Return the tests of these classes."""
        return tuple(test for test in self.tests if test.classification.kind in kinds)

    def gate(self, fail_on: FailOn | str = FailOn.new) -> Gate:
        """Return the gate's answer: whether head may pass."""
        return gate((test.classification for test in self.tests), fail_on)


def compare(
    session: Session,
    base: str | Side,
    head: str | Side,
    *,
    now: datetime | None = None,
) -> Comparison:
    """Classify every test that ran on head or on base.

    See 4-flakiness.md, "Classifying a commit's failures for CI". base, head: a build, a run's id,
    `build@run`, or the commit of a registered build
    (gonogo_service.compare.comparison_side.find). A base that never ran makes bad results on
    head unknown. Raises FieldError for a run that doesn't exist, and for a head without any job.
    """
    first = comparison_side.find(session, base, "base") if isinstance(base, str) else base
    second = comparison_side.find(session, head, "head") if isinstance(head, str) else head
    sides = comparison_side.read(session, first), comparison_side.read(session, second)
    if not sides[1].jobs:
        raise FieldError(
            "head",
            second.requested,
            "nothing was submitted for it",
            limit="a build that has jobs, or a run's id",
        )
    ran_before = {place for place, ran in sides[0].tests.items() if ran.counts}
    places = ran_before | sides[1].tests.keys()
    keys = {place.test_key for place in places}
    now = now or utcnow()
    flags = _flags(session, keys, *sides, now)
    active_waivers = waivers.in_force(session, sides[1].ids, now=now)
    specs = _specs(session, keys)
    names = _names(session, sides)
    short_names = {place: _name(place, *specs[place.test_key][1:], names) for place in places}
    name_counts = Counter((name, place.arch, place.board) for place, name in short_names.items())
    on_base, on_head = arithmetics.with_programs(session, sides, _recorded(session, sides))
    pairs = build_pairs.read(session, *(_builds(side) for side in sides))
    compared = []
    classifiers: dict[Any, _Classifier] = {}
    for place in places:
        before, after = on_base.get(place), on_head.get(place)
        branches = frozenset(side.branches[place] for side in sides if place in side.branches)
        variant = (place.test_key, branches, place.arch, place.board)
        if (classified := classifiers.get(variant)) is None:
            flags_known = [
                flag
                for branch in sorted(branches)
                for flag in flags.get((place.test_key, branch, place.arch, place.board), ())
            ]
            classified = classifiers[variant] = _classifier(flags_known)
        classification = classified(before, after)
        workload, kernel, canonical = specs[place.test_key]
        name = short_names[place]
        # the tolerance distinguishes most tests of the same shape
        if name_counts[name, place.arch, place.board] > 1:
            name = " ".join(filter(None, (name, _tolerance(canonical.get("tolerance", {})))))
        if active_waivers.waivers and after is not None and waivable(classification):
            classification = waived(
                classification,
                active_waivers.of(
                    place.test_key, {name, short_names[place]}, after.jobs, after.build
                ),
            )
        compared.append(
            Compared(
                place,
                name,
                workload,
                kernel,
                canonical,
                classification,
                before,
                after,
                pairs.get(place),
            )
        )
    compared.sort(key=lambda test: (test.classification.kind.rank, test.name, test.place))
    return Comparison(*sides, tuple(compared), POLICY.version)


def with_checks(
    session: Session, comparison: Comparison, tests: Sequence[Compared]
) -> list[Compared]:
    """Return tests of a comparison with the commands that run the bad ones again.

    The seeds of such a test are read, so ask only for the tests that are shown.
    """
    candidates = (
        RerunCandidate(test.place, test.canonical, test.head, test.classification) for test in tests
    )
    checks = check_lines.lines(session, comparison.head, candidates)
    return [
        test._replace(check=checks[test.place]) if test.place in checks else test for test in tests
    ]


def _builds(results: SideResults) -> list[str]:
    """Return the builds of a side; one that never ran by itself is named by the request."""
    requested = () if results.side.build is None else (results.side.build,)
    return sorted({*requested, *results.builds})


_Classifier = Callable[[RunSummary | None, RunSummary | None], Classification]


def _classifier(flags: Sequence[OpenFlag]) -> _Classifier:
    """Return a function that classifies each pair of results once: tests share their results."""
    return comparison_side.shared(lambda before, after: classify(before, after, flags))


def _recorded(
    session: Session, sides: tuple[SideResults, SideResults]
) -> list[dict[Place, RunSummary]]:
    """Return the results of base and head, with records where errors have to be compared.

    That is where some seed of a kernel is unexplained. A record has the seeds and terms of a test.
    """
    base, head = (side.tests for side in sides)
    compared = sorted(
        place
        for place in sides[0].facts.keys() & sides[1].facts.keys()
        if _comparable(base[place], head[place])
    )
    seeds = min(build_series.SEEDS_PER_BUILD, max(MIN_SEEDS, MAX_SEEDS // max(1, len(compared))))
    recorded_sides = []
    for side in sides:
        records = build_series.records_of(
            session, {place: side.facts.get(place, ()) for place in compared}, seeds=seeds
        )
        recorded = {
            place: replace(side.tests[place], record=place_records[-1] if place_records else None)
            for place, place_records in records.items()
        }
        recorded_sides.append({**side.tests, **recorded})
    return recorded_sides


def _comparable(before: RunSummary, after: RunSummary) -> bool:
    return bool(
        before.judged and after.judged and (before.of(*_UNEXPLAINED) or after.of(*_UNEXPLAINED))
    )


def _flags(
    session: Session, keys: Iterable[str], base: SideResults, head: SideResults, now: datetime
) -> dict[tuple[str, str, str, str], list[OpenFlag]]:
    """Return the unresolved flags that may excuse these tests' failures, by full variant."""
    rows: list[Any] = []
    for part in _parts(sorted(keys)):
        query = select(*(getattr(FlagRow, name) for name in _FLAG)).where(
            among(session, FlagRow.test_key, part), FlagRow.state != FlagState.resolved
        )
        rows += session.execute(query.order_by(FlagRow.kind)).all()
    openings = _openings(session, [row.id for row in rows])
    flags_by_variant: dict[tuple[str, str, str, str], list[OpenFlag]] = {}
    for row in rows:
        job, build = openings.get(row.id, (row.first_job, row.build))
        opened_by_head = job in head.ids or (build in head.builds and build not in base.builds)
        acknowledged = row.state == FlagState.acknowledged and (row.expires_at or now) > now
        if opened_by_head and not acknowledged:
            continue  # what head itself raised excuses nothing
        known = OpenFlag(
            row.id,
            row.kind,
            acknowledged,
            row.owner,
            row.reason,
            timestamp(row.expires_at),
            str(row.evidence.get("words") or row.evidence.get("sentence") or ""),
        )
        flags_by_variant.setdefault((row.test_key, row.branch, row.arch, row.board), []).append(
            known
        )
    return flags_by_variant


def _openings(session: Session, flag_ids: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return flag -> (job, build) of the evidence that opened or last reopened it."""
    openings: dict[str, tuple[str, str]] = {}
    table = FlagChangeRow
    for part in _parts(flag_ids):
        query = select(table.flag_id, table.detail).where(
            among(session, table.flag_id, part), table.what.in_(("opened", "reopened"))
        )
        for flag_id, detail in session.execute(query.order_by(table.flag_id, table.version)):
            if detail and detail.get("job"):
                openings[flag_id] = str(detail["job"]), str(detail.get("build"))
    return openings


def _specs(session: Session, keys: Iterable[str]) -> dict[str, tuple[str, str, Mapping[str, Any]]]:
    specs = {}
    for part in _parts(sorted(keys)):
        table = TestSpecRow
        for row in session.execute(
            select(table.key, table.workload_key, table.kernel, table.canonical).where(
                among(session, table.key, part)
            )
        ):
            specs[row.key] = (row.workload_key, row.kernel, row.canonical)
    return specs


def _names(session: Session, sides: Iterable[SideResults]) -> dict[str, str]:
    """Return test -> the name that its suite gives it; head's before base's.

    A test with several names, or submitted by itself, has none.
    """
    names: dict[str, str] = {}
    for side in sides:
        run_names: dict[str, set[str]] = {}
        for part in _parts(sorted(side.ids)):
            query = (
                select(JobRow.test_key, RunJobRow.name)
                .join(RunJobRow, RunJobRow.job_id == JobRow.id)
                .where(among(session, JobRow.id, part))
            )
            for key, name in session.execute(query.distinct()):
                run_names.setdefault(key, set()).add(name)
        names |= {
            key: min(candidates) for key, candidates in run_names.items() if len(candidates) == 1
        }
    return names


def _name(place: Place, kernel: str, canonical: Mapping[str, Any], names: Mapping[str, str]) -> str:
    if place.within:
        return place.within
    name = names.get(place.test_key) or test_specs.name_of(kernel, canonical)
    return name if place.context == ISOLATED else f"{name} ({place.context})"


def _tolerance(tolerance: Mapping[str, Any]) -> str:
    """Return the tolerance as text: "rtol 0.001, atol 0.5", "dx: rtol 0.001"."""
    parts = [
        f"{name}: {_tolerance(value)}" if isinstance(value, Mapping) else f"{name} {value:.12g}"
        for name, value in tolerance.items()
    ]
    return ", ".join(parts)


def _parts(items: Sequence[str]) -> Iterable[Sequence[str]]:
    for start in range(0, len(items), _AT_ONCE):
        yield items[start : start + _AT_ONCE]
