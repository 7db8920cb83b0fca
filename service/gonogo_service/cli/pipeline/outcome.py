"""The result of a pipeline: its exit code, a sentence, and a remark for each test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gonogo import urls
from gonogo.cli.kit import show
from gonogo.errors import FieldError
from gonogo.flakiness.classes import LOST, Class, Level, file_of
from gonogo.flakiness.gating import LABELS
from gonogo.spec.suites import expand
from gonogo.spec.verdicts import Verdict
from gonogo_service.cli import jobs

Record = Mapping[str, Any]
BLOCKED, UNDECIDED = 1, 3
NOTHING_RAN = frozenset({Verdict.skipped, Verdict.not_run})
_LEVELS_OF_CODES: Mapping[int, Level] = {BLOCKED: "failure", UNDECIDED: "warning"}


@dataclass(frozen=True)
class Remark:
    """A test in a pipeline's reports.

    The label is its class against the base, else its verdict; `words` are the evidence. Without a
    level nothing needs attention. The code is what it does to the pipeline: 0 nothing, 1 it fails
    it, 3 it leaves it undecided. `check` is the command that runs its worst seed again.
    """

    name: str
    label: str
    sentence: str
    words: str
    level: Level | None
    code: int
    file: str
    line: int
    url: str | None
    check: str | None = None
    diagnosis: str | None = None


@dataclass(frozen=True)
class Outcome:
    """The result of a pipeline; `note` says why nothing was compared.

    Its words are how many tests have each class, else each verdict. The remarks that need attention
    come first.
    """

    code: int
    title: str
    note: str | None
    words: str
    remarks: tuple[Remark, ...]
    suite: str
    run: str
    build: str
    base: str | None
    url: str


@dataclass(frozen=True)
class Written:
    """A suite's file with the lines of its tests, and the address of the server."""

    path: Path
    lines: Mapping[str, int]
    """Test -> line, counted from 1"""
    url: str

    @classmethod
    def of(cls, path: Path, content: Record, url: str) -> Written:
        """Return where the tests of a suite are written; only YAML has lines."""
        starts = _starts(path)
        try:
            templates = expand(content)
        except FieldError:  # the server tells what is wrong
            return cls(path, {}, url)
        numbers = {template.name: int(template.place.split(".")[1]) for template in templates}
        lines = {name: starts[number] for name, number in numbers.items() if number < len(starts)}
        return cls(path, lines, url)

    def place(self, name: str) -> tuple[str, int]:
        """Return the file and line of a test."""
        return self.path.as_posix(), self.lines.get(name, 1)


def _starts(path: Path) -> list[int]:
    """Return the first line of each entry of a YAML file."""
    import yaml

    if path.suffix not in {".yaml", ".yml"}:
        return []
    root = yaml.compose(path.read_text("utf-8"), Loader=yaml.SafeLoader)
    for key, value in root.value if isinstance(root, yaml.MappingNode) else ():
        if key.value == "entries" and isinstance(value, yaml.SequenceNode):
            return [entry.start_mark.line + 1 for entry in value.value]
    return []


def of_comparison(
    comparison: Record, run: Record, written: Written, *, build: str, base: str
) -> Outcome:
    """Return the outcome of a run that was compared with its base."""
    gate = comparison["gate"]
    code, note, closing = int(gate["code"]), None, gate["reasons"]
    never_ran = all(test["base"] is None for test in comparison["items"] if test["head"])
    others = closing.keys() - {Class.unknown.value}
    if run["state"] != "finished":
        code = BLOCKED
    elif code == UNDECIDED and never_ran and not others:
        code, closing = 0, {}
        note = f"The base {base} has not run these tests, so what is new is unknown."
    tests = {test["id"]: test for test in run["tests"]}
    remarks = [
        remark
        for compared in comparison["items"]
        for remark in _compared(compared, tests, code, closing, written)
    ]
    words = gate["words"] if note is None else "nothing was compared"
    return Outcome(
        code,
        f"{LABELS[code]}: {words}",
        note,
        str(comparison["words"]),
        tuple(remarks),
        str(run["suite"]["name"]),
        str(run["id"]),
        build,
        base,
        written.url + comparison["links"]["page"],
    )


def _compared(
    compared: Record,
    tests: Mapping[str, Record],
    code: int,
    closing: Mapping[str, int],
    written: Written,
) -> Iterator[Remark]:
    jobs = [job for side in ("head", "base") for job in (compared[side] or {}).get("jobs", ())]
    test = next((tests[job] for job in jobs if job in tests), None)
    name, within = compared["name"], compared["within"]
    file, line = written.place(test["name"] if test else "")
    inner = file_of(within or "")
    if inner is not None and Path(inner).exists():
        file, line = inner, 1
    if within and test is not None:
        name = f"{test['name']}: {name}"
    for finding in compared["findings"]:
        kind = Class(finding["class"])
        yield Remark(
            name,
            kind.label,
            finding["sentence"],
            finding["words"],
            kind.level,
            code if kind.value in closing else 0,
            file,
            line,
            written.url + urls.job(jobs[0]) if jobs else None,
            compared["check"] if kind.level else None,
            test["diagnosis"] if test is not None and kind.level else None,
        )


def of_run(run: Record, written: Written, *, build: str, note: str, fail_on: str) -> Outcome:
    """Return the outcome of a run without a base: with `new`, only what didn't run counts."""
    remarks = [_of_test(test, written, fail_on) for test in run["tests"]]
    codes = {remark.code for remark in remarks}
    ran = any(test["verdict"] not in (None, *NOTHING_RAN) for test in run["tests"])
    code = max(codes) if ran else max({UNDECIDED, *codes})  # zero tests run is never green
    code = BLOCKED if run["state"] != "finished" or BLOCKED in codes else code
    words = Verdict(run["verdict"]).label if run["verdict"] else run["state"]
    return Outcome(
        code,
        f"{LABELS[code]}: {words}, nothing was compared",
        note,
        show.counts(run["seeds"]["verdicts"]),
        tuple(sorted(remarks, key=lambda remark: remark.level is None)),
        str(run["suite"]["name"]),
        str(run["id"]),
        build,
        None,
        written.url + urls.run(run["id"]),
    )


def _of_test(test: Record, written: Written, fail_on: str) -> Remark:
    verdict = Verdict(test["verdict"]) if test["verdict"] else None
    # without a base nothing can be new, but what could not run is never green
    bad = jobs.exit_code(test, "any" if fail_on == "new" else fail_on)
    code = bad if bad == UNDECIDED or fail_on != "new" else 0
    if verdict in LOST and not code:
        code = UNDECIDED
    return Remark(
        test["name"],
        verdict.label if verdict else str(test["state"]),
        verdict.sentence if verdict else "",
        test["error"] or show.counts(test["outcomes"] or test["counts"]),
        _LEVELS_OF_CODES[code] if code else ("notice" if bad else None),
        code,
        *written.place(test["name"]),
        written.url + urls.job(test["id"]),
        None,
        test["diagnosis"] if bad else None,
    )
