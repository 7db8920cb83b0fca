"""Results of gauges: stored as workers send them, read for the reports.

They are in their own table, so that no query about builds reads them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo.spec.verdicts import Explanation, Verdict
from gonogo_service.gauges.model import GaugeResultRow, GaugeRow
from gonogo_service.kit.database.dialect import insert_once
from gonogo_service.kit.database.encoding import storable

_STORED = ("able", "verdict", "explanation", "outputs", "edges", "sentence")


def add(session: Session, gauge_id: str, attempt_id: str, rows: Sequence[Mapping[str, Any]]) -> int:
    """Insert new rows and count them; return the gauge's number of rows.

    The rows are as in a results message; `repeat` is the number of the part. The caller holds the
    job's lock and knows that the rows are new.
    """
    gauge = session.get_one(GaugeRow, gauge_id, populate_existing=True)
    new = [
        {
            "gauge_id": gauge_id,
            "seed": int(row["seed"]),
            "part": int(row["repeat"]),
            "attempt_id": attempt_id,
            "device": row.get("device"),
            "duration_ms": row.get("duration_ms"),
            "row": _stored(row, gauge.parts[int(row["repeat"])].name),
        }
        for row in rows
    ]
    insert_once(session, GaugeResultRow, new)
    gauge.done += len(rows)
    return gauge.done


def _stored(row: Mapping[str, Any], part: str) -> dict[str, Any]:
    # A worker that is too old for gauges always runs the right kernel.
    if row.get("outputs") and row.get("part") != part:
        too_old = f"the worker didn't run {part}: it is older than the service; update the worker"
        row = {"verdict": "error", "message": too_old}
    values = {name: row.get(name) for name in _STORED}
    values["outputs"] = values["outputs"] or {}
    values["explanation"] = values["explanation"] or Explanation.not_judged.value
    if row.get("message") is not None:
        values["message"] = storable(str(row["message"]))
    return values


def on_test_inputs(session: Session, gauge: GaugeRow) -> list[dict[str, Any]]:
    """Return a gauge's rows on the test's own inputs, as `read` does."""
    return read(
        session, gauge, [number for number, part in enumerate(gauge.parts) if part.where is None]
    )


def read(
    session: Session, gauge: GaugeRow, parts: Sequence[int] | None = None
) -> list[dict[str, Any]]:
    """Return all rows so far (of the given parts), by seed and part.

    They have the form that gonogo.gauge.report needs, with "where" (null: the test's own inputs)
    and "device". Parts that were not run are left out.
    """
    table = GaugeResultRow
    columns = (table.seed, table.part, table.device, table.row)
    query = select(*columns).where(table.gauge_id == gauge.id).order_by(table.seed, table.part)
    if parts is not None:
        query = query.where(table.part.in_(parts))
    rows = []
    for seed, number, device, row in session.execute(query):
        part = gauge.parts[number]
        where = {"part": part.name, "kind": part.kind.value, "where": part.where}
        if row["verdict"] != Verdict.not_run:
            rows.append({**row, **where, "seed": seed, "device": device})
    return rows
