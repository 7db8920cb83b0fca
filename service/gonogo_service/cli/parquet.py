"""Parquet: the columns of CSV, typed, written in constant memory with pyarrow."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import chain, islice
from typing import Any, BinaryIO

from gonogo.errors import FieldError
from gonogo.reports.table import OF_JOB, OF_OUTPUT, OF_SEED, OTHER, STATISTICS, records

ROW_GROUP = 10_000
"""Records per row group: about 40 MB while they are converted, and 1 MB in the file."""
INTEGERS = ("seed", "iteration", "repeat", "position")
DOUBLES = ("duration_ms", "kernel_s", *(name for name in STATISTICS if name != "digest"))
"""Integer statistics are doubles, because large ones are rounded anyway."""
COLUMNS = (*OF_JOB, *OF_SEED, *OF_OUTPUT, *STATISTICS, OTHER)


def check_installed() -> None:
    """Raise FieldError when pyarrow is not installed."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError as problem:
        raise FieldError(
            "--format",
            "parquet",
            'needs pyarrow: pip install "gonogo[parquet]"',
            limit="without it csv, ndjson, junit or ctrf",
        ) from problem


def write(file: BinaryIO, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows of results, each with its job's fields OF_JOB. All columns may be null."""
    import pyarrow
    import pyarrow.parquet

    schema = pyarrow.schema((name, _type(name)) for name in COLUMNS)
    table = chain.from_iterable(
        ({**{name: row[name] for name in OF_JOB}, **record} for record in records(row))
        for row in rows
    )
    with pyarrow.parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        while group := list(islice(table, ROW_GROUP)):
            columns = [
                pyarrow.array(
                    [_value(record.get(field.name), field.name) for record in group], field.type
                )
                for field in schema
            ]
            writer.write_batch(pyarrow.record_batch(columns, schema=schema))


def _type(name: str) -> str:
    return "int64" if name in INTEGERS else "float64" if name in DOUBLES else "string"


def _value(value: Any, name: str) -> Any:
    """Return a value with its column's type; None if it doesn't fit, such as a map of numbers."""
    if value is None:
        return None
    if name in INTEGERS or name in DOUBLES:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return int(value) if name in INTEGERS else float(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
