"""JUnit XML, as pytest, Maven's Surefire, CTest, Jest and many others write it.

There is no standard, only a common core. `<testsuites>` or `<testsuite>` is the root; suites may be
nested. A `<testcase>` is red with a `<failure>`, an error with an `<error>`, skipped with
`<skipped>` or a status that says so, and green otherwise. A test that failed and passed when it was
run again (Surefire's `<flakyFailure>`) is red, as it is where GoNoGo runs it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gonogo.errors import FieldError
from gonogo.fields import check_count
from gonogo.reports import xml
from gonogo.reports.cases import MAX_CASES, MAX_FAILURES, MAX_MEASUREMENTS, Case, TestReport
from gonogo.reports.outcomes import Outcome
from gonogo.reports.texts import MAX_MESSAGE_CHARS, clean

PLACES = ("file", "value_param", "type_param")
ROOTS = ("testsuites", "testsuite")
PASSED_ON_RETRY = "failed, then passed when it was run again: "
_RED = {"failure": Outcome.failed, "error": Outcome.error}
_FLAKY = ("flakyFailure", "flakyError")
_NOT_RUN = frozenset({"skipped", "notrun", "disabled", "waived", "ignored", "pending"})
_MAX_TEXT = 500


@dataclass
class _Open:
    """A test whose closing tag has not been read yet."""

    attributes: Mapping[str, str]
    suite: str
    outcome: Outcome = Outcome.passed
    message: str = ""
    failures: list[dict[str, Any]] = field(default_factory=list)
    properties: dict[str, str] = field(default_factory=dict)


class Reader:
    """A reader that takes elements one by one and builds a report.

    Attributes that JUnit doesn't have become measurements, if `known` is given.
    """

    def __init__(self, known: frozenset[str] | None = None) -> None:
        self._known = known
        """Attributes of a test that aren't measurements; None: no attribute is one."""
        self._path: list[tuple[str, Mapping[str, str]]] = []
        self._case: _Open | None = None
        self._cases: list[Case] = []
        self._names: list[str] = []
        self._started: str | None = None

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        """Begin an element. Raises FieldError."""
        if not self._path and name not in ROOTS:
            raise FieldError(
                "file",
                f"<{name[:100]}>",
                "isn't a JUnit report: its root is another element",
                limit="<testsuites> or <testsuite>",
            )
        if name in ROOTS and len(self._path) < 2:
            self._names.append(attributes.get("name", ""))
            self._started = self._started or attributes.get("timestamp")
        elif name == "testcase" and self._case is None:
            check_count(len(self._cases) + 1, MAX_CASES, "testcase", "too many tests", "in a file")
            suites = [given.get("name", "") for kind, given in self._path if kind == "testsuite"]
            self._case = _Open(attributes, suites[-1] if suites else "")
            if any(attributes.get(key, "").lower() in _NOT_RUN for key in ("status", "result")):
                self._case.outcome = Outcome.skipped
        self._path.append((name, attributes))

    def end(self, name: str, text: str) -> None:
        """End an element; `text` is its text."""
        _, attributes = self._path.pop()
        if self._case is None:
            return
        if name == "testcase":
            self._cases.append(self._closed(self._case))
            self._case = None
        elif name == "property" and "name" in attributes:
            if len(self._case.properties) < MAX_MEASUREMENTS:
                key = clean(attributes["name"], 100)
                self._case.properties[key] = attributes.get("value", text.strip())
        else:
            self._add_result(self._case, name, attributes, text)

    def report(self) -> TestReport:
        """Return the report of everything read so far."""
        # of several suites without a common name, none names the report
        named = self._names[:1] if len(self._names) != 2 else self._names
        suite = next(filter(None, named), None)
        suite = None if suite is None else clean(suite, 200)
        return TestReport(tuple(self._cases), suite=suite, started_at=self._started)

    def _add_result(self, case: _Open, name: str, attributes: Mapping[str, str], text: str) -> None:
        message = attributes.get("message", "")
        if name == "skipped":
            if case.outcome is Outcome.passed:
                case.outcome = Outcome.skipped
            case.message = case.message or clean(message or text.strip(), MAX_MESSAGE_CHARS)
            return
        if name not in _RED and name not in _FLAKY:
            return
        whole = "\n".join(
            dict.fromkeys(filter(None, (message.strip(), text.strip())))
        ) or attributes.get("type", "")
        if name in _FLAKY:
            if case.outcome is Outcome.passed:
                case.outcome = Outcome.failed
                case.message = clean(PASSED_ON_RETRY + whole, MAX_MESSAGE_CHARS)
        elif case.outcome not in _RED.values():
            case.outcome, case.message = _RED[name], clean(whole, MAX_MESSAGE_CHARS)
        if len(case.failures) < MAX_FAILURES:
            case.failures.append(failure(whole))

    def _closed(self, case: _Open) -> Case:
        given = case.attributes
        numbers = numbers_of(case.properties)
        if self._known is not None:
            others = {name: value for name, value in given.items() if name not in self._known}
            numbers |= numbers_of(others)
        more: dict[str, Any] = {
            key: clean(given[key], _MAX_TEXT) for key in PLACES if given.get(key)
        }
        if (line := given.get("line", "")).isascii() and line.isdigit() and len(line) < 10:
            more["line"] = int(line)
        texts = [(name, text) for name, text in case.properties.items() if name not in numbers]
        if texts:
            more["properties"] = {name: clean(text, _MAX_TEXT) for name, text in texts}
        return Case(
            name=full_name(given.get("classname") or case.suite, given.get("name", "")),
            outcome=case.outcome,
            duration_ms=milliseconds((given.get("time") or "").replace(",", "")),
            message=case.message,
            failures=tuple(case.failures),
            measurements=numbers,
            more=more,
        )


def parse(data: bytes) -> TestReport:
    """Return the report in a file of JUnit XML.

    Raises FieldError for other files, and for too many tests.
    """
    reader = Reader()
    xml.read(data, reader.start, reader.end)
    return reader.report()


def full_name(group: str, name: str) -> str:
    """Return `group.name`, or one of them if the other is missing or contained in it."""
    if not group or name == group or name.startswith(f"{group}."):
        return name
    return f"{group}.{name}" if name else group


def failure(text: str) -> dict[str, Any]:
    """Return {"expression", "count", "message"} of a failure's text."""
    return {
        "expression": clean(text.partition("\n")[0], _MAX_TEXT),
        "count": 1,
        "message": clean(text, MAX_MESSAGE_CHARS // 2),
    }


def milliseconds(text: str) -> float | None:
    """Return the seconds in a text as ms; None for other texts."""
    seconds = number(text)
    return None if seconds is None or not 0 <= seconds <= 1e9 else round(1000 * seconds, 4)


def numbers_of(values: Mapping[str, object]) -> dict[str, float]:
    """Return the values that are finite numbers, or texts of them, by their cleaned names."""
    known = {clean(name, 100): number(value) for name, value in values.items()}
    return {name: value for name, value in known.items() if value is not None}


def number(value: object) -> float | None:
    """Return a finite number, or the one that a short text writes; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        parsed = float(value) if len(str(value)[:65]) <= 64 else math.nan
    except (ValueError, OverflowError):
        return None
    return parsed if math.isfinite(parsed) else None
