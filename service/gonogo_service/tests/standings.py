"""How tests stand: hollow, red or flaky on their newest builds, over the jobs of some days.

The overview's numbers, the list of tests with its filters, and the badge of a branch count these.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import cache, partial
from operator import attrgetter
from typing import Any

from sqlalchemy import Select, Text, and_, bindparam, case, func, literal, select
from sqlalchemy.orm import Session

from gonogo.flakiness.grades import Sharpness, Stability
from gonogo.spec.described import Described, Row
from gonogo.spec.verdicts import WORST_FIRST, Verdict
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.columns import IdType, UtcTime
from gonogo_service.kit.database.ids import floor
from gonogo_service.tests import recent_builds, recent_days
from gonogo_service.tests.recent_builds import FLAGS, JOBS, SEEDS, Standing
from gonogo_service.tests.variants import ENDED, NAMES, Variant

WINDOW = timedelta(days=30)
"""A test that didn't run for so long has no standing."""


@dataclass(frozen=True)
class _Kind(Row):
    in_days: str = ""


class Kind(Described):
    """A kind of tests that the list can be filtered by.

    `in_days` is its meaning in a range of days, where that differs.
    """

    in_days: str
    hollow = _Kind(
        "hollow",
        "On its newest build some seed passes only by tolerance.",
        mark=Verdict.pass_by_tolerance,
        in_days="In this time some build had a seed that passes only by tolerance.",
    )
    red = _Kind(
        "red",
        "On its newest build some seed fails, whether rightly or not, hangs or crashes.",
        mark=Verdict.fail,
        in_days="In this time some build had a seed that fails, hangs or crashes.",
    )
    broken = _Kind("broken", Stability.broken.sentence, mark=Stability.broken.mark)
    flaky = _Kind(
        "flaky",
        "On its newest build some seeds pass and some fail.",
        mark=Verdict.suspect,
        in_days="In this time some build had passing and failing seeds.",
    )
    lost = _Kind(
        "lost",
        "On its newest build some seed crashed, hung or met an error.",
        "Crashes, hangs or errors",
        Verdict.error,
        "In this time some build had a seed that crashed, hung or met an error.",
    )
    marginal = _Kind("marginal", Stability.marginal.sentence, mark=Stability.marginal.mark)
    blunt = _Kind("blunt", Sharpness.blunt.sentence, mark=Sharpness.blunt.mark)
    flagged = _Kind("flagged", "It has a flag that nobody has acknowledged.", "Open flags", "none")


COUNTED = Kind.hollow, Kind.red, Kind.flaky, Kind.lost
"""The kinds that a Standing tells; grades and flags tell the others."""
Standings = Mapping[Variant, Standing]


def read(
    session: Session,
    *,
    since: datetime,
    until: datetime | None = None,
    branch: str | None = None,
    every_build: bool = False,
) -> dict[Variant, Standing]:
    """Return the standing of each variant of which a job was submitted since then and has ended.

    until: as of this moment; None is now. branch: only its jobs. every_build: not only the newest
    build counts. The runs of a bisection never count.
    """
    values = {
        "since": floor(since),
        "before": None if until is None else floor(until + timedelta(milliseconds=1)),
        "until": until,
        "branch": branch,
    }
    given = tuple(name for name, value in values.items() if value is not None)
    rows = session.execute(_query(given, every_build), {name: values[name] for name in given})
    return dict(map(recent_builds.result, rows))


def of_kind(standings: Standings, kind: Kind) -> set[str]:
    """Return the keys of the tests that have a variant of one of the COUNTED kinds."""
    return {variant.test_key for variant, one in standings.items() if getattr(one, kind)}


def by_test(standings: Standings) -> dict[str, Standing]:
    """Return the worst standing of each test over its variants."""
    of_test: dict[str, list[Standing]] = {}
    for variant, standing in standings.items():
        of_test.setdefault(variant.test_key, []).append(standing)
    return {key: _worst(some) for key, some in of_test.items()}


