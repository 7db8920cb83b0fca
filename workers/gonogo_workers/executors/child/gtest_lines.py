"""What a GoogleTest program says: the lines that it prints while it runs, and the JSON that it
writes at its end. Standard library only.

Both are needed. The JSON has properties, files and failures one by one, but a program that crashes
or is ended writes none; the lines say which tests had finished by then, which one was running, and
what it had printed.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

MAX_KEPT_LINES = 400
"""Of what one test prints: failure texts come last, so the last ones are kept."""
MAX_FAILURES = 50
MAX_TEXT = 2000
DUMP_PROBLEM = "gonogo_dump: "
"""How include/gonogo_dump.hpp begins a line on stderr when arrays could not be handed over."""

_RUN = re.compile(r"\[ RUN      \] (?P<name>\S+)")
_DONE = re.compile(
    r"\[(?P<word>       OK |  FAILED  |  SKIPPED )\] (?P<name>\S+?)(?:, where .*)? \((?P<ms>\d+) ms\)$"
)
_PLACE = re.compile(r"^(?P<file>.+?)(?:[:(](?P<line>\d+)\)?)?: (?P<kind>Failure|Skipped|error)$")
_JSON_PLACE = re.compile(r"^(?P<file>.+?)(?::(?P<line>\d+))?$")
_NEAR = re.compile(
    r"^The difference between (?P<a>.+?) and (?P<b>.+?) is (?P<number>\S+), which exceeds (?P<limit>.+?), where$",
    re.M,
)
_NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|inf(?:inity)?)"
_MEASURE = re.compile(
    rf"(?<![\w.])(?P<name>[A-Za-z_][A-Za-z0-9_]*)\s*[=:]\s*(?P<number>{_NUMBER})(?![\w.])", re.I
)
_MEASURES = re.compile(r"diff|err|ulp|pcc|rmse|mse|deviation|mismatch|frobenius", re.I)
"""Names that a number of a kernel's error has: a log is full of other ones (`core (x=0,y=0)`)."""
_SMALLEST = re.compile(r"pcc|corr|cosine", re.I)
"""Of these the least is the worst; of all others the largest."""
_OUTCOMES = {"OK": "passed", "FAILED": "failed", "SKIPPED": "skipped"}
_NO_PROPERTIES = frozenset(
    {
        "name", "value_param", "type_param", "status", "result", "timestamp", "time", "classname", "file", "line", "failures",
        "skipped", "disabled", "errors", "tests",
    }
)  # fmt: skip


@dataclass
class Told:
    """What is known of one test."""

    name: str
    position: int
    """How many tests had begun before it in the same process."""
    outcome: str | None = None
    """None: it began and didn't end."""
    duration_ms: float | None = None
    lines: list[str] = field(default_factory=list)
    """The last of what was printed while it ran."""
    failures: list[str] = field(default_factory=list)
    """Failure texts as the JSON has them: a place, then the message."""
    properties: dict[str, str] = field(default_factory=dict)
    file: str | None = None
    line: int | None = None
    measurements: dict[str, float] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    """Arrays that could not be handed over."""
    disabled: bool = False


