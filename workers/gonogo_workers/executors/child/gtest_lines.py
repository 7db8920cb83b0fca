"""The output of a GoogleTest program: the lines that it prints, and the JSON at its end.

Both are needed. The JSON has properties, files and single failures, but a program that crashes or
is ended writes none. The lines say which tests had finished by then, which one was running, and
what it had printed. Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

MAX_KEPT_LINES = 400
"""Lines kept of one test's output: failure texts come last, so the last lines are kept."""
MAX_FAILURES = 50
MAX_TEXT = 2000
DUMP_PROBLEM = "gonogo_dump: "
"""The beginning of gonogo_dump.hpp's line on stderr when arrays could not be handed over."""

_RUN = re.compile(r"\[ RUN      \] (?P<name>\S+)")
_DONE = re.compile(
    r"\[(?P<word>       OK |  FAILED  |  SKIPPED )\] (?P<name>\S+?)(?:, where .*)?"
    r" \((?P<ms>\d+) ms\)$"
)
_PLACE = re.compile(r"^(?P<file>.+?)(?:[:(](?P<line>\d+)\)?)?: (?P<kind>Failure|Skipped|error)$")
_JSON_PLACE = re.compile(r"^(?P<file>.+?)(?::(?P<line>\d+))?$")
_NEAR = re.compile(
    r"^The difference between (?P<a>.+?) and (?P<b>.+?) is (?P<number>\S+),"
    r" which exceeds (?P<limit>.+?), where$",
    re.M,
)
_NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|inf(?:inity)?)"
_MEASURE = re.compile(
    rf"(?<![\w.])(?P<name>[A-Za-z_][A-Za-z0-9_]*)\s*[=:]\s*(?P<number>{_NUMBER})(?![\w.])", re.I
)
_MEASURES = re.compile(r"diff|err|ulp|pcc|rmse|mse|deviation|mismatch|frobenius", re.I)
"""Names of numbers that measure a kernel's error: a log has many others (`core (x=0,y=0)`)."""
_SMALLEST = re.compile(r"pcc|corr|cosine", re.I)
"""Statistics whose smallest value is the worst; of all others the largest is."""
_OUTCOMES = {"OK": "passed", "FAILED": "failed", "SKIPPED": "skipped"}
_NO_PROPERTIES = frozenset(
    {
        "name", "value_param", "type_param", "status", "result", "timestamp", "time", "classname",
        "file", "line", "failures", "skipped", "disabled", "errors", "tests",
    }
)  # fmt: skip


@dataclass
class ObservedTest:
    """Everything known of one test."""

    name: str
    position: int
    """The number of tests that began before it in the same process."""
    outcome: str | None = None
    """None: it began and did not end."""
    duration_ms: float | None = None
    lines: list[str] = field(default_factory=list)
    """The last lines that were printed while it ran."""
    failures: list[str] = field(default_factory=list)
    """Failure texts as the JSON has them: a place, then the message."""
    properties: dict[str, str] = field(default_factory=dict)
    file: str | None = None
    line: int | None = None
    measurements: dict[str, float] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    """The reasons why arrays could not be handed over."""
    disabled: bool = False


class OutputParser:
    """The tests of one run, in the order in which they began.

    It receives the output line by line, then the JSON where there is one.
    """

    def __init__(self) -> None:
        self.tests: dict[str, ObservedTest] = {}
        self.running: ObservedTest | None = None
        self.outside: list[str] = []
        """The last lines that were printed while no test ran."""

    def add_line(self, line: str) -> None:
        """Add a line of the program's output.

        A mark may follow text that a test printed without a line break.
        """
        done = _DONE.search(line)
        if done is not None and self.running is not None and done["name"] == self.running.name:
            self._printed(line[: done.start()])
            self.running.outcome = _OUTCOMES[done["word"].strip()]
            self.running.duration_ms = float(done["ms"])
            self.running = None
            return
        begun = _RUN.search(line)
        if begun is not None and self.running is None:
            self._printed(line[: begun.start()])
            self.running = self.tests.setdefault(
                begun["name"], ObservedTest(begun["name"], len(self.tests))
            )
            return
        self._printed(line)

    def _printed(self, line: str) -> None:
        if not line.strip():
            return
        lines = self.outside if self.running is None else self.running.lines
        lines.append(line[:MAX_TEXT])
        if len(lines) > 2 * MAX_KEPT_LINES:
            del lines[:-MAX_KEPT_LINES]
        if self.running is not None:
            measure(self.running.measurements, line)
            if line.startswith(DUMP_PROBLEM):
                self.running.problems.append(line.removeprefix(DUMP_PROBLEM)[:MAX_TEXT])

    def read(self, text: str) -> bool:
        """Add the content of the JSON; return False for any other text.

        The JSON may be cut off, where the disk was full.
        """
        try:
            suites = json.loads(text)["testsuites"]
            entries = [(suite["name"], test) for suite in suites for test in suite["testsuite"]]
            for suite, test in entries:
                self._add(f"{suite}.{test['name']}" if suite else str(test["name"]), test)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return False
        return True

    def _add(self, name: str, test: dict[str, Any]) -> None:
        if test.get("status") == "NOTRUN" and test.get("result") not in ("SUPPRESSED", None):
            return
        observed = self.tests.setdefault(name, ObservedTest(name, len(self.tests)))
        observed.disabled = test.get("status") == "NOTRUN"
        observed.failures = [str(failure["failure"]) for failure in test.get("failures", ())]
        if observed.disabled or test.get("result") == "SKIPPED":
            observed.outcome = "skipped"
        else:
            observed.outcome = "failed" if observed.failures else observed.outcome or "passed"
        with contextlib.suppress(ValueError):
            observed.duration_ms = 1e3 * float(str(test.get("time", "")).removesuffix("s"))
        observed.file = test["file"] if isinstance(test.get("file"), str) else None
        observed.line = test["line"] if isinstance(test.get("line"), int) else None
        observed.properties = {
            key: str(value) for key, value in test.items() if key not in _NO_PROPERTIES
        }