def worst_verdict(standings: Iterable[Standing]) -> str | None:
    """Return the worst verdict; None where nothing was judged."""
    verdicts = {one.verdict for one in standings}
    return next((verdict for verdict in WORST_FIRST if verdict in verdicts), None)


def _worst(some: list[Standing]) -> Standing:
    flags = {name: any(getattr(one, name) for one in some) for name in FLAGS}
    verdict, newest = worst_verdict(some), max(some, key=attrgetter("at"))
    job = max(one.job for one in some if one.verdict == verdict)
    return Standing(**flags, verdict=verdict, job=job, at=newest.at, build=newest.build)


Memory = recent_days.Memory[Standings]


def as_of(session: Session, moment: datetime, branch: str) -> Standings:
    """Return the standings on a branch as of a past moment."""
    return read(session, since=moment - WINDOW, until=moment, branch=branch)


def by_day(
    session: Session, memory: Memory, *, days: int, now: datetime
) -> list[tuple[date, Standings]]:
    """Return the standings as of the end of each of the last `days` UTC days, today's as of now.

    The newest builds of the WINDOW before count. It updates `memory`.
    """
    return recent_days.read(memory, partial(_counted, session, now), dict, days=days, now=now)


def _counted(session: Session, now: datetime, first: date) -> dict[date, Standings]:
    today = now.astimezone(UTC).date()
    counted: dict[date, Standings] = {today: read(session, since=now - WINDOW)}
    for day in (first + timedelta(days=after) for after in range((today - first).days)):
        end = datetime.combine(day + timedelta(days=1), time(), UTC)
        counted[day] = read(session, since=end - WINDOW, until=end)
    return counted


@cache  # building the statement takes longer than running it
def _query(given: Collection[str], every_build: bool) -> Select[Any]:
    of_builds = recent_builds.per_build(_jobs(given, every_build).subquery())
    if not every_build:
        return of_builds
    one = of_builds.subquery().c
    variant = [one[name] for name in NAMES]
    flags = (func.max(case((one[name], 1), else_=0)) for name in ("hollow", "red", "flaky"))
    newest = func.max(one.at, type_=UtcTime()), func.max(one.worst)
    several = literal(0), literal("")  # no sequence, no build
    columns = *variant, *several, *newest, *flags, *(func.sum(one[name]) for name in SEEDS)
    return select(*columns).group_by(*variant)


def _jobs(given: Collection[str], every_build: bool) -> Select[Any]:
    """Return the query of the jobs that count."""
    table = JobRow
    places = [getattr(table, name) for name in NAMES]
    since = table.id >= bindparam("since", type_=IdType)
    conditions = [ENDED, since]
    if "until" in given:
        conditions.append(table.id < bindparam("before", type_=IdType))
        conditions.append(table.finished_at <= bindparam("until", type_=UtcTime))
    if "branch" in given:
        conditions.append(table.branch == bindparam("branch", type_=Text))
    if every_build:
        return select(*JOBS).where(*conditions)
    sequence = func.max(table.build_sequence).label("build_sequence")
    newest = select(*places, sequence).where(*conditions).group_by(*places).subquery().c
    of_variant = [getattr(table, name) == newest[name] for name in NAMES]
    # The emulator's builds have one sequence number; there the newest job decides.
    last = func.first_value(table.build).over(partition_by=places, order_by=table.id.desc())
    on_newest = *of_variant, table.build_sequence == newest.build_sequence
    # without `since`: a build counts with all its jobs, and their index is ix_jobs_newest
    jobs = (
        select(*JOBS, last.label("last"))
        .join(newest.build_sequence.table, and_(*on_newest))
        .where(*(condition for condition in conditions if condition is not since))
        .subquery()
    )
    return select(*list(jobs.c)[:-1]).where(jobs.c.build == jobs.c.last)
