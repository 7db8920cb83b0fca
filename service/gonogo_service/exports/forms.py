"""The formats of exports, by their names in addresses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from gonogo_service.exports import ctrf, junit, parquet, tables
from gonogo_service.exports.parts import Export


@dataclass(frozen=True)
class Form:
    """A format: its writer, media type and file suffix."""

    write: Callable[[Export], Iterable[str] | Iterable[bytes]]
    media_type: str
    suffix: str


FORMS: Mapping[str, Form] = {
    "csv": Form(tables.comma_separated, "text/csv; charset=utf-8", "csv"),
    "ndjson": Form(tables.ndjson, "application/x-ndjson", "ndjson"),
    "parquet": Form(parquet.write, "application/vnd.apache.parquet", "parquet"),
    "junit": Form(junit.write, "application/xml", "xml"),
    "ctrf": Form(ctrf.write, "application/json", "ctrf.json"),
}
