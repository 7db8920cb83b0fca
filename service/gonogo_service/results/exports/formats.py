"""The formats of exports, each a function from an Export to pieces of text."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple
from xml.sax.saxutils import escape, quoteattr

from gonogo.reports.table import OF_JOB, OF_OUTPUT, OF_SEED, OTHER, STATISTICS, as_text, records
from gonogo.reports.texts import for_xml
from gonogo_service.kit.database.encoding import encode, timestamp
from gonogo_service.results.exports import ctrf
from gonogo_service.results.exports.cases import Case, Status, cases, status_of, title
from gonogo_service.results.exports.parts import Export, Part

_TAGS = {Status.failed: "failure", Status.other: "error", Status.skipped: "skipped"}
_COUNTS = {"failures": Status.failed, "errors": Status.other, "skipped": Status.skipped}


def ndjson(export: Export) -> Iterator[str]:
    """Yield one line per seed or iteration, as in the API; in a run's export with its job."""
    for part in export.parts:
        head = _of_job(export, part)
        yield from (encode({**head, **row}) + "\n" for row in part.rows)


def comma_separated(export: Export) -> Iterator[str]:
    """Yield the header, and a line per output of a seed or test; in a run's export with its job."""
    columns = (*OF_SEED, *OF_OUTPUT, *STATISTICS, OTHER)
    yield _line((*OF_JOB, *columns) if export.noun == "run" else columns)
    for part in export.parts:
        head = [_cell(value) for value in _of_job(export, part).values()]
        for row in part.rows:
            for record in records(row):
                yield _line([*head, *(_cell(record.get(name)) for name in columns)])


def _of_job(export: Export, part: Part) -> dict[str, str]:
    job = part.job
    is_run = export.noun == "run"
    return {"job": job.id, "build": job.build, "test_key": job.test_key} if is_run else {}


def _line(cells: Iterable[Any]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerow(cells)
    return buffer.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, dict):
        return encode(value)
    return as_text(value) if isinstance(value, str) else value


def junit(export: Export) -> Iterator[str]:
    """Yield a suite per job, and a test case per seed or per test of an iteration."""
    name = _quoted(f"gonogo {export.noun} {export.id}")
    yield f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name={name}>\n'
    for part in export.parts:
        yield _suite(part)
        yield from map(_testcase, cases(part))
        yield "</testsuite>\n"
    yield "</testsuites>\n"


def _suite(part: Part) -> str:
    """Return the head of a suite, with its counts if the job is over."""
    job = part.job
    attributes: dict[str, Any] = {"name": title(part), "id": job.id}
    if job.state.final:
        counts: Counter[Status] = Counter()
        for (verdict, outcome), count in part.census.items():
            counts[status_of(verdict, outcome)] += count
        attributes |= {"tests": counts.total()} | {n: counts[s] for n, s in _COUNTS.items()}
        if job.started_at and job.finished_at:
            attributes["time"] = f"{(job.finished_at - job.started_at).total_seconds():.3f}"
    attributes["timestamp"] = timestamp(job.started_at or job.created_at)
    facts = {"job": job.id, "build": job.build, "verdict": job.verdict, "test_key": job.test_key}
    facts["executor"] = job.target.executor
    return f"<testsuite {_attributes(attributes)}>\n{_properties(facts)}\n"


def _testcase(case: Case) -> str:
    time = None if case.duration_ms is None else f"{case.duration_ms / 1000:.6f}"
    place = {"file": case.file, "line": case.line, "time": time}
    attributes = _attributes({"name": case.name, "classname": case.group, **place})
    result = ""
    if tag := _TAGS.get(case.status):
        head = f"{tag} type={_quoted(case.verdict)} message={_quoted(case.message)}"
        result = f"<{head}>{_clean(case.text)}</{tag}>"
    elif text := "\n".join(filter(None, (case.message, case.text))):
        result = f"<system-out>{_clean(text)}</system-out>"
    return f"<testcase {attributes}>{_properties(case.facts)}{result}</testcase>\n"


def _properties(facts: Mapping[str, Any]) -> str:
    properties = (
        f"<property {_attributes({'name': name, 'value': value})}/>"
        for name, value in facts.items()
        if value is not None
    )
    return f"<properties>{''.join(properties)}</properties>"


def _attributes(attributes: Mapping[str, Any]) -> str:
    known = ((name, value) for name, value in attributes.items() if value is not None)
    return " ".join(f"{name}={_quoted(str(value))}" for name, value in known)


def _quoted(text: str) -> str:
    escapes = {"\n": "&#10;", "\r": "&#13;", "\t": "&#9;"}
    return quoteattr(for_xml(text), escapes)


def _clean(text: str) -> str:
    return escape(for_xml(text))


class Format(NamedTuple):
    """A format: its writer, media type and file suffix."""

    write: Callable[[Export], Iterable[str]]
    media_type: str
    suffix: str


FORMATS: Mapping[str, Format] = {
    "csv": Format(comma_separated, "text/csv; charset=utf-8", "csv"),
    "ndjson": Format(ndjson, "application/x-ndjson", "ndjson"),
    "junit": Format(junit, "application/xml", "xml"),
    "ctrf": Format(ctrf.write, "application/json", "ctrf.json"),
}
