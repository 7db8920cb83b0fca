"""A seed, or a test of an iteration, as one line of a report of tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gonogo.spec.selections import Selection, is_selection
from gonogo.spec.verdicts import Verdict
from gonogo_service.exports.parts import Part, Row
from gonogo_storage.db.states import JobKind
from gonogo_storage.flags.evidence import check_line

NUMBERS = (
    "tolerance_ratio",
    "budget_ratio",
    "chi",
    "row_z",
    "xhat_z",
    "scale_z",
    "max_abs",
    "pcc_deficit",
)


class Status(StrEnum):
    """What reports of tests know, in the words of CTRF."""

    passed = "passed"
    failed = "failed"
    skipped = "skipped"
    other = "other"  # it could not be run: nothing is said of the kernel; JUnit's <error>


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
    """A finding is a failure, a hollow pass among them: a report that shows it green would hide
    what GoNoGo is for.

    Without arrays a test is what it says of itself; a seed about which nothing is known is skipped.
    """
    said = Verdict(verdict)
    if outcome in ("error", "crash", "hang"):
        return Status.other
    if said is Verdict.not_judged:
        return (
            Status.failed
            if outcome == "failed"
            else Status.passed
            if outcome == "passed"
            else Status.skipped
        )
    return (
        Status.failed
        if outcome == "failed" and _OF_VERDICT[said] is Status.passed
        else _OF_VERDICT[said]
    )


@dataclass(frozen=True)
class Case:
    """One line."""

    name: str
    group: str
    status: Status
    verdict: str
    duration_ms: float | None
    message: str
    """One line that says why, empty for what is simply green."""
    text: str
    """Everything else that is known, with the line that runs it again."""
    facts: Mapping[str, Any]
    """verdict, explanation, seed or iteration, device, ..."""
    file: str | None = None
    line: int | None = None


def title(part: Part) -> str:
    """What the lines of a job stand under."""
    job = part.job
    if part.name is not None:
        return part.name
    if is_selection(job.canonical):
        selection = Selection.parse(job.canonical)
        return selection.suite or selection.words
    return f"{job.kernel} {'x'.join(str(length) for length in job.canonical['shape'])}"


def cases(part: Part) -> Iterator[Case]:
    """The lines of a job, in the order of its rows."""
    group = title(part)
    of_tests = is_selection(part.job.canonical)
    for row in part.rows:
        if not of_tests:
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
    """The entries of arrays by the test that handed them over: they are called "test/output" or
    "test#own name/output".
    """
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    for name, judged in outputs.items():
        if name in tests:
            continue
        label = name.rpartition("/")[0]
        owner = label if label in tests else label.rpartition("#")[0]
        found.setdefault(owner, {})[name] = judged
    return found


def _test(
    part: Part,
    group: str,
    row: Row,
    name: str,
    entry: Mapping[str, Any],
    own: Mapping[str, Mapping[str, Any]],
) -> Case:
    several = part.job.total > 1
    shown = (
        f"{name} [{row['iteration']}{'.' + str(row['repeat']) if row['repeat'] else ''}]"
        if several
        else name
    )
    return _case(part, group, row, shown, entry, own, entry["outcome"])


def _case(
    part: Part,
    group: str,
    row: Row,
    name: str,
    said: Mapping[str, Any],
    outputs: Mapping[str, Mapping[str, Any]],
    outcome: str | None,
) -> Case:
    verdict = Verdict(said["verdict"])
    status = status_of(verdict.value, outcome)
    own = str(said.get("message") or "")
    told = (
        ""
        if verdict in (Verdict.pass_, Verdict.not_judged)
        else f"{verdict.value}: {verdict.sentence}"
    )
    first = own.strip().partition("\n")[0]
    message = (
        (told or first or f"{outcome or verdict.value}") if status is not Status.passed else told
    )
    numbers = [
        f"{output}: {_numbers(judged)}"
        for output, judged in outputs.items()
        if output and judged["verdict"] != Verdict.pass_.value
    ]
    again = (
        []
        if status is Status.passed or part.job.kind is not JobKind.seeds
        else [f"again: {_again(part, row, outputs)}"]
    )
    facts = {
        "job": part.job.id,
        "build": part.job.build,
        "verdict": verdict.value,
        "explanation": said.get("explanation"),
        **({} if outcome is None else {"outcome": outcome}),
        **{
            key: row[key]
            for key in ("seed", "iteration", "repeat", "device")
            if row.get(key) is not None
        },
    }
    line = said.get("line")
    return Case(
        name=name,
        group=group,
        status=status,
        verdict=verdict.value,
        duration_ms=said.get("duration_ms"),
        message=message,
        text="\n".join(filter(None, (own, *numbers, *again))),
        facts=facts,
        file=said.get("file") if isinstance(said.get("file"), str) else None,
        line=line if isinstance(line, int) and not isinstance(line, bool) else None,
    )


def _numbers(judged: Mapping[str, Any]) -> str:
    values = [
        f"{name} {judged[name]:.4g}"
        for name in NUMBERS
        if isinstance(judged.get(name), int | float)
    ]
    return ", ".join((f"{judged['verdict']}, {judged['explanation']}", *values))


def _again(part: Part, row: Row, outputs: Mapping[str, Any]) -> str:
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
        job.canonical,
        build=job.build,
        executor=job.executor,
        seed=number,
        output=worst.rpartition("/")[2],
        reference=job.reference,
        repeats=row["repeat"] + 1,
    )
