"""Changes around a test that can explain a step in its numbers. Reads only, by index.

They are the arithmetic model of its builds, the firmware of its devices, and other tolerances of
the same workload.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo_storage.tables import AttemptRow, BuildRow, TestSpecRow

MAX_TESTS = 20
"""Other tests of a workload that are read, the newest first."""
MAX_ATTEMPTS = 400


@dataclass(frozen=True)
class BuildPlace:
    """A build on a time axis: its jobs, and when the first of them was submitted."""

    build: str
    jobs: tuple[str, ...]
    at: datetime


@dataclass(frozen=True)
class Annotation:
    """A change from the build before `place` to the one at it; `before` is None for a new one."""

    place: int
    kind: str
    """ "arithmetic", "firmware" or "tolerance"."""
    before: str | None
    after: Any


def read(
    session: Session, builds: Sequence[BuildPlace], workload_key: str, test_key: str
) -> list[Annotation]:
    """Return the changes between these builds, which are in order."""
    models = _models(session, builds)
    firmware = _firmware(session, builds)
    return [
        *_steps("arithmetic", [models.get(build.build) for build in builds]),
        *_steps("firmware", [firmware.get(build.build) for build in builds]),
        *_tolerances(session, builds, workload_key, test_key),
    ]


def _steps(kind: str, values: Sequence[str | None]) -> list[Annotation]:
    """Return where a value differs from the last known one."""
    steps, last = [], None
    for place, value in enumerate(values):
        if value is None:
            continue
        if last is not None and value != last:
            steps.append(Annotation(place, kind, last, value))
        last = value
    return steps


def _models(session: Session, builds: Sequence[BuildPlace]) -> Mapping[str, str | None]:
    names = [build.build for build in builds]
    query = select(BuildRow.name, BuildRow.arithmetic).where(BuildRow.name.in_(names))
    return dict(session.execute(query).all())


def _firmware(session: Session, builds: Sequence[BuildPlace]) -> Mapping[str, str]:
    """Return the firmware of the devices of each build, where all of them have the same."""
    of_job = {job: build.build for build in builds for job in build.jobs}
    query = select(AttemptRow.job_id, AttemptRow.telemetry["firmware"].as_string()).where(
        AttemptRow.job_id.in_(list(of_job)), AttemptRow.telemetry.is_not(None)
    )
    versions: dict[str, set[str]] = {}
    for job, version in session.execute(query.limit(MAX_ATTEMPTS)):
        if version:
            versions.setdefault(of_job[job], set()).add(version)
    return {
        build: next(iter(of_build)) for build, of_build in versions.items() if len(of_build) == 1
    }


def _tolerances(
    session: Session, builds: Sequence[BuildPlace], workload_key: str, test_key: str
) -> list[Annotation]:
    query = (
        select(TestSpecRow.canonical, TestSpecRow.created_at)
        .where(TestSpecRow.workload_key == workload_key, TestSpecRow.key != test_key)
        .order_by(TestSpecRow.created_at.desc())
        .limit(MAX_TESTS)
    )
    changes = []
    for canonical, created_at in session.execute(query):
        place = next((place for place, build in enumerate(builds) if build.at >= created_at), None)
        if place:  # before the first build nothing can have changed
            changes.append(Annotation(place, "tolerance", None, canonical.get("tolerance", {})))
    return changes
