"""The rows of a gauge: stored once each as they come from a worker, read for its report. No query
about builds ever meets them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo.spec.verdicts import Explanation, Verdict
from gonogo_storage.db.dialect import insert_once
from gonogo_storage.db.encoding import storable
from gonogo_storage.tables import GaugeResultRow, GaugeRow

_KEPT = ("able", "verdict", "explanation", "outputs", "edges", "sentence")


def add(
    session: Session,
    gauge_id: str,
    attempt_id: str,
    rows: Sequence[Mapping[str, Any]],
    *,
    now: datetime,
) -> int:
    """Insert rows as in a results message, whose `repeat` is the number of the part, and count
    them; how many there are now.

    The caller, holding the job's lock, knows them to be new.
    """
    gauge = session.get_one(GaugeRow, gauge_id, populate_existing=True)
    names = [part["name"] for part in gauge.parts]
    insert_once(
        session,
        GaugeResultRow,
        [
            {
                "gauge_id": gauge_id,
                "seed": int(row["seed"]),
                "part": int(row["repeat"]),
                "attempt_id": attempt_id,
                "device": row.get("device"),
                "duration_ms": row.get("duration_ms"),
                "row": _stored(row, names[int(row["repeat"])]),
                "stored_at": now,
            }
            for row in rows
        ],
    )
    gauge.done += len(rows)
    return gauge.done


def _stored(row: Mapping[str, Any], part: str) -> dict[str, Any]:
    if (
        row.get("outputs") and row.get("part") != part
    ):  # a worker that knows no gauges has run the right kernel in the place of any
        row = {
            "verdict": "error",
            "message": f"the worker ran something else than {part}: it is older than the service",
        }
    found = {name: row.get(name) for name in _KEPT}
    found["outputs"] = found["outputs"] or {}
    found["explanation"] = found["explanation"] or Explanation.not_judged.value
    return (
        found if row.get("message") is None else {**found, "message": storable(str(row["message"]))}
    )


def own(session: Session, gauge_id: str) -> list[dict[str, Any]]:
    """The rows on the test's own inputs, as `read` gives them: at most GONOGO_MAX_GAUGE_RUNS. None
    of a gauge that doesn't exist.
    """
    gauge = session.get(GaugeRow, gauge_id)
    if gauge is None:
        return []
    return read(
        session,
        gauge,
        parts=[number for number, part in enumerate(gauge.parts) if part["where"] is None],
    )


def read(
    session: Session, gauge: GaugeRow, *, parts: Sequence[int] | None = None
) -> list[dict[str, Any]]:
    """Every row so far (of some parts) as gonogo.gauge.report takes it, by seed and part, with
    "where" (null: the test's own inputs) and "device".

    Parts that the test doesn't have are left out.
    """
    table = GaugeResultRow
    columns = (table.seed, table.part, table.device, table.row)
    query = select(*columns).where(table.gauge_id == gauge.id).order_by(table.seed, table.part)
    if parts is not None:
        query = query.where(table.part.in_(parts))
    return [
        {
            **row,
            "part": part["name"],
            "kind": part["kind"],
            "where": part["where"],
            "seed": seed,
            "device": device,
        }
        for seed, number, device, row in session.execute(query)
        for part in (gauge.parts[number],)
        if row["verdict"] != Verdict.not_run
    ]
