"""A gauge's work as chunks of its hidden job, and the message to the worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo.spec.builds import EMULATOR
from gonogo_service.builds.model import BuildRow
from gonogo_service.gauges.model import GaugePart, GaugeRow
from gonogo_service.jobs import work as job_work
from gonogo_service.jobs.model import JobRow
from gonogo_service.jobs.work import Work

RUN_FACTOR = 2.0
"""Time of a run relative to the kernel's: drawing the seed and judging take about as long again."""


def add(
    session: Session, job: JobRow, parts: Sequence[GaugePart], first: int, seeds: Sequence[int]
) -> None:
    """Store and count the work of parts (numbered from `first`) on seeds.

    The emulator's parts share chunks, seed by seed. Any other build has separate chunks, in the
    queue of its executor.
    """
    groups: dict[tuple[str, str], list[int]] = {}
    for number, part in enumerate(parts, first):
        separate = "" if part.executor == EMULATOR else part.build
        groups.setdefault((part.executor, separate), []).append(number)
    run_s = float(job.request["run_s"])
    for (executor, _), numbers in groups.items():
        work = Work(seeds, numbers)  # the parts of a seed together: its arrays are drawn once
        cut = job_work.equal(work, run_s, float(job.request["chunk_seconds"]))
        job_work.add(
            session, job, work, cut, queue=f"{executor}.{job.arch}.{job.board}", pair_s=run_s
        )


def message_fields(
    session: Session, gauge_id: str, canonical: Mapping[str, Any], work: Sequence[Sequence[int]]
) -> dict[str, Any]:
    """Return the fields of a gauge in the message of an attempt at `work`.

    They are {"test", "build", "executor", "arithmetic", "outputs", "gauge"}.
    """
    gauge = session.get_one(GaugeRow, gauge_id)
    numbers = sorted({int(number) for _, number in work})
    head = gauge.parts[numbers[0]]
    registered = session.scalars(
        select(BuildRow).where(BuildRow.name == head.build, BuildRow.executor == head.executor)
    ).first()
    test = dict(canonical)
    if head.where is not None:
        test["inputs"] = gauge.elsewhere[head.where].inputs
    return {
        "test": test,
        "build": head.build,
        "executor": head.executor,
        "arithmetic": None if registered is None else registered.arithmetic,
        "outputs": None if registered is None else registered.outputs,
        "gauge": {
            "parts": [{"number": number, **asdict(gauge.parts[number])} for number in numbers]
        },
    }
