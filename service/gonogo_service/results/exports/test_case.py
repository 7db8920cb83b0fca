"""A seed, or a test of an iteration, as one test case of a report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gonogo.reports.check_line import check_line
from gonogo.spec.selections import Selection, is_selection
from gonogo.spec.statistics import ALWAYS
from gonogo.spec.verdicts import Explanation, Verdict
from gonogo_service.kit.database.states import JobKind
from gonogo_service.results.exports.parts import Part, Row


class Status(StrEnum):
    """The status of a test case, with CTRF's names."""

    passed = "passed"
    failed = "failed"
    skipped = "skipped"
    other = "other"  # it could not run, so nothing is known about the kernel; JUnit's <error>


_OF_VERDICT = {
    Verdict.error: Status.other,
    Verdict.crash: Status.other,
    Verdict.hang: Status.other,
    Verdict.fail: Status.failed,
    Verdict.pass_by_tolerance: Status.failed,
    Verdict.fail_by_tolerance: Status.failed,
    Verdict.inconclusive: Status.skipped,
    Verdict.skipped: Status.skipped,
    Verdict.not_run: Status.skipped,
    Verdict.suspect: Status.passed,
    Verdict.pass_: Status.passed,
}


def status_of(verdict: str, outcome: str | None) -> Status:
    """Return the status for a verdict and a test's outcome.

    A finding is a failure, also a hollow pass: a report that shows it green would hide the very
    thing that GoNoGo looks for. A test without arrays has its outcome's status. An inconclusive
    seed is skipped.
    """
    known = Verdict(verdict)
    if outcome in ("error", "crash", "hang"):
        return Status.other
    if known is Verdict.not_judged:
        return (
            Status.failed
            if outcome == "failed"
            else Status.passed
            if outcome == "passed"
            else Status.skipped
        )
    return (
        Status.failed
        if outcome == "failed" and _OF_VERDICT[known] is Status.passed
        else _OF_VERDICT[known]
    )


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
    if is_selection(job.test):
        selection = Selection.parse(job.test)
        return selection.suite or selection.words
    return f"{job.kernel} {'x'.join(str(length) for length in job.test['shape'])}"


def cases(part: Part) -> Iterator[Case]:
    """Yield the test cases of a job, in the order of its rows."""
    group = title(part)
    has_tests = is_selection(part.job.test)
    for row in part.rows:
        if not has_tests:
            yield _seed(part, group, row)
            continue
        tests = {name: entry for name, entry in row["outputs"].items() if entry.get("outcome")}
        arrays = _arrays(row["outputs"], tests)
        for name, entry in tests.items():
            yield _test(part, group, row, name, entry, arrays.get(name, {}))
        if not tests:
            yield _case(part, group, row, f"iteration {row['iteration']}", row, {"": row}, None)


def _seed(part: Part, group: str, row: Row) -> Case:
    name = f"seed {row['seed']}" + (f" repeat {row['repeat']}" if row["repeat"] else "")
    return _case(part, group, row, name, row, row["outputs"], None)


def _arrays(
    outputs: Mapping[str, Mapping[str, Any]], tests: Mapping[str, Any]
) -> dict[str, dict[str, Mapping[str, Any]]]:
    """Return the arrays' entries by the test that submitted them.

    They are named "test/output" or "test#name/output".
    """
    arrays: dict[str, dict[str, Mapping[str, Any]]] = {}
    for name, judged in outputs.items():
        if name in tests:
            continue
        label = name.rpartition("/")[0]
        owner = label if label in tests else label.rpartition("#")[0]
        arrays.setdefault(owner, {})[name] = judged
    return arrays


def _test(
    part: Part,
    group: str,
    row: Row,
    name: str,
    entry: Mapping[str, Any],
    arrays: Mapping[str, Mapping[str, Any]],
) -> Case:
    several = part.job.total > 1
    label = (
        f"{name} [{row['iteration']}{'.' + str(row['repeat']) if row['repeat'] else ''}]"
        if several
        else name
    )
    return _case(part, group, row, label, entry, arrays, entry["outcome"])


def _case(
    part: Part,
    group: str,
    row: Row,
    name: str,
    entry: Mapping[str, Any],
    outputs: Mapping[str, Mapping[str, Any]],
    outcome: str | None,
) -> Case:
    verdict = Verdict(entry["verdict"])
    status = status_of(verdict.value, outcome)
    own_message = str(entry.get("message") or "")
    explanation = (
        ""
        if verdict in (Verdict.pass_, Verdict.not_judged)
        else f"{verdict.label}: {verdict.sentence}"
    )
    first_line = own_message.strip().partition("\n")[0]
    message = explanation
    if status is not Status.passed:
        message = explanation or first_line or outcome or verdict.label
    numbers = [
        f"{output}: {_numbers(judged)}"
        for output, judged in outputs.items()
        if output and judged["verdict"] != Verdict.pass_.value
    ]
    rerun = (
        []
        if status is Status.passed or part.job.kind is not JobKind.seeds
        else [f"again: {_check_command(part, row, outputs)}"]
    )
    facts = {
        "job": part.job.id,
        "build": part.job.build,
        "verdict": verdict.value,
        "explanation": entry.get("explanation"),
        **({} if outcome is None else {"outcome": outcome}),
        **_arithmetic(outputs),
        **{
            key: row[key]
            for key in ("seed", "iteration", "repeat", "device")
            if row.get(key) is not None
        },
    }
    line = entry.get("line")
    return Case(
        name=name,
        group=group,
        status=status,
        verdict=verdict.value,
        duration_ms=entry.get("duration_ms"),
        message=message,
        text="\n".join(filter(None, (own_message, *numbers, *rerun))),
        facts=facts,
        file=entry.get("file") if isinstance(entry.get("file"), str) else None,
        line=line if isinstance(line, int) and not isinstance(line, bool) else None,
    )


def _arithmetic(outputs: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return the arithmetics that explain outputs, and what each could not have seen, in words."""
    judged = {output.rpartition("/")[2]: entry for output, entry in outputs.items()}
    names = [
        f"{output}: {entry['arithmetic']}"
        for output, entry in judged.items()
        if entry.get("arithmetic") and entry["explanation"] == Explanation.explained
    ]
    limits = [
        f"{output}: {', '.join(entry['detection_limits'])}"
        for output, entry in judged.items()
        if entry.get("detection_limits")
    ]
    return {
        **({"arithmetic": "; ".join(names)} if names else {}),
        **({"detection_limits": "; ".join(limits)} if limits else {}),
    }


def _numbers(judged: Mapping[str, Any]) -> str:
    values = [
        f"{name} {judged[name]:.4g}" for name in ALWAYS if isinstance(judged.get(name), int | float)
    ]
    return ", ".join((f"{Verdict(judged['verdict']).label}, {judged['explanation']}", *values))


def _check_command(part: Part, row: Row, outputs: Mapping[str, Any]) -> str:
    job = part.job
    number = row["iteration"] if row.get("iteration") is not None else row["seed"]
    worst = next(
        (
            name
            for name, judged in outputs.items()
            if name and judged["verdict"] != Verdict.pass_.value
        ),
        "",
    )
    return check_line(
        job.test,
        build=job.build,
        executor=job.target.executor,
        seed=number,
        output=worst.rpartition("/")[2],
        reference=job.reference,
        repeats=row["repeat"] + 1,
    )
