"""Changes that can explain a step in numbers over time. Reads only, by index.

On an axis of builds or days they are the arithmetic of its builds, the firmware of its devices, and
other tolerances of the same workload. On an axis of time they are those of all tests and devices,
or of one device, and new builds of ttnn.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Select, Text, func, select
from sqlalchemy.orm import Session, aliased

from gonogo_service.builds.model import BuildRow
from gonogo_service.devices.model import DeviceHealthRow, DeviceRow
from gonogo_service.jobs.model import AttemptRow, JobRow
from gonogo_service.kit.database.each import Columns, Given, among, of_each
from gonogo_service.kit.database.ids import floor
from gonogo_service.kit.database.paging import batched
from gonogo_service.kit.database.states import LISTED_KINDS
from gonogo_service.tests.model import TestSpecRow

MAX_TESTS = 20
"""Other tests of a workload that are read, the newest first."""
JOBS_OF_BUILD = 8
"""The newest jobs of a build whose devices' firmware an axis of several tests reads."""
TTNN = "ttnn"
"""The executor whose builds are versions of ttnn."""
MAX_DATED = 200
"""Changes of each kind on an axis of time, the newest first."""
_MAX_KEYS = 1000
"""Keys of one query."""
_BUILD: Columns = (("build", Text()),)


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


def of_tests(
    session: Session, axes: Mapping[str, Sequence[AxisPlace]]
) -> dict[str, list[Annotation]]:
    """Return the changes on the axis of each test, by its key; all are read together."""
    changes = of_runs(session, axes)
    starts = [place.at for places in axes.values() for place in places if place.at]
    tests = _newer_tests(session, list(axes), min(starts)) if starts else {}
    return {
        key: [*changes[key], *_new_tests(places, tests.get(key, ()))]
        for key, places in axes.items()
    }


def of_builds(
    session: Session, builds: Sequence[str], test_keys: Collection[str]
) -> list[Annotation]:
    """Return the changes between builds, which are in order, for an axis of several tests."""
    places = _places(session, builds)
    starts = [place.at for place in places if place.at]
    of_test = _newer_tests(session, list(test_keys), min(starts)) if starts else {}
    tests = {test.key: test for some in of_test.values() for test in some}
    return [
        *of_runs(session, {"": places})[""],
        *_new_tests(places, tests.values(), named=True),
    ]


def of_runs(
    session: Session, axes: Mapping[str, Sequence[AxisPlace]]
) -> dict[str, list[Annotation]]:
    """Return the changes of the builds' arithmetic and of the devices' firmware, by axis."""
    places = [place for axis in axes.values() for place in axis]
    models = _models(session, {build for place in places for build in place.builds})
    firmware = _firmware(session, [job for place in places for job in place.jobs])
    return {
        name: [
            *_steps("arithmetic", [_last(place.builds, models) for place in axis]),
            *_steps("firmware", [_only(place.jobs, firmware) for place in axis]),
        ]
        for name, axis in axes.items()
    }


def _steps(kind: str, values: Iterable[str | None]) -> list[Annotation]:
    """Return where a value differs from the last known one."""
    steps, last = [], None
    for place, value in enumerate(values):
        if value is not None:
            if last is not None and value != last:
                steps.append(Annotation(place, kind, last, value))
            last = value
    return steps


def _last(builds: Iterable[str], models: Mapping[str, str]) -> str | None:
    return next(iter([models[build] for build in builds if build in models][-1:]), None)


def _only(jobs: Iterable[str], firmware: Mapping[str, set[str]]) -> str | None:
    """Return the firmware of the devices of these jobs, where all have the same."""
    versions = {version for job in jobs for version in firmware.get(job, ())}
    return next(iter(versions)) if len(versions) == 1 else None


def _models(session: Session, builds: Collection[str]) -> Mapping[str, str]:
    """Return the arithmetic of each registered build that names one."""
    query = select(BuildRow.name, BuildRow.arithmetic).where(
        among(session, BuildRow.name, sorted(builds)), BuildRow.arithmetic.is_not(None)
    )
    return {name: arithmetic for name, arithmetic in session.execute(query) if arithmetic}


def _firmware(session: Session, jobs: Sequence[str]) -> dict[str, set[str]]:
    versions: dict[str, set[str]] = {}
    version = AttemptRow.telemetry["firmware"].as_string()
    for batch in batched(jobs, _MAX_KEYS):
        query = select(AttemptRow.job_id, version).where(
            among(session, AttemptRow.job_id, batch), AttemptRow.telemetry.is_not(None)
        )
        for job, name in session.execute(query):
            if name:
                versions.setdefault(job, set()).add(name)
    return versions


