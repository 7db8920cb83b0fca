"""The result of a pipeline: its exit code, a sentence, and a remark for each test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gonogo import urls
from gonogo.cli.kit import show
from gonogo.flakiness.classes import Class, Level, file_of
from gonogo.spec.verdicts import Verdict
from gonogo_service.cli import suites

Record = Mapping[str, Any]
BLOCKED, UNDECIDED = 1, 3
UNKNOWN = frozenset({Verdict.error, Verdict.hang, Verdict.crash})
"""Verdicts that say nothing about the kernel's numbers, as the class `infrastructure` does."""
NOTHING_RAN = frozenset({Verdict.skipped, Verdict.not_run})
_LEVELS_OF_CODES: Mapping[int, Level] = {BLOCKED: "failure", UNDECIDED: "warning"}


@dataclass(frozen=True)
class Remark:
    """A test in a pipeline's reports.

    Attributes:
        name: the test.
        label: its class against the base, else its verdict.
        sentence: what the label means.
        words: the evidence.
        level: how loud it is; None: nothing needs attention.
        code: what it does to the pipeline: 0 nothing, 1 it fails it, 3 it leaves it undecided.
        file, line: where the test is written.
        url: the page of its job on the commit.
        check: the command that runs its worst seed again.
        diagnosis: what is wrong with the kernel.
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
    """The result of a pipeline.

    Attributes:
        code: the exit code.
        title: the gate's answer in a line.
        note: why nothing was compared; None: it was.
        words: how many tests have each class, else each verdict.
        remarks: the tests, those that need attention first.
        run, build, base: what ran, and what it was compared with.
        url: the page of the comparison, else of the run.
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


def never_ran(comparison: Record) -> bool:
    """Return whether the base ran none of the commit's tests."""
    return all(test["base"] is None for test in comparison["items"] if test["head"] is not None)


def of_comparison(
    comparison: Record,
    run: Record,
    *,
    build: str,
    base: str,
    path: Path,
    lines: Mapping[str, int],
    url: str,
) -> Outcome:
    """Return the outcome of a run that was compared with its base."""
    gate = comparison["gate"]
    code, note, closing = int(gate["code"]), None, gate["reasons"]
    if run["state"] == "finished" and code == UNDECIDED and never_ran(comparison):
        others = {kind: count for kind, count in closing.items() if kind != Class.unknown}
        if not others:
            code, closing = 0, {}
            note = f"The base {base} has not run these tests, so what is new is unknown."
    if run["state"] != "finished":
        code = BLOCKED
    tests = {test["id"]: test for test in run["tests"]}
    remarks = [
        remark
        for compared in comparison["items"]
        for remark in _compared(compared, tests, code, closing, path, lines, url)
    ]
    label = "Blocked" if code == BLOCKED else "Undecided" if code else "Clear"
    words = gate["words"] if note is None else "nothing was compared"
    return Outcome(
        code,
        f"{label}: {words}",
        note,
        str(comparison["words"]),
        tuple(remarks),
        str(run["suite"]["name"]),
        str(run["id"]),
        build,
        base,
        url + comparison["links"]["page"],
    )


def _compared(
    compared: Record,
    tests: Mapping[str, Record],
    code: int,
    closing: Mapping[str, int],
    path: Path,
    lines: Mapping[str, int],
    url: str,
) -> Iterator[Remark]:
    jobs = [job for side in ("head", "base") for job in (compared[side] or {}).get("jobs", ())]
    run_test = next((tests[job] for job in jobs if job in tests), None)
    within = file_of(compared["within"] or "")
    place = (within, 1) if within is not None and Path(within).exists() else None
    file, line = place or (path.as_posix(), lines.get(run_test["name"], 1) if run_test else 1)
    name = compared["name"]
    if compared["within"] and run_test is not None:
        name = f"{run_test['name']}: {name}"
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
            url + urls.job(jobs[0]) if jobs else None,
            compared["check"] if kind.level else None,
            run_test["diagnosis"] if run_test is not None and kind.level else None,
        )


def of_run(
    run: Record,
    *,
    build: str,
    note: str,
    fail_on: str,
    path: Path,
    lines: Mapping[str, int],
    url: str,
) -> Outcome:
    """Return the outcome of a run without a base: with `new`, only what didn't run counts."""
    remarks = []
    for test in run["tests"]:
        verdict = Verdict(test["verdict"]) if test["verdict"] else None
        # without a base nothing can be new, but what could not run is never green
        bad = suites.test_code(test, "any" if fail_on == "new" else fail_on)
        code = bad if bad == UNDECIDED or fail_on != "new" else 0
        if verdict in UNKNOWN and not code:
            code = UNDECIDED
        remarks.append(
            Remark(
                test["name"],
                verdict.label if verdict else str(test["state"]),
                verdict.sentence if verdict else "",
                test["error"] or show.counts(test["outcomes"] or test["counts"]),
                _LEVELS_OF_CODES[code] if code else ("notice" if bad else None),
                code,
                path.as_posix(),
                lines.get(test["name"], 1),
                url + urls.job(test["id"]),
                None,
                test["diagnosis"] if bad else None,
            )
        )
    codes = {remark.code for remark in remarks}
    ran = any(test["verdict"] not in (None, *NOTHING_RAN) for test in run["tests"])
    code = max(codes) if ran else max({UNDECIDED, *codes})  # zero tests run is never green
    code = BLOCKED if run["state"] != "finished" or BLOCKED in codes else code
    words = Verdict(run["verdict"]).label if run["verdict"] else run["state"]
    label = "Blocked" if code == BLOCKED else "Undecided" if code else "Clear"
    return Outcome(
        code,
        f"{label}: {words}, nothing was compared",
        note,
        show.counts(run["seeds"]["verdicts"]),
        tuple(sorted(remarks, key=lambda remark: remark.level is None)),
        str(run["suite"]["name"]),
        str(run["id"]),
        build,
        None,
        url + urls.run(run["id"]),
    )
