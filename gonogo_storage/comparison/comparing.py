"""A commit against its base: every test that ran on either side, classified, with the evidence.
Reads only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo.errors import FieldError
from gonogo.flakiness.classes import Class, Classification, Known, Ran
from gonogo.flakiness.classification import classify
from gonogo.flakiness.gating import FailOn, Gate, gate
from gonogo.flakiness.policy import POLICY, FlakinessPolicy
from gonogo.flakiness.waivers import touches, waived
from gonogo.spec.verdicts import Verdict
from gonogo_storage.catalogue import test_specs
from gonogo_storage.comparison import check_lines, comparison_side, waivers
from gonogo_storage.comparison.check_lines import Wanted
from gonogo_storage.comparison.comparison_side import Place, Side, Told
from gonogo_storage.db.encoding import timestamp, utcnow
from gonogo_storage.db.states import FlagState
from gonogo_storage.history import build_series
from gonogo_storage.rollups.variants import ISOLATED
from gonogo_storage.tables import FlagChangeRow, FlagRow, JobRow, RunJobRow, TestSpecRow

_UNEXPLAINED = (Verdict.fail, Verdict.pass_by_tolerance)
_AT_ONCE = 500
MOST_SEEDS, LEAST_SEEDS = 512, 16
"""Of all tests of a side together, and of each test at least: seeds whose errors are compared. The
counts are of all seeds."""
_FLAG = (
    "id", "test_key", "branch", "arch", "board", "kind", "state", "first_job", "build", "owner", "reason", "expires_at", "evidence",
)  # fmt: skip


@dataclass(frozen=True)
class Compared:
    """One test of a comparison."""

    place: Place
    name: str
    """Its name in its suite, else kernel and shape; of a selection the test within."""
    workload_key: str
    kernel: str
    canonical: Mapping[str, Any]
    classification: Classification
    base: Ran | None
    head: Ran | None
    check: str | None
    """The `gonogo check` line that runs it again on head's build, for what isn't good."""

    def to_json(self) -> dict[str, Any]:
        """In plain JSON types (links are the API's)."""
        place = self.place
        return {
            "name": self.name, "test_key": place.test_key, "workload_key": self.workload_key, "kernel": self.kernel,
            "test": dict(self.canonical), "within": place.within or None, "arch": place.arch, "board": place.board,
            "context": place.context, **self.classification.to_json(), "base": None if self.base is None else self.base.to_json(),
            "head": None if self.head is None else self.head.to_json(), "check": self.check,
        }  # fmt: skip


@dataclass(frozen=True)
class Comparison:
    """All tests of two sides, what people want to read first comes first."""

    base: Told
    head: Told
    tests: tuple[Compared, ...]
    policy: str

    @property
    def complete(self) -> bool:
        """Whether every job of both sides is over."""
        return not (self.base.waiting or self.head.waiting)

    @property
    def counts(self) -> dict[str, int]:
        """Class -> tests, in the order of Class, each test once."""
        found = Counter(each.classification.kind for each in self.tests)
        return {kind.value: found[kind] for kind in Class if found[kind]}

    @property
    def words(self) -> str:
        """One phrase, "1 new hollow pass, 3 passed"."""
        return (
            ", ".join(Class(kind).counted(number) for kind, number in self.counts.items())
            or "no test ran"
        )

    def of(self, *kinds: Class) -> tuple[Compared, ...]:
        """The tests of these classes."""
        return tuple(each for each in self.tests if each.classification.kind in kinds)

    def gate(self, fail_on: FailOn | str = FailOn.new) -> Gate:
        """Whether head may pass."""
        return gate((each.classification for each in self.tests), fail_on)

    def to_json(self) -> dict[str, Any]:
        """In plain JSON types, without the tests."""
        return {
            "base": self.base.to_json(), "head": self.head.to_json(), "complete": self.complete, "counts": self.counts, "words": self.words,
            "tests": len(self.tests), "policy": self.policy,
        }  # fmt: skip


def compare(
    session: Session,
    base: str | Side,
    head: str | Side,
    *,
    now: datetime | None = None,
    policy: FlakinessPolicy = POLICY,
) -> Comparison:
    """Classify every test that ran on head or on base (4-flakiness.md, "Classifying a commit's
    failures for CI").

    base, head: a build, a run's id, `build@run`, or the commit of a registered build
    (gonogo_storage.comparison.comparison_side.find). A base that never ran makes what is bad on head unknown. Raises
    FieldError for a run that isn't there, and for a head on which nothing was submitted.
    """
    first = comparison_side.find(session, base, "base") if isinstance(base, str) else base
    second = comparison_side.find(session, head, "head") if isinstance(head, str) else head
    told = comparison_side.read(session, first), comparison_side.read(session, second)
    if not told[1].jobs:
        raise FieldError(
            "head",
            second.text,
            "nothing was submitted for it",
            limit="a build that has jobs, or a run's id",
        )
    ran_before = {place for place, ran in told[0].tests.items() if ran.counts}
    places = sorted(ran_before | told[1].tests.keys())
    now = now or utcnow()
    flags = _flags(session, {place.test_key for place in places}, *told, now)
    held = waivers.in_force(session, told[1].ids, now=now)
    specs = _specs(session, {place.test_key for place in places})
    names = _names(session, told)
    called = {place: _name(place, *specs[place.test_key][1:], names) for place in places}
    twice = Counter((name, place.arch, place.board) for place, name in called.items())
    on_base, on_head = _recorded(session, told, places)
    found = []
    for place in places:
        before, after = on_base.get(place), on_head.get(place)
        branches = {side.branches[place] for side in told if place in side.branches}
        known = [
            each
            for branch in sorted(branches)
            for each in flags.get((place.test_key, branch, place.arch, place.board), ())
        ]
        said = classify(before, after, known, policy)
        workload, kernel, canonical = specs[place.test_key]
        name = called[place]
        if (
            twice[name, place.arch, place.board] > 1
        ):  # told apart by what tests of the same shape mostly differ in
            name = " ".join(filter(None, (name, _tolerance(canonical.get("tolerance", {})))))
        if after is not None and touches(said):
            said = waived(
                said, held.of(place.test_key, {name, called[place]}, after.jobs, after.build)
            )
        found.append(Compared(place, name, workload, kernel, canonical, said, before, after, None))
    wanted = (Wanted(each.place, each.canonical, each.head, each.classification) for each in found)
    checks = check_lines.lines(session, told[1], wanted)
    found = [
        replace(each, check=checks[each.place]) if each.place in checks else each for each in found
    ]
    found.sort(key=lambda each: (each.classification.kind.rank, each.name, each.place))
    return Comparison(*told, tuple(found), policy.version)


def _recorded(
    session: Session, told: tuple[Told, Told], places: Iterable[Place]
) -> list[dict[Place, Ran]]:
    """What tests did on base and on head, with their seeds and terms where the errors have to be
    compared: some seed is unexplained.
    """
    base, head = (side.tests for side in told)
    compared = [
        place
        for place in places
        if place in base and place in head and _comparable(base[place], head[place])
    ]
    seeds = min(build_series.SEEDS_PER_BUILD, max(LEAST_SEEDS, MOST_SEEDS // max(1, len(compared))))
    found = []
    for side in told:
        made = build_series.records_of(
            session, {place: side.facts.get(place, ()) for place in compared}, seeds=seeds
        )
        recorded = {
            place: replace(side.tests[place], record=each[-1] if each else None)
            for place, each in made.items()
        }
        found.append({**side.tests, **recorded})
    return found


def _comparable(before: Ran, after: Ran) -> bool:
    return bool(
        before.judged and after.judged and (before.of(*_UNEXPLAINED) or after.of(*_UNEXPLAINED))
    )


def _flags(
    session: Session, keys: Iterable[str], base: Told, head: Told, now: datetime
) -> dict[tuple[str, str, str, str], list[Known]]:
    """The flags of these tests that are not resolved, by full variant."""
    rows: list[Any] = []
    for part in _parts(sorted(keys)):
        query = select(*(getattr(FlagRow, name) for name in _FLAG)).where(
            FlagRow.test_key.in_(part), FlagRow.state != FlagState.resolved
        )
        rows += session.execute(query.order_by(FlagRow.kind)).all()
    openings = _openings(session, [row.id for row in rows])
    found: dict[tuple[str, str, str, str], list[Known]] = {}
    for row in rows:
        job, build = openings.get(row.id, (row.first_job, row.build))
        own = job in head.ids or (build in head.builds and build not in base.builds)
        taken_on = row.state == FlagState.acknowledged and (
            row.expires_at is None or row.expires_at > now
        )
        known = Known(
            row.id, row.kind, taken_on, own, row.owner, row.reason, timestamp(row.expires_at),
            str(row.evidence.get("words") or row.evidence.get("sentence") or ""),
        )  # fmt: skip
        found.setdefault((row.test_key, row.branch, row.arch, row.board), []).append(known)
    return found


def _openings(session: Session, flag_ids: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Flag -> (job, build) of the evidence that it was opened, or opened again, with."""
    found: dict[str, tuple[str, str]] = {}
    table = FlagChangeRow
    for part in _parts(flag_ids):
        query = select(table.flag_id, table.detail).where(
            table.flag_id.in_(part), table.what.in_(("opened", "reopened"))
        )
        for flag_id, detail in session.execute(query.order_by(table.flag_id, table.version)):
            if detail and detail.get("job"):
                found[flag_id] = str(detail["job"]), str(detail.get("build"))
    return found


def _specs(session: Session, keys: Iterable[str]) -> dict[str, tuple[str, str, Mapping[str, Any]]]:
    found = {}
    for part in _parts(sorted(keys)):
        table = TestSpecRow
        for row in session.execute(
            select(table.key, table.workload_key, table.kernel, table.canonical).where(
                table.key.in_(part)
            )
        ):
            found[row.key] = (row.workload_key, row.kernel, row.canonical)
    return found


def _names(session: Session, told: Iterable[Told]) -> dict[str, str]:
    """Test -> the name that its suite gives it, head's before base's; none for what has several, or
    was submitted by itself.
    """
    found: dict[str, str] = {}
    for side in told:
        named: dict[str, set[str]] = {}
        for part in _parts(sorted(side.ids)):
            query = (
                select(JobRow.test_key, RunJobRow.name)
                .join(RunJobRow, RunJobRow.job_id == JobRow.id)
                .where(JobRow.id.in_(part))
            )
            for key, name in session.execute(query.distinct()):
                named.setdefault(key, set()).add(name)
        found |= {key: min(each) for key, each in named.items() if len(each) == 1}
    return found


def _name(place: Place, kernel: str, canonical: Mapping[str, Any], names: Mapping[str, str]) -> str:
    if place.within:
        return place.within
    name = names.get(place.test_key) or test_specs.name_of(kernel, canonical)
    return name if place.context == ISOLATED else f"{name} ({place.context})"


def _tolerance(found: Mapping[str, Any]) -> str:
    """ "rtol 0.001, atol 0.5", "dx: rtol 0.001"."""
    parts = [
        f"{name}: {_tolerance(each)}" if isinstance(each, Mapping) else f"{name} {each:g}"
        for name, each in found.items()
    ]
    return ", ".join(parts)


def _parts(items: Sequence[str]) -> Iterable[Sequence[str]]:
    for start in range(0, len(items), _AT_ONCE):
        yield items[start : start + _AT_ONCE]