def failures(test: ObservedTest) -> list[dict[str, Any]]:
    """Return the failures of a test, counted.

    [{"expression", "count", "message" (the first one's), "file", "line"}], in order. Three failures
    of one expression at one place are one entry with the count 3.
    """
    counted: dict[tuple[str, str | None, int | None], dict[str, Any]] = {}
    for file, line, message in _blocks(test, "Failure"):
        words = expression(message)
        entry = counted.setdefault(
            (words, file, line),
            {
                "expression": words,
                "count": 0,
                "message": message[:MAX_TEXT],
                "file": file,
                "line": line,
            },
        )
        entry["count"] += 1
        measure(test.measurements, message)
        for near in _NEAR.finditer(message):
            _keep_worst(test.measurements, "max_diff", near["number"])
    return list(counted.values())[:MAX_FAILURES]


def reason_of_skip(test: ObservedTest) -> str:
    """Return the test's own words for why it was skipped."""
    if test.disabled:
        return "disabled"
    return "\n".join(message for _, _, message in _blocks(test, "Skipped"))[:MAX_TEXT]


def expression(message: str) -> str:
    """Return the asserted expression in one line.

    `xt::allclose(a, b)`, `a == b`, `(a) < (b)`, `|a - b| <= tolerance`, or the first line.
    """
    lines = message.strip().split("\n")
    first = lines[0]
    near = _NEAR.match(message)
    if near is not None:
        return f"|{near['a']} - {near['b']}| <= {near['limit']}"[:MAX_TEXT]
    if first.startswith("Value of: "):
        return first.removeprefix("Value of: ")[:MAX_TEXT]
    if first == "Expected equality of these values:":
        sides = [
            line.strip()
            for line in lines[1:]
            if line.startswith("  ") and not line.startswith("    ")
        ]
        return " == ".join(sides[:2])[:MAX_TEXT]
    if first.startswith("Expected: "):
        return first.removeprefix("Expected: ").partition(", actual: ")[0][:MAX_TEXT]
    if first == "Failed" and len(lines) > 1:
        return lines[1][:MAX_TEXT]
    return first[:MAX_TEXT]


def measure(measurements: dict[str, float], line: str) -> None:
    """Add the error measures in a line, such as max_diff=0.75, to `measurements`.

    Of several with one name the worst is kept.
    """
    for match in _MEASURE.finditer(line):
        if _MEASURES.search(match["name"]):
            _keep_worst(measurements, match["name"], match["number"])


def _keep_worst(measurements: dict[str, float], name: str, text: str) -> None:
    with contextlib.suppress(ValueError):
        value = float(text)
        before = measurements.get(name)
        worse = min if _SMALLEST.search(name) else max
        if before is None or value != value:
            measurements[name] = value
        elif before == before:
            measurements[name] = worse(
                before, value, key=lambda number: number if worse is min else abs(number)
            )


def _blocks(test: ObservedTest, kind: str) -> Iterator[tuple[str | None, int | None, str]]:
    """Yield (file, line, message) of each failure or skip: from the JSON, else from the lines."""
    if kind == "Failure" and test.failures:
        for text in test.failures:
            place, _, message = text.partition("\n")
            match = _JSON_PLACE.match(place)
            if match is not None:
                yield match["file"], int(match["line"]) if match["line"] else None, message
        return
    yield from _printed_blocks(test.lines, kind)


def _printed_blocks(
    lines: Iterable[str], kind: str
) -> Iterator[tuple[str | None, int | None, str]]:
    place: re.Match[str] | None = None
    message: list[str] = []
    for line in lines:
        begins = _PLACE.match(line)
        if begins is None:
            message.append(line)
            continue
        if place is not None and place["kind"] == kind:
            yield place["file"], int(place["line"]) if place["line"] else None, "\n".join(message)
        place, message = begins, []
    if place is not None and place["kind"] == kind:
        yield place["file"], int(place["line"]) if place["line"] else None, "\n".join(message)
