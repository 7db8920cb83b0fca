"""Reports of googletest, in XML or JSON.

`--gtest_output=xml:FILE` writes JUnit XML with additions, `--gtest_output=json:FILE` writes JSON.
"""

from __future__ import annotations

import math
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
        "name",
        "classname",
        "file",
        "line",
        "status",
        "result",
        "time",
        "timestamp",
        "value_param",
        "type_param",
        "failures",
        "skipped",
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
    if not isinstance(document.get("testsuites"), list):
        raise FieldError(
            "testsuites",
            document.get("testsuites"),
            "must be a list of suites",
            limit="a report of --gtest_output=json",
        )
    cases: list[Case] = []
    for number, suite in enumerate(document["testsuites"]):
        path = f"testsuites.{number}"
        tests = fields.mapping(suite, path).get("testsuite", [])
        tests = documents.listed(tests, f"{path}.testsuite", MAX_CASES, " of tests")
        count = len(cases) + len(tests)
        fields.check_count(count, MAX_CASES, f"{path}.testsuite", "too many tests", "in a file")
        cases += [
            _case(test, str(suite.get("name", "")), f"{path}.testsuite.{n}")
            for n, test in enumerate(tests)
        ]
    started = document.get("timestamp")
    return _with_places(
        TestReport(
            tuple(cases),
            documents.text(document.get("name"), 200),
            started_at=documents.text(started, 64),
        )
    )


def _case(data: object, suite: str, path: str) -> Case:
    given = fields.mapping(data, path)
    name = documents.name(given.get("name"), f"{path}.name")
    failures = [
        documents.text(item.get("failure"), MAX_MESSAGE_CHARS) or ""
        for item in documents.objects(given.get("failures"))
    ]
    skipped = [
        documents.text(item.get("message"), MAX_MESSAGE_CHARS) or ""
        for item in documents.objects(given.get("skipped"))
    ]
    ran = (
        str(given.get("status", "RUN")).upper() == "RUN"
        and str(given.get("result", "COMPLETED")).upper() == "COMPLETED"
    )
    time = str(given.get("time", "")).removesuffix("s")
    others = {key: value for key, value in given.items() if key not in _KNOWN_KEYS}
    numbers = {
        clean(key, 100): number
        for key, value in others.items()
        if (number := _number(value)) is not None
    }
    more = {
        key: documents.text(given[key], 500)
        for key in ("file", "value_param", "type_param")
        if given.get(key)
    }
    seconds = _number(time)
    return Case(
        name=junit.full_name(str(given.get("classname") or suite), name),
        outcome=Outcome.failed
        if failures
        else Outcome.passed
        if ran and not skipped
        else Outcome.skipped,
        duration_ms=None if seconds is None or seconds < 0 else round(1000 * seconds, 4),
        message=(failures or skipped or [""])[0],
        failures=tuple(junit.failure(text) for text in failures[:MAX_FAILURES]),
        measurements=numbers,
        more=more
        | (
            {"line": given["line"]}
            if isinstance(given.get("line"), int) and 0 <= given["line"] < 2**31
            else {}
        ),
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
    lines = [
        line.strip() for line in rest.splitlines() if line.strip() and line.strip() != "Failure"
    ]
    words = (lines or [first])[0].removeprefix("Value of: ").removeprefix(
        "Failure"
    ).strip() or first
    return {
        **failure,
        "expression": clean(words, 500),
        "file": place["file"],
        "line": int(place["line"]),
    }


def _number(value: object) -> float | None:
    if (
        isinstance(value, bool)
        or not isinstance(value, str | int | float)
        or len(str(value)[:65]) > 64
    ):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
