"""Tables: CSV has a line per output of a seed, or per test of a selection; NDJSON one per seed."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any

from gonogo.reports.table import OF_JOB, OF_OUTPUT, OF_SEED, OTHER, STATISTICS, as_text, records
from gonogo_service.kit.database.encoding import encode
from gonogo_service.results.exports.parts import Export, Part

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
    columns = (*OF_SEED, *OF_OUTPUT, *STATISTICS, OTHER)
    writer.writerow((*OF_JOB, *columns) if export.noun == "run" else columns)
    for part in export.parts:
        head = [_cell(value) for value in _of_job(part).values()] if export.noun == "run" else []
        for number, row in enumerate(part.rows, 1):
            writer.writerows(
                [*head, *(_cell(record.get(name)) for name in columns)] for record in records(row)
            )
            if number % _AT_ONCE == 0:
                yield _drain(buffer)
    yield _drain(buffer)


def _of_job(part: Part) -> dict[str, str]:
    return {"job": part.job.id, "build": part.job.build, "test_key": part.job.test_key}


def _drain(buffer: io.StringIO) -> str:
    text = buffer.getvalue()
    buffer.seek(0)
    buffer.truncate()
    return text


def _cell(value: Any) -> Any:
    if isinstance(value, dict):
        return encode(value)
    return as_text(value) if isinstance(value, str) else value
