"""The slots of a job's outputs, by which an index finds the worst seeds of a verdict.

A slot holds a rank and an axis for each seed (SeedResultRow). The rank is the output's verdict and
which of its statistics is the axis of its test's plot. The outputs of existing tests have none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import Column, select
from sqlalchemy.orm import Session

from gonogo.spec.selections import KERNEL
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.columns import VERDICTS
from gonogo_service.results.rows import SLOTS, SeedResultRow
from gonogo_service.results.seed_rows.batch import Batch

if TYPE_CHECKING:
    from gonogo.judging.columns import OutputColumns

GATED, UNGATED, SILENT, EMPTY = range(4)
"""The classes of a rank: the axis is tolerance_ratio; it is rounding_ratio; there is neither, as
for NaN; the seed has no outputs, as for a hang, which is in slot 0."""
_CLASSES = 4
_CODES = {verdict: _CLASSES * code for code, verdict in enumerate(VERDICTS)}
NAMES = tuple(f"{kind}_{slot}" for slot in range(SLOTS) for kind in ("rank", "axis"))


def rank(verdict: str, class_: int) -> int:
    """Return the rank of an output. Raises KeyError for an unknown verdict."""
    return _CODES[verdict] + class_


def rank_column(slot: int) -> Column[Any]:
    """Return the column of a slot's rank."""
    return SeedResultRow.__table__.c[f"rank_{slot}"]  # type: ignore[return-value]


def axis_column(slot: int) -> Column[Any]:
    """Return the column of a slot's axis."""
    return SeedResultRow.__table__.c[f"axis_{slot}"]  # type: ignore[return-value]


def assign(job: JobRow, batch: Batch) -> Mapping[str, int]:
    """Give new outputs a slot, as far as there are any; return {output: slot}.

    The caller holds the job's lock.
    """
    slots: list[str] = list(job.slots or ())
    names = dict.fromkeys(output.name for part in batch.judged for output in part.outputs)
    slots += [name for name in names if name not in slots][: SLOTS - len(slots)]
    if slots != job.slots:
        job.slots = slots
    return {output: slot for slot, output in enumerate(slots)}


def of_jobs(session: Session, job_ids: Sequence[str]) -> dict[str, Mapping[str, int]]:
    """Return {job: {output: slot}}."""
    query = select(JobRow.id, JobRow.slots).where(JobRow.id.in_(job_ids))
    return {
        job_id: {output: slot for slot, output in enumerate(slots or ())}
        for job_id, slots in session.execute(query)
    }


def with_numbers(session: Session, job_ids: Collection[str]) -> set[str]:
    """Return the jobs that may have outputs with numbers.

    A selection's tests have none unless they hand over arrays, and reading 20,000 of them takes a
    while.
    """
    query = select(JobRow.id, JobRow.kernel, JobRow.slots).where(JobRow.id.in_(job_ids))
    return {job_id for job_id, kernel, slots in session.execute(query) if kernel != KERNEL or slots}


def values(slots: Mapping[str, int], batch: Batch) -> list[list[float | None]]:
    """Return the columns NAMES of a batch's seeds."""
    columns: list[list[float | None]] = [[None] * len(batch) for _ in NAMES]
    with_outputs = batch.with_outputs()
    for place, row in enumerate(batch.rows):
        if place not in with_outputs:
            columns[0][place] = rank(row["verdict"], EMPTY)
    for part in batch.judged:
        for output in part.outputs:
            if output.name in slots:
                slot = slots[output.name]
                _fill(part.rows, output, columns[2 * slot], columns[2 * slot + 1])
    return columns


def _fill(
    places: Sequence[int],
    output: OutputColumns,
    ranks: list[float | None],
    axes: list[float | None],
) -> None:
    """Write the ranks and the axes of an output's seeds to their places in the batch."""
    statistics = map(output.values, ("verdict", "tolerance_ratio", "rounding_ratio"))
    for place, verdict, gated, ungated in zip(places, *statistics, strict=True):
        class_, axis = GATED, gated
        if axis is None or axis - axis != 0:  # NaN and Inf are stored as None
            class_, axis = UNGATED, ungated
        if axis is None or axis - axis != 0:
            class_, axis = SILENT, None
        ranks[place] = _CODES[verdict] + class_
        axes[place] = axis
