"""The formats of exports, by their names in addresses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from gonogo_service.results.exports import ctrf, junit, tables
from gonogo_service.results.exports.parts import Export


@dataclass(frozen=True)
class Form:
    """A format: its writer, media type and file suffix."""

    write: Callable[[Export], Iterable[str]]
    media_type: str
    suffix: str


FORMS: Mapping[str, Form] = {
    "csv": Form(tables.comma_separated, "text/csv; charset=utf-8", "csv"),
    "ndjson": Form(tables.ndjson, "application/x-ndjson", "ndjson"),
    "junit": Form(junit.write, "application/xml", "xml"),
    "ctrf": Form(ctrf.write, "application/json", "ctrf.json"),
}
