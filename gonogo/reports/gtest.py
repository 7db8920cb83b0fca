"""Reports of googletest, in XML or JSON.

`--gtest_output=xml:FILE` writes JUnit XML with additions, `--gtest_output=json:FILE` writes JSON.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gonogo import fields
from gonogo.errors import FieldError
from gonogo.reports import documents, junit, xml
from gonogo.reports.cases import MAX_CASES, MAX_FAILURES, Case, TestReport
from gonogo.reports.outcomes import Outcome
from gonogo.reports.texts import MAX_MESSAGE_CHARS, clean

_KNOWN_KEYS = frozenset(
    {
        *("name", "classname", "file", "line", "status", "result", "time", "timestamp"),
        *("value_param", "type_param", "failures", "skipped"),
    }
)
"""Keys that googletest writes; the test recorded all others (RecordProperty)."""
_PLACE = re.compile(r"^(?P<file>[^\n]{1,400}?):(?P<line>\d{1,9})$")
_DEFAULT_NAME = "AllTests"


def parse_xml(data: bytes) -> TestReport:
    """Return the report in XML. Raises FieldError."""
    reader = junit.Reader(_KNOWN_KEYS)
    xml.read(data, reader.start, reader.end)
    return _with_places(reader.report())


def parse_json(data: bytes) -> TestReport:
    """Return the report in JSON. Raises FieldError."""
    document = fields.mapping(documents.load(data), "report")
    suites = document.get("testsuites")
    if not isinstance(suites, list):
        limit = "a report of --gtest_output=json"
        raise FieldError("testsuites", suites, "must be a list of suites", limit=limit)
    cases: list[Case] = []
    for number, suite in enumerate(suites):
        path = f"testsuites.{number}"
        tests = fields.mapping(suite, path).get("testsuite", [])
        tests = documents.listed(tests, f"{path}.testsuite", MAX_CASES, " of tests")
        count = len(cases) + len(tests)
        fields.check_count(count, MAX_CASES, f"{path}.testsuite", "too many tests", "in a file")
        name = str(suite.get("name", ""))
        cases += [_case(test, name, f"{path}.testsuite.{n}") for n, test in enumerate(tests)]
    title, started = (
        documents.text(document.get(key), most) for key, most in (("name", 200), ("timestamp", 64))
    )
    return _with_places(TestReport(tuple(cases), title, started_at=started))


def _case(data: object, suite: str, path: str) -> Case:
    given = fields.mapping(data, path)
    name = documents.name(given.get("name"), f"{path}.name")
    failures, skipped = (
        [
            documents.text(item.get(key), MAX_MESSAGE_CHARS) or ""
            for item in documents.objects(given.get(name))
        ]
        for name, key in (("failures", "failure"), ("skipped", "message"))
    )
    ran = str(given.get("status", "RUN")).upper() == "RUN"
    ran = ran and str(given.get("result", "COMPLETED")).upper() == "COMPLETED"
    outcome = Outcome.passed if ran and not skipped else Outcome.skipped
    more = {key: documents.text(given[key], 500) for key in junit.PLACES if given.get(key)}
    line = given.get("line")
    place = {"line": line} if isinstance(line, int) and 0 <= line < 2**31 else {}
    others = {key: value for key, value in given.items() if key not in _KNOWN_KEYS}
    return Case(
        name=junit.full_name(str(given.get("classname") or suite), name),
        outcome=Outcome.failed if failures else outcome,
        duration_ms=junit.milliseconds(str(given.get("time", "")).removesuffix("s")),
        message=(failures or skipped or [""])[0],
        failures=tuple(junit.failure(text) for text in failures[:MAX_FAILURES]),
        measurements=junit.numbers_of(others),
        more=more | place,
    )


def _with_places(report: TestReport) -> TestReport:
    """Return the report with the places of failures, which googletest writes in their first line.

    Its default name for the whole suite is dropped.
    """
    cases = tuple(
        replace(case, failures=tuple(map(_placed, case.failures))) for case in report.cases
    )
    return replace(
        report,
        cases=cases,
        suite=None if report.suite == _DEFAULT_NAME else report.suite,
        tool="googletest",
    )


def _placed(failure: Mapping[str, Any]) -> Mapping[str, Any]:
    first, _, rest = str(failure["message"]).partition("\n")
    place = _PLACE.match(first.strip())
    if place is None:
        return failure
    lines = [line.strip() for line in rest.splitlines() if line.strip() not in ("", "Failure")]
    words = (lines or [first])[0].removeprefix("Value of: ").removeprefix("Failure").strip()
    return {
        **failure,
        "expression": clean(words or first, 500),
        "file": place["file"],
        "line": int(place["line"]),
    }
