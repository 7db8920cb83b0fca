"""The columns of results as a table: one record per output of a seed, or per test of a selection.

The server writes them as CSV, and the command as Parquet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gonogo.spec import statistics

OF_JOB = ("job", "build", "test_key")
"""The first columns of a file with several jobs."""
OF_SEED = (
    "seed", "iteration", "repeat", "verdict", "explanation", "device", "host_run", "position",
    "duration_ms", "arithmetic", "judge", "message",
)  # fmt: skip
OF_OUTPUT = (
    "output", "output_verdict", "output_explanation", "outcome", "output_arithmetic",
    "detection_limits",
)  # fmt: skip
STATISTICS = tuple(row.name for row in statistics.STATISTICS.values() if row.column)
"""Columns of the numbers; an output's other values are JSON in the last column."""
OTHER = "other"
"""The last column: an output's other values, a mapping."""
_FORMULAS = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet takes a text that begins with one of these for a formula."""
_IN_COLUMNS = frozenset(
    {"verdict", "explanation", "outcome", "arithmetic", "detection_limits", *STATISTICS}
)


def as_text(value: str) -> str:
    """Return a CSV cell that a spreadsheet reads as text, also where it looks like a formula."""
    return f"'{value}" if value.startswith(_FORMULAS) else value


def records(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the records {column: value} of a seed's result, as the API gives it.

    A seed without numbers (hang, crash, error) has one record, with an empty output. Missing values
    are None, or are left out.
    """
    head = {name: row[name] for name in OF_SEED}
    for name, judged in row["outputs"].items():
        rest = {
            key: value
            for key, value in judged.items()
            if key not in _IN_COLUMNS and value is not None
        }
        output_fields = {
            "output": name,
            "output_verdict": judged["verdict"],
            "output_explanation": judged["explanation"],
            "outcome": judged.get("outcome"),
            "output_arithmetic": judged.get("arithmetic"),
            "detection_limits": "; ".join(judged.get("detection_limits") or ()) or None,
        }
        numbers = {key: judged.get(key) for key in STATISTICS}
        yield {**head, **output_fields, **numbers, OTHER: rest or None}
    if not row["outputs"]:
        yield {
            **head,
            "output": "",
            "output_verdict": row["verdict"],
            "output_explanation": row["explanation"],
        }
