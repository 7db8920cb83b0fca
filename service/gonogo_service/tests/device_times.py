"""The seconds a seed of tests on their devices, from the sums of jobs. Reads only.

Seeds on a device that was suspect or bad at the time, or is one of another executor, don't count.
The first seed of a process and those of a busy host have no seconds (docs/executors.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from gonogo.flakiness import device_times
from gonogo.flakiness.device_times import DeviceTime, TimeChange, Times
from gonogo.flakiness.history import Changes
from gonogo_service.devices import sick_devices
from gonogo_service.kit.database.each import among
from gonogo_service.kit.database.paging import batched
from gonogo_service.results.model import WHOLE, JobBlockRow
from gonogo_service.tests.build_series import MAX_BUILDS
from gonogo_service.tests.variants import JobFacts

_AT_ONCE = 500


@dataclass(frozen=True)
class BuildTime:
    """A build, and the seconds a seed of its kernel."""

    build: str
    time: DeviceTime


@dataclass(frozen=True)
class TimeSeries:
    """A test's builds in order, the changes between them, and the newest against the one before."""

    points: tuple[BuildTime, ...]
    changes: Changes
    last: TimeChange | None


def of_jobs(session: Session, jobs: Iterable[JobFacts]) -> dict[str, list[Times]]:
    """Return the seconds of jobs, those of each device apart; jobs without any are left out."""
    by_id = {job.id: job for job in jobs if not job.selection}
    spells = sick_devices.spells(session)
    table = JobBlockRow
    by = table.job_id, table.device
    sums = (func.sum(getattr(table, name)) for name in ("device_n", "device_log", "device_square"))
    query = select(*by, *sums).where(table.output == WHOLE, table.device_n > 0).group_by(*by)
    times: dict[str, list[Times]] = {}
    for ids in batched(list(by_id), _AT_ONCE):
        of_some = query.where(among(session, table.job_id, ids)).order_by(*by)
        for job_id, device, seeds, logs, squares in session.execute(of_some):
            job = by_id[job_id]
            ended = job.finished_at or job.created_at
            if not any(spell.covers(job.created_at, ended) for spell in spells.get(device, ())):
                times.setdefault(job_id, []).append(Times(int(seeds), logs, squares))
    return times


def of_builds(session: Session, jobs: Sequence[JobFacts]) -> dict[str, list[Times]]:
    """Return the seconds of a variant's newest builds, in order; jobs: the newest first.

    They are those of the executor that ran last, as another one is another program.
    """
    executor = jobs[0].executor if jobs else ""
    alike = [job for job in jobs if job.executor == executor]
    times = of_jobs(session, alike)
    builds: dict[str, list[Times]] = {}
    for job in sorted(alike, key=lambda job: (job.sequence, job.build)):
        if job.id in times:
            builds.setdefault(job.build, []).extend(times[job.id])
    return dict(list(builds.items())[-MAX_BUILDS:])


def series(session: Session, jobs: Sequence[JobFacts]) -> TimeSeries | None:
    """Return the builds of a variant with their change points; None: no build has enough seeds.

    A job's mean is one observation of its build: seeds of a process are alike.
    """
    builds = {
        name: (times, time)
        for name, times in of_builds(session, jobs).items()
        if (time := device_times.of_build(times)) is not None
    }
    if not builds:
        return None
    # it loads numpy, which the API starts without
    from gonogo.flakiness.changes import number_changes

    means = [[one.seconds for one in times] for times, _ in builds.values()]
    samples = [times for times, _ in builds.values()]
    return TimeSeries(
        tuple(BuildTime(name, time) for name, (_, time) in builds.items()),
        number_changes(means, list(builds)),
        device_times.compare(*samples[-2:]) if len(samples) > 1 else None,
    )


def since(
    builds: Mapping[str, Sequence[Times]], build: str, base: str | None
) -> tuple[str, TimeChange] | None:
    """Return a build against `base`, or the nearest one before it: (its name, the change).

    builds: from `of_builds`. None: one of them has too few seeds.
    """
    names = list(builds)
    if build not in builds:
        return None
    earlier = names[: names.index(build)][::-1]
    earlier = [base] if base in earlier else earlier
    pairs = ((name, device_times.compare(builds[name], builds[build])) for name in earlier)
    return next(((name, change) for name, change in pairs if change is not None), None)
