"""CTRF, the Common Test Report Format (https://ctrf.io): JSON of many frameworks' reporters."""

from __future__ import annotations

from typing import Any

from gonogo import fields
from gonogo.reports import documents, junit
from gonogo.reports.cases import MAX_CASES, Case, TestReport
from gonogo.reports.outcomes import Outcome
from gonogo.reports.texts import MAX_MESSAGE_CHARS, clean

STATUSES = {
    "passed": Outcome.passed,
    "failed": Outcome.failed,
    "skipped": Outcome.skipped,
    "pending": Outcome.skipped,
    "other": Outcome.error,
}
_MAX_TEXT = 500
_MAX_TAGS = 20


def parse(data: bytes) -> TestReport:
    """Return the report in a file. Raises FieldError."""
    report = fields.mapping(documents.load(data), "report")
    results = fields.mapping(report.get("results"), "results")
    tests = documents.listed(results.get("tests"), "results.tests", MAX_CASES, " of tests")
    tool, place = (
        section if isinstance(section := results.get(name), dict) else {}
        for name in ("tool", "environment")
    )
    name, version = documents.text(tool.get("name"), 200), documents.text(tool.get("version"), 100)
    sha = documents.text(place.get("commit"), 64)
    repository = documents.text(place.get("repositoryName"), 200)
    return TestReport(
        tuple(_case(test, f"results.tests.{number}") for number, test in enumerate(tests)),
        suite=documents.text(place.get("testEnvironment"), 200) or name,
        tool=" ".join(filter(None, (name, version))) or None,
        commit={"repository": repository, "sha": sha} if sha and repository else None,
    )


def _case(data: object, path: str) -> Case:
    given = fields.mapping(data, path)
    name = documents.name(given.get("name"), f"{path}.name")
    status = fields.choice(given.get("status"), tuple(STATUSES), f"{path}.status")
    outcome = STATUSES[status]
    message = documents.text(given.get("message"), MAX_MESSAGE_CHARS) or ""
    trace = documents.text(given.get("trace"), MAX_MESSAGE_CHARS) or ""
    if outcome is Outcome.passed and given.get("flaky") is True:
        outcome, message = Outcome.failed, clean(junit.PASSED_ON_RETRY + message, MAX_MESSAGE_CHARS)
    elif status == "other":
        raw = documents.text(given.get("rawStatus"), 200) or "unspecified"
        message = message or f"status other: {raw}"
    failed = outcome in (Outcome.failed, Outcome.error) and (message or trace)
    duration: Any = given.get("duration")
    known = isinstance(duration, int | float) and not isinstance(duration, bool)
    return Case(
        name=junit.full_name(_group(given.get("suite")), name),
        outcome=outcome,
        duration_ms=float(duration) if known and 0 <= duration < 1e12 else None,
        message=message,
        failures=(junit.failure("\n".join(filter(None, (message, trace)))),) if failed else (),
        more=_more(given),
    )


def _group(suite: object) -> str:
    """Return the suite of a test."""
    if isinstance(suite, list):
        return clean(" > ".join(str(part) for part in suite[:16] if isinstance(part, str)), 300)
    return documents.text(suite, 300) or ""


def _more(given: Any) -> dict[str, Any]:
    more: dict[str, Any] = {}
    if place := documents.text(given.get("filePath"), _MAX_TEXT):
        more["file"] = place
    for name, least in (("line", 0), ("retries", 1)):
        if isinstance(given.get(name), int) and least <= given[name] < 2**31:
            more[name] = given[name]
    tags = given.get("tags")
    texts = [tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else []
    if texts:
        more["tags"] = [clean(tag, 100) for tag in texts[:_MAX_TAGS]]
    return more
