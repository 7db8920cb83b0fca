"""Tables: CSV and Parquet have one record per output of a seed, or per test of a selection.

NDJSON has one record per seed.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from typing import Any

from gonogo_service.exports.parts import Export, Part, Row
from gonogo_storage.db.encoding import encode

OF_JOB = ("job", "build", "test_key")
"""The first columns of a file with several jobs."""
OF_SEED = (
    "seed", "iteration", "repeat", "verdict", "explanation", "device", "host_run", "position",
    "duration_ms", "arithmetic", "policy", "message",
)  # fmt: skip
OF_OUTPUT = (
    "output", "output_verdict", "output_explanation", "outcome", "output_arithmetic",
    "detection_limits",
)  # fmt: skip
STATISTICS = (
    "tolerance_ratio", "budget_ratio", "chi", "max_abs", "mean_abs", "rms", "rel_frobenius",
    "pcc_deficit", "ulp_max", "ulp_p99", "mismatch_fraction", "tolerance_ratio_quantised",
    "over_budget_fraction", "row_z", "xhat_z", "scale_z", "col_z", "outliers", "rows_left_out",
    "count", "digest",
)  # fmt: skip
"""Columns of the numbers; an output's other values are JSON in the last column."""
OTHER = "other"
_IN_COLUMNS = frozenset(
    {"verdict", "explanation", "outcome", "arithmetic", "detection_limits", *STATISTICS}
)
_AT_ONCE = 50


def ndjson(export: Export) -> Iterator[str]:
    """Yield one line per seed or iteration, as in the API; in a run's export with its job."""
    for part in export.parts:
        job_fields = _of_job(part) if export.noun == "run" else {}
        yield from (encode({**job_fields, **row}) + "\n" for row in part.rows)


def comma_separated(export: Export) -> Iterator[str]:
    """Yield the header and one line per record; in a run's export with its job."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    columns = (*(OF_JOB if export.noun == "run" else ()), *OF_SEED, *OF_OUTPUT, *STATISTICS, OTHER)
    writer.writerow(columns)
    for part in export.parts:
        for number, row in enumerate(part.rows, 1):
            writer.writerows(
                [_cell(record.get(name)) for name in columns] for record in records(part, (row,))
            )
            if number % _AT_ONCE == 0:
                yield _drain(buffer)
    yield _drain(buffer)


def records(part: Part, rows: Iterable[Row]) -> Iterator[dict[str, Any]]:
    """Yield records {column: value}.

    A seed without numbers (hang, crash, error) has one record, with an empty output.
    """
    job_fields = _of_job(part)
    for row in rows:
        head = {**job_fields, **{name: row[name] for name in OF_SEED}}
        for name, judged in row["outputs"].items():
            rest = {
                key: value
                for key, value in judged.items()
                if key not in _IN_COLUMNS and value is not None
            }
            output_fields = dict(
                zip(
                    OF_OUTPUT,
                    (
                        name,
                        judged["verdict"],
                        judged["explanation"],
                        judged.get("outcome"),
                        judged.get("arithmetic"),
                        "; ".join(judged.get("detection_limits") or ()) or None,
                    ),
                    strict=True,
                )
            )
            numbers = {key: judged.get(key) for key in STATISTICS}
            yield {**head, **output_fields, **numbers, OTHER: encode(rest) if rest else None}
        if not row["outputs"]:
            yield {
                **head,
                "output": "",
                "output_verdict": row["verdict"],
                "output_explanation": row["explanation"],
            }


def _of_job(part: Part) -> dict[str, str]:
    return {"job": part.job.id, "build": part.job.build, "test_key": part.job.test_key}


def _drain(buffer: io.StringIO) -> str:
    text = buffer.getvalue()
    buffer.seek(0)
    buffer.truncate()
    return text


def _cell(value: Any) -> Any:
    """Return a cell's value; quote text that a spreadsheet would read as a formula."""
    return (
        "'" + value
        if isinstance(value, str) and value[:1] in {"=", "+", "-", "@", "\t", "\r"}
        else value
    )
