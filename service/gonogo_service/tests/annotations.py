"""Changes that can explain a step in numbers over time. Reads only, by index.

On an axis of a test's builds or days they are the arithmetic of its builds, the firmware of
its devices, and other tolerances of the same workload. On an axis of time they are those of all
tests and devices, or of one device, and new builds of ttnn.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import CompoundSelect, bindparam, func, select, union_all
from sqlalchemy.orm import Session, aliased

from gonogo_service.builds.model import BuildRow
from gonogo_service.devices.model import DeviceHealthRow, DeviceRow
from gonogo_service.jobs.model import AttemptRow, JobRow
from gonogo_service.kit.database.each import among
from gonogo_service.kit.database.ids import floor
from gonogo_service.kit.database.states import LISTED_KINDS
from gonogo_service.tests.model import TestSpecRow

MAX_TESTS = 20
"""Other tests of a workload that are read, the newest first."""
MAX_ATTEMPTS = 400
JOBS_OF_BUILD = 8
"""The newest jobs of a build whose devices' firmware an axis of several tests reads."""
TTNN = "ttnn"
"""The executor whose builds are versions of ttnn."""
MAX_DATED = 200
"""Changes of each kind on an axis of time, the newest first."""


class AxisPlace(NamedTuple):
    """A build or a day on an axis: its builds, its jobs, and when the first was submitted.

    `at` is None where only other tests of the workload ran.
    """

    builds: tuple[str, ...]
    jobs: tuple[str, ...] = ()
    at: datetime | None = None


@dataclass(frozen=True)
class Annotation:
    """A change from the place before `place` to the one at it; `before` is None for a new one."""

    place: int
    kind: str
    """ "arithmetic", "firmware" or "tolerance"."""
    before: str | None
    after: Any
    subject: str = ""
    """The kernel of a new tolerance, where the axis is of several tests."""


@dataclass(frozen=True)
class DatedAnnotation:
    """A change at a moment; `subject` is the device, the branch or the kernel that changed."""

    at: datetime
    kind: str
    """ "arithmetic", "build", "firmware" or "tolerance"."""
    subject: str
    before: str | None
    after: Any


def read(
    session: Session, places: Sequence[AxisPlace], workload_key: str, test_key: str
) -> list[Annotation]:
    """Return the changes between these places, which are in order."""
    return [*of_runs(session, places), *_tolerances(session, places, workload_key, test_key)]


def of_runs(session: Session, places: Sequence[AxisPlace]) -> list[Annotation]:
    """Return the changes of the builds' arithmetic and of the devices' firmware."""
    firmware = _firmware(session, places)
    return [
        *of_models(session, places),
        *steps("firmware", [firmware.get(place) for place in range(len(places))]),
    ]


def of_tests(
    session: Session, builds: Sequence[str], test_keys: Collection[str]
) -> list[Annotation]:
    """Return the changes between builds, which are in order, for an axis of several tests."""
    places = _places(session, builds)
    return [*of_runs(session, places), *_tolerances_of(session, places, test_keys)]


def _places(session: Session, builds: Sequence[str]) -> list[AxisPlace]:
    """Return the places of builds with their newest jobs, and when the first was submitted."""
    if not builds:
        return []
    distinct = list(dict.fromkeys(builds))
    values = {f"build{number}": build for number, build in enumerate(distinct)}
    of_build: dict[str, list[tuple[str, datetime]]] = {}
    for job, build, at in session.execute(_first_and_newest_jobs(len(distinct)), values):
        of_build.setdefault(build, []).append((job, at))
    return [
        AxisPlace(
            (build,),
            tuple(dict.fromkeys(job for job, _ in of_build.get(build, ()))),
            min((at for _, at in of_build.get(build, ())), default=None),
        )
        for build in builds
    ]


@cache  # building the statement takes longer than running it
def _first_and_newest_jobs(builds: int) -> CompoundSelect[Any]:
    table, parts = JobRow, []
    for number in range(builds):
        query = select(table.id, table.build, table.created_at).where(
            table.build == bindparam(f"build{number}"), table.kind.in_(LISTED_KINDS)
        )
        parts += [
            select(query.order_by(table.id.desc()).limit(JOBS_OF_BUILD).subquery()),
            select(query.order_by(table.id).limit(1).subquery()),
        ]
    return union_all(*parts)


def of_models(session: Session, places: Sequence[AxisPlace]) -> list[Annotation]:
    """Return the changes of the builds' arithmetic."""
    by_build = models(session, {build for place in places for build in place.builds})
    return model_steps(by_build, places)


def models(session: Session, builds: Collection[str]) -> Mapping[str, str]:
    """Return the arithmetic of each registered build that names one."""
    query = select(BuildRow.name, BuildRow.arithmetic).where(
        among(session, BuildRow.name, sorted(builds))
    )
    return {name: model for name, model in session.execute(query) if model}


def model_steps(models: Mapping[str, str], places: Sequence[AxisPlace]) -> list[Annotation]:
    """Return the changes between places whose builds' models are known already."""
    known = [[model for build in place.builds if (model := models.get(build))] for place in places]
    return steps("arithmetic", [of_place[-1] if of_place else None for of_place in known])


def since(session: Session, start: datetime, device_id: str | None = None) -> list[DatedAnnotation]:
    """Return the changes from a moment on, in order; of one device without tests' tolerances."""
    changes = [*_builds(session, start), *_device_firmware(session, start, device_id)]
    changes += _new_tolerances(session, start) if device_id is None else []
    return sorted(changes, key=lambda change: change.at)


