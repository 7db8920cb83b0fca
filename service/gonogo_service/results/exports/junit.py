"""JUnit XML: a suite per job, and a test case per seed or per test of an iteration.

Each test case has its verdict as a property.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from gonogo_service.kit.database.encoding import timestamp
from gonogo_service.results.exports.parts import Export, Part
from gonogo_service.results.exports.test_case import Case, Status, cases, status_of, title

_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 doesn't allow, not even as references."""
_TAGS = {Status.failed: "failure", Status.other: "error", Status.skipped: "skipped"}


def write(export: Export) -> Iterator[str]:
    """Yield the file, test case by test case."""
    yield f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name={_quoted(export.title)}>\n'
    for part in export.parts:
        yield _head(part)
        for case in cases(part):
            yield _case(case)
        yield "</testsuite>\n"
    yield "</testsuites>\n"


def _head(part: Part) -> str:
    """Return the head of a suite, with its counts if the job is over."""
    job = part.job
    attributes = {"name": title(part), "id": job.id}
    if job.state.final:
        counts: Counter[Status] = Counter()
        for (verdict, outcome), count in part.census.items():
            counts[status_of(verdict, outcome)] += count
        attributes |= {
            "tests": str(counts.total()),
            "failures": str(counts[Status.failed]),
            "errors": str(counts[Status.other]),
            "skipped": str(counts[Status.skipped]),
        }
        if job.started_at and job.finished_at:
            attributes["time"] = f"{(job.finished_at - job.started_at).total_seconds():.3f}"
    attributes["timestamp"] = str(timestamp(job.started_at or job.created_at))
    facts = {
        "job": job.id,
        "build": job.build,
        "verdict": job.verdict,
        "test_key": job.test_key,
        "executor": job.target.executor,
    }
    return f"<testsuite {_attributes(attributes)}>\n{_properties(facts)}\n"


def _case(case: Case) -> str:
    attributes = {"name": case.name, "classname": case.group}
    if case.file is not None:
        attributes["file"] = case.file
    if case.line is not None:
        attributes["line"] = str(case.line)
    if case.duration_ms is not None:
        attributes["time"] = f"{case.duration_ms / 1000:.6f}"
    result = ""
    if tag := _TAGS.get(case.status):
        result = (
            f"<{tag} type={_quoted(case.verdict)} message={_quoted(case.message)}>"
            f"{_clean(case.text)}</{tag}>"
        )
    elif case.message or case.text:
        text = "\n".join(filter(None, (case.message, case.text)))
        result = f"<system-out>{_clean(text)}</system-out>"
    return f"<testcase {_attributes(attributes)}>{_properties(case.facts)}{result}</testcase>\n"


def _properties(facts: Mapping[str, Any]) -> str:
    properties = (
        f"<property name={_quoted(name)} value={_quoted(str(value))}/>"
        for name, value in facts.items()
        if value is not None
    )
    return f"<properties>{''.join(properties)}</properties>"


def _attributes(attributes: dict[str, str]) -> str:
    return " ".join(f"{name}={_quoted(value)}" for name, value in attributes.items())


def _quoted(text: str) -> str:
    return quoteattr(
        _NO_XML.sub("\N{REPLACEMENT CHARACTER}", text), {"\n": "&#10;", "\r": "&#13;", "\t": "&#9;"}
    )


def _clean(text: str) -> str:
    return escape(_NO_XML.sub("\N{REPLACEMENT CHARACTER}", text))
