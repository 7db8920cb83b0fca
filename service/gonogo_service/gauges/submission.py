"""Checks of a gauge's body that need the domain, the settings or the database."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy.orm import Session

from gonogo.errors import FieldError
from gonogo.gauge import gates
from gonogo.gauge.plan import planned
from gonogo.settings import Settings
from gonogo.workloads import check_build
from gonogo_service.gauges import gauge_jobs
from gonogo_service.gauges.gauge_jobs import CHUNK_SECONDS, NewGauge
from gonogo_service.gauges.store import Gauge
from gonogo_service.jobs import submission as jobs
from gonogo_service.jobs.bodies import GaugeIn
from gonogo_service.jobs.targets import check_kind


def submit(session: Session, body: GaugeIn, settings: Settings, owner: str) -> Gauge:
    """Store a gauge with its chunks in the caller's transaction. Raises FieldError."""
    return gauge_jobs.create(session, order(session, body, settings, owner))


def order(session: Session, body: GaugeIn, settings: Settings, owner: str) -> NewGauge:
    """Return the gauge to create, whose builds are known. Raises FieldError."""
    checked = check(body, settings)
    check_kind(session, body.target, settings)
    for field, names in (("builds", body.builds), ("wrong_builds", body.wrong_builds)):
        for place, name in enumerate(names):
            where = f"{field}.{place}"
            build = jobs.build_of(session, name, body.target.executor, settings, where)
            check_build(build, body.test, where)
    return checked(owner)


def check(body: GaugeIn, settings: Settings) -> Callable[[str], NewGauge]:
    """Run the checks that need no database; return a function from the owner to the new gauge.

    Raises FieldError.
    """
    test = body.test
    jobs.check_size(test, settings, "test")
    executor = body.target.executor
    gates.named(body.gates)
    parts = planned(test, executor, body.builds, body.wrong_builds)
    start, count = body.seeds.start, body.seeds.count
    # before the range is expanded: a count of 10**15 must not use memory
    if count * len(parts) > settings.max_gauge_runs:
        limit = f"{settings.max_gauge_runs} runs (GONOGO_MAX_GAUGE_RUNS)"
        raise FieldError(
            "seeds.count", count, f"{count} seeds x {len(parts)} parts are too many", limit=limit
        )

    def with_owner(owner: str) -> NewGauge:
        return NewGauge(
            test_key=test.key,
            workload_key=test.workload_key,
            kernel=test.kernel,
            canonical=test.canonical(),
            elements=test.elements,
            branch=body.branch,
            arch=body.target.arch,
            board=body.target.board,
            parts=tuple(parts),
            seeds=tuple(range(start, start + count)),
            search=body.search,
            priority=body.priority,
            queue_deadline_s=body.queue_deadline_s,
            owner=owner,
            chunk_seconds=min(settings.chunk_seconds, CHUNK_SECONDS),
            request=body.model_dump(mode="json", exclude={"test"}),
        )

    return with_owner