def steps(kind: str, values: Sequence[str | None]) -> list[Annotation]:
    """Return where a value differs from the last known one."""
    steps, last = [], None
    for place, value in enumerate(values):
        if value is None:
            continue
        if last is not None and value != last:
            steps.append(Annotation(place, kind, last, value))
        last = value
    return steps


def _firmware(session: Session, places: Sequence[AxisPlace]) -> Mapping[int, str]:
    """Return the firmware of the devices of each place, where all of them have the same."""
    of_job: dict[str, int] = {}
    for number, place in enumerate(places):  # a build may have two places on a trend
        for job in place.jobs:
            of_job.setdefault(job, number)
    query = select(AttemptRow.job_id, AttemptRow.telemetry["firmware"].as_string()).where(
        among(session, AttemptRow.job_id, of_job), AttemptRow.telemetry.is_not(None)
    )
    versions: dict[int, set[str]] = {}
    for job, version in session.execute(query.limit(MAX_ATTEMPTS)):
        if version:
            versions.setdefault(of_job[job], set()).add(version)
    return {
        place: next(iter(of_place)) for place, of_place in versions.items() if len(of_place) == 1
    }


def _tolerances(
    session: Session, places: Sequence[AxisPlace], workload_key: str, test_key: str
) -> list[Annotation]:
    query = (
        select(TestSpecRow.canonical, TestSpecRow.created_at)
        .where(TestSpecRow.workload_key == workload_key, TestSpecRow.key != test_key)
        .order_by(TestSpecRow.created_at.desc())
        .limit(MAX_TESTS)
    )
    return tolerance_steps(places, [(canonical, at) for canonical, at in session.execute(query)])


def tolerance_steps(
    places: Sequence[AxisPlace], others: Iterable[tuple[Mapping[str, Any], datetime]]
) -> list[Annotation]:
    """Return where other tests of a workload came; `others`: their canonical form, and when."""
    changes = []
    for canonical, created_at in others:
        after = (
            number for number, place in enumerate(places) if place.at and place.at >= created_at
        )
        place = next(after, None)
        if place:  # before the first build nothing can have changed
            changes.append(Annotation(place, "tolerance", None, canonical.get("tolerance", {})))
    return changes


def _tolerances_of(
    session: Session, places: Sequence[AxisPlace], test_keys: Collection[str]
) -> list[Annotation]:
    """Return the newest tests of these tests' workloads that had another one before."""
    known = [place.at for place in places if place.at]
    if not known:
        return []
    table, older = TestSpecRow, aliased(TestSpecRow)
    shown = select(table.workload_key).where(table.key.in_(list(test_keys)))
    had = select(older.key).where(
        older.workload_key == table.workload_key, older.created_at < table.created_at
    )
    query = (
        select(table.kernel, table.canonical, table.created_at)
        .where(table.workload_key.in_(shown), table.created_at >= min(known), had.exists())
        .order_by(table.created_at.desc())
        .limit(MAX_TESTS)
    )
    changes = []
    for kernel, canonical, created_at in session.execute(query):
        later = (n for n, place in enumerate(places) if place.at and place.at >= created_at)
        place = next(later, None)
        if place:  # before the first build nothing can have changed
            tolerance = canonical.get("tolerance", {})
            changes.append(Annotation(place, "tolerance", None, tolerance, kernel))
    return changes


def _builds(session: Session, start: datetime) -> list[DatedAnnotation]:
    """Return the new builds of ttnn, and the builds with another arithmetic."""
    table = BuildRow
    known = select(
        table.name,
        table.branch,
        table.executor,
        table.arithmetic,
        table.created_at,
        func.lag(table.arithmetic)
        .over(partition_by=table.branch, order_by=table.sequence)
        .label("before"),
    ).subquery()
    query = select(known).where(known.c.created_at >= start).order_by(known.c.created_at.desc())
    changes = []
    for name, branch, executor, model, at, before in session.execute(query.limit(MAX_DATED)):
        if executor == TTNN:
            changes.append(DatedAnnotation(at, "build", branch, None, name))
        if before and model and before != model:
            changes.append(DatedAnnotation(at, "arithmetic", branch, before, model))
    return changes


def _device_firmware(
    session: Session, start: datetime, device_id: str | None
) -> list[DatedAnnotation]:
    table = DeviceHealthRow
    query = (
        select(table.at, DeviceRow.identity, table.before, table.after)
        .join(DeviceRow, DeviceRow.id == table.device_id)
        .where(table.what == "firmware", table.id >= floor(start))
        .order_by(table.id.desc())
        .limit(MAX_DATED)
    )
    if device_id is not None:
        query = query.where(table.device_id == device_id)
    return [
        DatedAnnotation(at, "firmware", device, before, after)
        for at, device, before, after in session.execute(query)
    ]


def _new_tolerances(session: Session, start: datetime) -> list[DatedAnnotation]:
    """Return the new tests of a workload that had another one before."""
    table, older = TestSpecRow, aliased(TestSpecRow)
    had = select(older.key).where(
        older.workload_key == table.workload_key, older.created_at < table.created_at
    )
    query = (
        select(table.created_at, table.kernel, table.canonical)
        .where(table.created_at >= start, had.exists())
        .order_by(table.created_at.desc())
        .limit(MAX_DATED)
    )
    return [
        DatedAnnotation(at, "tolerance", kernel, None, canonical.get("tolerance", {}))
        for at, kernel, canonical in session.execute(query)
    ]
