"""A seed, or a test of an iteration, as one test case of a report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gonogo.reports.check_line import check_line
from gonogo.spec.selections import Selection
from gonogo.spec.statistics import ALWAYS
from gonogo.spec.verdicts import Explanation, Verdict
from gonogo_service.kit.database.states import JobKind
from gonogo_service.results.exports.parts import Part, Row
from gonogo_service.tests.test_specs import name_of

Outputs = Mapping[str, Mapping[str, Any]]


class Status(StrEnum):
    """The status of a test case, with CTRF's names."""

    passed = "passed"
    failed = "failed"
    skipped = "skipped"
    other = "other"  # it could not run, so nothing is known about the kernel; JUnit's <error>


_OF_OUTCOME = {
    "error": Status.other,
    "crash": Status.other,
    "hang": Status.other,
    "failed": Status.failed,
    "passed": Status.passed,
}
_OF_VERDICT = {
    **dict.fromkeys((Verdict.error, Verdict.crash, Verdict.hang), Status.other),
    # a hollow pass, too: a report that shows it green would hide what GoNoGo looks for
    **dict.fromkeys(
        (Verdict.fail, Verdict.pass_by_tolerance, Verdict.fail_by_tolerance), Status.failed
    ),
    **dict.fromkeys((Verdict.inconclusive, Verdict.skipped, Verdict.not_run), Status.skipped),
    **dict.fromkeys((Verdict.suspect, Verdict.pass_), Status.passed),
}


def status_of(verdict: str, outcome: str | None) -> Status:
    """Return the status for a verdict and a test's outcome: a red or lost test stays so.

    A test without arrays has its outcome's status.
    """
    reported = _OF_OUTCOME.get(outcome or "", Status.skipped)
    of_verdict = _OF_VERDICT.get(Verdict(verdict), reported)
    if reported is Status.other or (reported, of_verdict) == (Status.failed, Status.passed):
        return reported
    return of_verdict


@dataclass(frozen=True)
class Case:
    """One test case."""

    name: str
    group: str
    status: Status
    verdict: str
    duration_ms: float | None
    message: str
    """One line with the reason; empty for an ordinary pass."""
    text: str
    """All other details, with the command that reproduces the case."""
    facts: Mapping[str, Any]
    """verdict, explanation, seed or iteration, device, ..."""
    file: str | None = None
    line: int | None = None


def title(part: Part) -> str:
    """Return the title of a job's test cases."""
    job = part.job
    if part.name is not None:
        return part.name
    if job.is_selection:
        selection = Selection.parse(job.test)
        return selection.suite or selection.words
    return name_of(job.kernel, job.test)


def cases(part: Part) -> Iterator[Case]:
    """Yield the test cases of a job, in the order of its rows."""
    for row in part.rows:
        outputs, repeat = row["outputs"], row["repeat"]
        if not part.job.is_selection:
            name = f"seed {row['seed']}" + (f" repeat {repeat}" if repeat else "")
            yield _case(part, row, name, row, outputs)
            continue
        tests = {name: entry for name, entry in outputs.items() if entry.get("outcome")}
        arrays = _arrays(outputs, tests)
        number = f" [{row['iteration']}{f'.{repeat}' if repeat else ''}]"
        for name, entry in tests.items():
            label = name + number if part.job.total > 1 else name
            yield _case(part, row, label, entry, arrays.get(name, {}))
        if not tests:
            yield _case(part, row, f"iteration {row['iteration']}", row, {"": row})


def _arrays(outputs: Outputs, tests: Outputs) -> dict[str, dict[str, Mapping[str, Any]]]:
    """Return the arrays by the test that handed them over: "test/output" or "test#name/output"."""
    arrays: dict[str, dict[str, Mapping[str, Any]]] = {}
    for name, judged in outputs.items():
        if name not in tests:
            label = name.rpartition("/")[0]
            owner = label if label in tests else label.rpartition("#")[0]
            arrays.setdefault(owner, {})[name] = judged
    return arrays


def _case(part: Part, row: Row, name: str, entry: Mapping[str, Any], outputs: Outputs) -> Case:
    """Return the case of an entry, a seed or a test, with the arrays that were judged for it."""
    verdict, outcome = Verdict(entry["verdict"]), entry.get("outcome")
    status = status_of(verdict, outcome)
    report = str(entry.get("message") or "")
    is_plain = verdict in (Verdict.pass_, Verdict.not_judged)
    message = "" if is_plain else f"{verdict.label}: {verdict.sentence}"
    if status is not Status.passed:
        message = message or report.strip().partition("\n")[0] or outcome or verdict.label
    bad = {
        output: judged
        for output, judged in outputs.items()
        if output and judged["verdict"] != Verdict.pass_
    }
    details = [report, *(f"{output}: {_numbers(judged)}" for output, judged in bad.items())]
    if status is not Status.passed and part.job.kind is JobKind.seeds:
        details.append(f"again: {_check_command(part, row, next(iter(bad), ''))}")
    facts: dict[str, Any] = {"job": part.job.id, "build": part.job.build, "verdict": verdict.value}
    facts |= {"explanation": entry.get("explanation")}
    facts |= {} if outcome is None else {"outcome": outcome}
    of_row = {name: row.get(name) for name in ("seed", "iteration", "repeat", "device")}
    facts |= _arithmetic(outputs) | {n: value for n, value in of_row.items() if value is not None}
    file, line = entry.get("file"), entry.get("line")
    return Case(
        name=name,
        group=title(part),
        status=status,
        verdict=verdict.value,
        duration_ms=entry.get("duration_ms"),
        message=message,
        text="\n".join(filter(None, details)),
        facts=facts,
        file=file if isinstance(file, str) else None,
        line=line if type(line) is int else None,
    )


def _arithmetic(outputs: Outputs) -> dict[str, str]:
    """Return the arithmetics that explain outputs, and what each could not have seen, in words."""
    judged = {output.rpartition("/")[2]: entry for output, entry in outputs.items()}
    facts = {
        "arithmetic": [
            f"{output}: {entry['arithmetic']}"
            for output, entry in judged.items()
            if entry.get("arithmetic") and entry["explanation"] == Explanation.explained
        ],
        "detection_limits": [
            f"{output}: {', '.join(entry['detection_limits'])}"
            for output, entry in judged.items()
            if entry.get("detection_limits")
        ],
    }
    return {name: "; ".join(parts) for name, parts in facts.items() if parts}


def _numbers(judged: Mapping[str, Any]) -> str:
    known = {name: judged[name] for name in ALWAYS if isinstance(judged.get(name), int | float)}
    head = f"{Verdict(judged['verdict']).label}, {judged['explanation']}"
    return ", ".join((head, *(f"{name} {value:.4g}" for name, value in known.items())))


def _check_command(part: Part, row: Row, output: str) -> str:
    job = part.job
    return check_line(
        job.test,
        build=job.build,
        executor=job.target.executor,
        seed=row["seed"] if row.get("iteration") is None else row["iteration"],
        output=output.rpartition("/")[2],
        reference=job.reference,
        repeats=row["repeat"] + 1,
    )