class Story:
    """The tests of one run, in the order in which they began. Fed line by line; then, where there
    is one, with the JSON.
    """

    def __init__(self) -> None:
        self.tests: dict[str, Told] = {}
        self.running: Told | None = None
        self.outside: list[str] = []
        """The last of what was printed while no test ran."""

    def see(self, line: str) -> None:
        """A line of the program's output. A mark may stand behind what a test printed without a
        line break.
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
                begun["name"], Told(begun["name"], len(self.tests))
            )
            return
        self._printed(line)

    def _printed(self, line: str) -> None:
        if not line.strip():
            return
        kept = self.outside if self.running is None else self.running.lines
        kept.append(line[:MAX_TEXT])
        if len(kept) > 2 * MAX_KEPT_LINES:
            del kept[:-MAX_KEPT_LINES]
        if self.running is not None:
            measure(self.running.measurements, line)
            if line.startswith(DUMP_PROBLEM):
                self.running.problems.append(line.removeprefix(DUMP_PROBLEM)[:MAX_TEXT])

    def read(self, text: str) -> bool:
        """Add what the JSON says; False for a text that is no such JSON (cut off, where the disk
        was full).
        """
        try:
            suites = json.loads(text)["testsuites"]
            entries = [(suite["name"], test) for suite in suites for test in suite["testsuite"]]
            for suite, test in entries:
                self._add(f"{suite}.{test['name']}" if suite else str(test["name"]), test)
        except (ValueError, KeyError, TypeError):
            return False
        return True

    def _add(self, name: str, test: dict[str, Any]) -> None:
        if test.get("status") == "NOTRUN" and test.get("result") not in ("SUPPRESSED", None):
            return
        told = self.tests.setdefault(name, Told(name, len(self.tests)))
        told.disabled = test.get("status") == "NOTRUN"
        told.failures = [str(each["failure"]) for each in test.get("failures", ())]
        if told.disabled or test.get("result") == "SKIPPED":
            told.outcome = "skipped"
        else:
            told.outcome = "failed" if told.failures else told.outcome or "passed"
        with contextlib.suppress(ValueError):
            told.duration_ms = 1e3 * float(str(test.get("time", "")).removesuffix("s"))
        told.file = test["file"] if isinstance(test.get("file"), str) else None
        told.line = test["line"] if isinstance(test.get("line"), int) else None
        told.properties = {
            key: str(value) for key, value in test.items() if key not in _NO_PROPERTIES
        }


def failures(told: Told) -> list[dict[str, Any]]:
    """The failures of a test, counted: three of one expression at one place are one entry with the
    count 3.

    [{"expression", "count", "message" (the first one's), "file", "line"}], in the order in which
    they came.
    """
    found: dict[tuple[str, str | None, int | None], dict[str, Any]] = {}
    for file, line, message in _blocks(told, "Failure"):
        words = expression(message)
        entry = found.setdefault(
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
        measure(told.measurements, message)
        for near in _NEAR.finditer(message):
            _keep(told.measurements, "max_diff", near["number"])
    return list(found.values())[:MAX_FAILURES]


def reason_of_skip(told: Told) -> str:
    """Why a test was skipped, in its own words."""
    if told.disabled:
        return "disabled"
    return "\n".join(message for _, _, message in _blocks(told, "Skipped"))[:MAX_TEXT]


def expression(message: str) -> str:
    """What was asserted, in a line: `xt::allclose(a, b)`, `a == b`, `(a) < (b)`, `|a - b| <=
    tolerance`, or the first line.
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


def measure(found: dict[str, float], line: str) -> None:
    """Numbers of an error in a line, such as max_diff=0.75: of several with one name the worst is
    kept.
    """
    for match in _MEASURE.finditer(line):
        if _MEASURES.search(match["name"]):
            _keep(found, match["name"], match["number"])


def _keep(found: dict[str, float], name: str, text: str) -> None:
    with contextlib.suppress(ValueError):
        value = float(text)
        before = found.get(name)
        worse = min if _SMALLEST.search(name) else max
        if before is None or value != value:
            found[name] = value
        elif before == before:
            found[name] = worse(before, value, key=lambda each: each if worse is min else abs(each))


def _blocks(told: Told, kind: str) -> Iterator[tuple[str | None, int | None, str]]:
    """(file, line, message) of each failure or skip: from the JSON, else from the lines."""
    if kind == "Failure" and told.failures:
        for text in told.failures:
            place, _, message = text.partition("\n")
            match = _JSON_PLACE.match(place)
            if match is not None:
                yield match["file"], int(match["line"]) if match["line"] else None, message
        return
    yield from _printed_blocks(told.lines, kind)


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
