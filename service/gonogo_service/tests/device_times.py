"""The seconds a seed of tests on their devices, from the sums of jobs. Reads only.

Seeds on a device that was suspect or bad at the time don't count. The first seed of a process and
those of a busy host have no seconds (docs/executors.md).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from gonogo.flakiness import device_times
from gonogo.flakiness.changes import number_changes
from gonogo.flakiness.device_times import DeviceTime, TimeChange, Times
from gonogo.flakiness.history import Changes
from gonogo_service.devices import sick_devices
from gonogo_service.kit.database.each import among
from gonogo_service.kit.database.paging import batched
from gonogo_service.results.model import WHOLE, JobBlockRow
from gonogo_service.results.sums import KERNEL_SUMS
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


def per_job(
    session: Session, jobs: Iterable[JobFacts], without: Collection[str] = ()
) -> dict[str, list[Times]]:
    """Return the seconds of jobs on each device; jobs and devices without any are left out.

    without: further devices that say nothing.
    """
    by_id = {job.id: job for job in jobs if not job.selection}
    table = JobBlockRow
    by = table.job_id, table.device
    query = select(*by, *(func.sum(getattr(table, name)) for name in KERNEL_SUMS))
    query = query.where(table.output == WHOLE, table.kernel_n > 0).group_by(*by).order_by(*by)
    rows = [
        row
        for ids in batched(list(by_id), _AT_ONCE)
        for row in session.execute(query.where(among(session, table.job_id, ids)))
    ]
    spells = sick_devices.spells(session, {device for _, device, *_ in rows})
    times: dict[str, list[Times]] = {}
    for job_id, device, seeds, log_sum, square_sum in rows:
        if device not in without and not sick_devices.spell_of(spells, device, by_id[job_id]):
            times.setdefault(job_id, []).append(Times(device, int(seeds), log_sum, square_sum))
    return times


def per_build(
    session: Session, jobs: Sequence[JobFacts], like: JobFacts, without: Collection[str] = ()
) -> dict[str, list[Times]]:
    """Return the seconds of a variant's newest builds, in order; jobs: the newest first.

    They are those of the executor and the context of a job: another executor is another program,
    and what ran before decides what is in the caches.
    """
    same = like.executor, like.context
    alike = [job for job in jobs if (job.executor, job.context) == same]
    times = per_job(session, alike, without)
    builds: dict[str, list[Times]] = {}
    for job in sorted(alike, key=lambda job: (job.sequence, job.build)):
        if job.id in times:
            builds.setdefault(job.build, []).extend(times[job.id])
    return dict(list(builds.items())[-MAX_BUILDS:])


def series(session: Session, jobs: Sequence[JobFacts]) -> TimeSeries | None:
    """Return the builds of a variant with their change points; None: no build has enough seeds.

    A job's mean is one observation of its build: seeds of a process are alike.
    """
    measured = per_build(session, jobs, jobs[0]) if jobs else {}
    builds = {
        name: (times, time)
        for name, times in measured.items()
        if (time := device_times.time_of(times)) is not None
    }
    if not builds:
        return None
    means = [[math.exp(one.mean) for one in times] for times, _ in builds.values()]
    samples = [times for times, _ in builds.values()]
    return TimeSeries(
        tuple(BuildTime(name, time) for name, (_, time) in builds.items()),
        number_changes(means, list(builds)),
        device_times.compare(*samples[-2:]) if len(samples) > 1 else None,
    )
