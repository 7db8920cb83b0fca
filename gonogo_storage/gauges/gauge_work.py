"""A gauge's work as chunks of its hidden job, and the message to the worker."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo.gauge.plan import work_of
from gonogo.spec.builds import EMULATOR
from gonogo_storage.db.ids import new_id
from gonogo_storage.db.states import ChunkState
from gonogo_storage.tables import BuildRow, ChunkRow, GaugeRow, JobRow

MAX_WORK = 2000
RUN_FACTOR = 2.0
"""Time of a run relative to the kernel's: drawing the seed and judging take about as long again."""


def add(
    session: Session,
    job: JobRow,
    parts: Sequence[Mapping[str, Any]],
    first: int,
    seeds: Sequence[int],
) -> None:
    """Store and count the chunks of parts (numbered from `first`) on seeds.

    The emulator's parts share chunks, seed by seed. Any other build has separate chunks, in the
    queue of its executor.
    """
    groups: dict[tuple[str, str], list[int]] = {}
    for number, part in enumerate(parts, first):
        separate = "" if part["executor"] == EMULATOR else part["build"]
        groups.setdefault((part["executor"], separate), []).append(number)
    run_s = float(job.request["run_s"])
    size = min(MAX_WORK, max(1, int(float(job.request["chunk_seconds"]) / run_s)))
    for (executor, _), numbers in groups.items():
        work = work_of(numbers, seeds)
        count = math.ceil(len(work) / size)
        edges = [len(work) * k // count for k in range(count + 1)]
        for low, high in pairwise(edges):
            session.add(
                ChunkRow(
                    id=new_id(),
                    job_id=job.id,
                    number=job.chunk_count,
                    state=ChunkState.waiting,
                    queue=f"{executor}.{job.arch}.{job.board}",
                    work=work[low:high],
                    estimate_s=run_s * (high - low),
                )
            )
            job.chunk_count += 1
            job.open_chunks += 1
            job.total += high - low
    session.flush()


def message_fields(
    session: Session, gauge_id: str, canonical: Mapping[str, Any], work: Sequence[Sequence[int]]
) -> dict[str, Any]:
    """Return the fields of a gauge in the message of an attempt at `work`.

    They are {"test", "build", "executor", "arithmetic", "outputs", "gauge"}.
    """
    gauge = session.get_one(GaugeRow, gauge_id)
    numbers = sorted({int(number) for _, number in work})
    head = gauge.parts[numbers[0]]
    where = head["where"]
    registered = session.scalars(
        select(BuildRow).where(
            BuildRow.name == head["build"], BuildRow.executor == head["executor"]
        )
    ).first()
    return {
        "test": dict(canonical)
        if where is None
        else {**canonical, "inputs": gauge.elsewhere[where]["inputs"]},
        "build": head["build"],
        "executor": head["executor"],
        "arithmetic": None if registered is None else registered.arithmetic,
        "outputs": None if registered is None else registered.outputs,
        "gauge": {"parts": [{"number": number, **gauge.parts[number]} for number in numbers]},
    }
