"""Changes between the builds of many tests' strips, read for all of them at once.

A strip marks what the charts of its test mark: the arithmetic of the builds, the firmware of
the devices, and other tolerances of the same workload.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo_service.jobs.model import AttemptRow
from gonogo_service.kit.database.each import among
from gonogo_service.kit.database.paging import batched
from gonogo_service.tests.annotations import (
    MAX_TESTS,
    Annotation,
    AxisPlace,
    model_steps,
    models,
    steps,
    tolerance_steps,
)
from gonogo_service.tests.model import TestSpecRow

_MAX_KEYS = 1000
"""Keys of one query."""


def read(
    session: Session, strips: Mapping[str, Sequence[AxisPlace]]
) -> dict[str, list[Annotation]]:
    """Return the changes on each test's strip; `strips` are the places of each, by the test's key.

    A place has one job.
    """
    places = [place for strip in strips.values() for place in strip]
    of_builds = models(session, {build for place in places for build in place.builds})
    firmware = _firmware(session, [job for place in places for job in place.jobs])
    tolerances = _tolerances(session, list(strips))
    return {
        key: [
            *model_steps(of_builds, strip),
            *steps("firmware", [_of(place.jobs, firmware) for place in strip]),
            *tolerance_steps(strip, tolerances.get(key, ())),
        ]
        for key, strip in strips.items()
    }


def _of(jobs: Sequence[str], firmware: Mapping[str, set[str]]) -> str | None:
    """Return the firmware of the devices of these jobs, where all have the same."""
    versions = {version for job in jobs for version in firmware.get(job, ())}
    return next(iter(versions)) if len(versions) == 1 else None


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


def _tolerances(
    session: Session, keys: Sequence[str]
) -> dict[str, list[tuple[Mapping[str, Any], datetime]]]:
    """Return the newest other tests of each test's workload, and when they came."""
    table = TestSpecRow
    of_test: dict[str, list[tuple[Mapping[str, Any], datetime]]] = {}
    for batch in batched(keys, _MAX_KEYS):
        workloads = select(table.workload_key).where(table.key.in_(batch))
        query = (
            select(table.workload_key, table.key, table.canonical, table.created_at)
            .where(table.workload_key.in_(workloads))
            .order_by(table.created_at.desc())
        )
        of_workload: dict[str, list[Any]] = {}
        for workload, *test in session.execute(query):
            of_workload.setdefault(workload, []).append(test)
        keys_here = set(batch)
        for tests in of_workload.values():
            for key in (key for key, *_ in tests if key in keys_here):
                others = [(canonical, at) for other, canonical, at in tests if other != key]
                of_test[key] = others[:MAX_TESTS]
    return of_test