def _new_tests(
    places: Sequence[AxisPlace], tests: Iterable[TestSpecRow], *, named: bool = False
) -> list[Annotation]:
    """Return where tests of another tolerance came; named: with their kernels."""
    changes = []
    for test in tests:
        later = (n for n, place in enumerate(places) if place.at and place.at >= test.created_at)
        if place := next(later, None):  # before the first build nothing can have changed
            tolerance = test.test.get("tolerance", {})
            kernel = test.kernel if named else ""
            changes.append(Annotation(place, "tolerance", None, tolerance, kernel))
    return changes


def _newer_tests(session: Session, keys: Sequence[str], start: datetime) -> dict[str, list[Any]]:
    """Return the newest other tests of each test's workload that came since then, by its key."""
    table, this, tests = TestSpecRow, aliased(TestSpecRow), dict[str, list[Any]]()
    newest = func.row_number().over(
        partition_by=table.workload_key, order_by=table.created_at.desc()
    )
    columns = table.key, table.workload_key, table.kernel, table.test, table.created_at
    numbered = select(*columns, newest.label("place")).where(table.created_at >= start)
    for batch in batched(keys, _MAX_KEYS):
        chosen = among(session, this.key, batch)
        workloads = select(this.workload_key).where(chosen)
        one = numbered.where(table.workload_key.in_(workloads)).subquery().c
        others = (one.workload_key == this.workload_key) & (one.key != this.key)
        query = select(this.key.label("of"), *one).join(one.key.table, others)
        query = query.where(chosen, one.place <= MAX_TESTS + 1).order_by(one.place)
        for test in session.execute(query):
            tests.setdefault(test.of, []).append(test)
    return {key: some[:MAX_TESTS] for key, some in tests.items()}


def _later_tests(start: datetime) -> Any:
    """Return the query of the tests from a moment on whose workload had another one before."""
    table, older = TestSpecRow, aliased(TestSpecRow)
    had = select(older.key).where(
        older.workload_key == table.workload_key, older.created_at < table.created_at
    )
    query = select(table.kernel, table.test, table.created_at)
    return query.where(table.created_at >= start, had.exists()).order_by(table.created_at.desc())


def _places(session: Session, builds: Sequence[str]) -> list[AxisPlace]:
    """Return the places of builds with their newest jobs, and when the first was submitted."""
    jobs: dict[int, dict[str, datetime]] = {}
    for ask in (_newest_jobs, _first_job) if builds else ():
        for place, job, at in of_each(session, ask, _BUILD, [(build,) for build in builds]):
            jobs.setdefault(place, {})[job] = at
    of_build = ((build, jobs.get(place, {})) for place, build in enumerate(builds))
    return [
        AxisPlace((build,), tuple(known), min(known.values(), default=None))
        for build, known in of_build
    ]


def _newest_jobs(given: Given) -> Select[*tuple[Any, ...]]:
    return _jobs(given).order_by(JobRow.id.desc()).limit(JOBS_OF_BUILD)


def _first_job(given: Given) -> Select[*tuple[Any, ...]]:
    return _jobs(given).order_by(JobRow.id).limit(1)


def _jobs(given: Given) -> Select[*tuple[Any, ...]]:
    query = select(JobRow.id, JobRow.created_at)
    return query.where(JobRow.build == given("build"), JobRow.kind.in_(LISTED_KINDS))


def since(session: Session, start: datetime, device_id: str | None = None) -> list[DatedAnnotation]:
    """Return the changes from a moment on, in order; of one device without tests' tolerances."""
    changes = [*_builds(session, start), *_device_firmware(session, start, device_id)]
    if device_id is None:
        changes += [
            DatedAnnotation(at, "tolerance", kernel, None, canonical.get("tolerance", {}))
            for kernel, canonical, at in session.execute(_later_tests(start).limit(MAX_DATED))
        ]
    return sorted(changes, key=lambda change: change.at)


def _builds(session: Session, start: datetime) -> list[DatedAnnotation]:
    """Return the new builds of ttnn, and the builds with another arithmetic."""
    table = BuildRow
    before = func.lag(table.arithmetic).over(partition_by=table.branch, order_by=table.sequence)
    columns = table.name, table.branch, table.executor, table.arithmetic, table.created_at
    known = select(*columns, before.label("before")).subquery()
    query = select(known).where(known.c.created_at >= start).order_by(known.c.created_at.desc())
    changes = []
    for name, branch, executor, model, at, former in session.execute(query.limit(MAX_DATED)):
        if executor == TTNN:
            changes.append(DatedAnnotation(at, "build", branch, None, name))
        if former and model and former != model:
            changes.append(DatedAnnotation(at, "arithmetic", branch, former, model))
    return changes


def _device_firmware(
    session: Session, start: datetime, device_id: str | None
) -> list[DatedAnnotation]:
    table = DeviceHealthRow
    query = (
        select(table.at, DeviceRow.device, table.before, table.after)
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
