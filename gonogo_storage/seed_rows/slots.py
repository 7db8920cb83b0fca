"""The slots of a job's outputs, by which an index finds the worst seeds of a verdict.

A slot holds a rank and an axis for each seed (SeedResultRow). The rank is the output's verdict and
which of its statistics is the axis of its test's plot. The outputs of existing tests have none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Column, select
from sqlalchemy.orm import Session

from gonogo_storage.db.columns import VERDICTS
from gonogo_storage.tables import JobRow, SeedResultRow
from gonogo_storage.tables.numbers import SLOTS

GATED, UNGATED, SILENT, EMPTY = range(4)
"""The classes of a rank: the axis is tolerance_ratio; it is budget_ratio; there is neither, as for
NaN; the seed has no outputs, as for a hang, which is in slot 0."""
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


def assign(job: JobRow, rows: Iterable[Mapping[str, Any]]) -> Mapping[str, int]:
    """Give new outputs a slot, as far as there are any; return {output: slot}.

    The caller holds the job's lock.
    """
    slots: list[str] = list(job.slots or ())
    for row in rows:
        outputs: Mapping[str, Mapping[str, Any]] = row.get("outputs") or {}
        if len(slots) < SLOTS and not outputs.keys() <= set(slots):
            new = (n for n in sorted(outputs) if n not in slots and "outcome" not in outputs[n])
            slots += [*new][: SLOTS - len(slots)]
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


def values(
    slots: Mapping[str, int], verdict: str, outputs: Mapping[str, Mapping[str, Any]]
) -> list[float | None]:
    """Return the values of the columns NAMES of a seed."""
    columns: list[float | None] = [None] * (2 * SLOTS)
    if not outputs:
        columns[0] = rank(verdict, EMPTY)
    for name, output in outputs.items():
        slot = slots.get(name)
        if slot is not None:
            class_, axis = GATED, output.get("tolerance_ratio")
            if axis is None or axis - axis != 0:  # NaN and Inf are stored as None
                class_, axis = UNGATED, output.get("budget_ratio")
            if axis is None or axis - axis != 0:
                class_, axis = SILENT, None
            columns[2 * slot] = rank(output["verdict"], class_)
            columns[2 * slot + 1] = axis
    return columns
