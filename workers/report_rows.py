"""What one iteration of a selection becomes: a result row with an entry per test, and one per output of the arrays that a test handed over.

An entry of a test says `outcome` (green or red, as the test itself has it) beside the verdict, because without arrays a test is `unjudged`
either way. With arrays it is judged in full: the numbers say whether rounding explains the error, and the gate that the verdict compares
with is the declared tolerance, or where none is declared the test's own green or red.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from gonogo.judging import SeedJudgement
from gonogo.problems import JobError
from gonogo.tests import TestSpec
from gonogo.verdicts import POLICY, Explanation, Verdict, verdict, worst, worst_explanation
from workers.chunk import Work
from workers.rows import MOST_MESSAGE_CHARS, Place, Row, head, plain

MOST_REPORTS = 20_000
MOST_NAME_CHARS = 400
"""A name is part of a key: PostgreSQL's index holds no longer ones."""
MOST_FAILURES = 20
MOST_MEASUREMENTS = 100


class Outcome(StrEnum):
    """What a test says of itself."""

    error = "error"
    """It could not be run, or not be judged."""
    crash = "crash"
    """Its process ended in the middle of it."""
    hang = "hang"
    """It did not end within its deadline."""
    failed = "failed"
    """Red."""
    skipped = "skipped"
    """It skipped itself, is disabled, or was not run because of another one."""
    absent = "absent"
    """It is not in this build."""
    passed = "passed"
    """Green."""


_WITHOUT_ARRAYS = {
    Outcome.error: Verdict.error,
    Outcome.crash: Verdict.crash,
    Outcome.hang: Verdict.hang,
    Outcome.failed: Verdict.unjudged,
    Outcome.skipped: Verdict.skipped,
    Outcome.absent: Verdict.absent,
    Outcome.passed: Verdict.unjudged,
}
_OTHER_REASON = "The arrays are within their tolerance, and rounding explains them: it is red for a reason that they don't show."
LOST = frozenset({Outcome.crash, Outcome.hang})
"""Outcomes after which nothing in the same process, or on the same device, is to be trusted."""


@dataclass(frozen=True)
class Judged:
    """Arrays of a test, judged; or the reason why they can't be."""

    test: TestSpec | None
    judgement: SeedJudgement | None
    problem: str = ""
    label: str = ""
    """What its outputs are named after: the test, and its own name where the test hands over several."""


@dataclass(frozen=True)
class Report:
    """One test of one iteration, as the child process told it: read from untrusted JSON, cut to what a database holds."""

    name: str
    outcome: Outcome
    duration_ms: float | None
    message: str
    failures: tuple[Mapping[str, Any], ...]
    measurements: Mapping[str, float]
    stage: str | None
    dumps: tuple[Mapping[str, Any], ...]
    more: Mapping[str, Any]
    """What else the executor says of it, in plain JSON: shown with the entry."""

    @classmethod
    def parse(cls, data: object) -> Report:
        """Raises JobError for something that is no report."""
        if not isinstance(data, Mapping) or not isinstance(data.get("name"), str):
            raise JobError(f"a report must be an object with a name; got {str(data)[:100]}")
        try:
            outcome = Outcome(str(data.get("outcome")))
        except ValueError:
            raise JobError(f"test {data['name'][:100]}: the outcome {data.get('outcome')!r} is none of {', '.join(Outcome)}") from None
        measured = data.get("measurements") or {}
        numbers = {str(name)[:MOST_NAME_CHARS]: float(value) for name, value in dict(measured).items() if _is_number(value)}
        stage, duration = data.get("stage"), data.get("duration_ms")
        known = {"name", "outcome", "duration_ms", "message", "failures", "measurements", "stage", "dumps"}
        return cls(
            name=short_name(data["name"]),
            outcome=outcome,
            duration_ms=float(duration) if isinstance(duration, int | float) and math.isfinite(duration) else None,
            message=_text(data.get("message") or "", MOST_MESSAGE_CHARS),
            failures=tuple(_failure(each) for each in (data.get("failures") or ())[:MOST_FAILURES] if isinstance(each, Mapping)),
            measurements=dict(list(numbers.items())[:MOST_MEASUREMENTS]),
            stage=None if stage is None else _text(str(stage), MOST_NAME_CHARS),
            dumps=tuple(each for each in data.get("dumps") or () if isinstance(each, Mapping)),
            more={_text(str(key), 100): _plain_text(value) for key, value in data.items() if key not in known},
        )


def reports_of(data: object) -> list[Report]:
    """The reports of an iteration, their names made distinct. Raises JobError for what isn't a list of reports, or is too long."""
    if not isinstance(data, list) or len(data) > MOST_REPORTS:
        raise JobError(f"the executor must give a list of at most {MOST_REPORTS} reports")
    found: list[Report] = []
    seen: dict[str, int] = {}
    for each in map(Report.parse, data):
        count = seen[each.name] = seen.get(each.name, 0) + 1
        found.append(each if count == 1 else replace(each, name=short_name(f"{each.name} ({count})")))
    return found


def iteration_row(
    work: Work, place: Place, duration_ms: float | None, reports: Sequence[Report], judged: Mapping[str, Sequence[Judged]]
) -> Row:
    """The row of an iteration. `judged` are the arrays by the name of the test that handed them over."""
    outputs: dict[str, dict[str, Any]] = {}
    verdicts: list[Verdict] = []
    explanations: list[Explanation] = []
    for report in reports:
        arrays = judged.get(report.name, ())
        said, explanation, message = _judged(report, arrays)
        verdicts.append(said)
        explanations.append(explanation)
        outputs[report.name] = {
            "verdict": said.value,
            "explanation": explanation.value,
            "outcome": report.outcome.value,
            "duration_ms": report.duration_ms,
            "message": message,
            "failures": [dict(each) for each in report.failures],
            "measurements": dict(report.measurements),
            "nonfinite_kinds": _kinds(report.measurements),
            "stage": report.stage,
            **{name: value for name, value in report.more.items() if name not in ("verdict", "explanation")},
        }
        for each in arrays:
            outputs.update(_of_arrays(each))
    profiles = {each.judgement.profile for arrays in judged.values() for each in arrays if each.judgement is not None}
    return {
        **head(work, place, duration_ms),
        "verdict": worst(verdicts).value,
        "explanation": worst_explanation(explanations).value,
        "profile": ", ".join(sorted(profiles)) or None,
        "policy": POLICY.version if profiles else None,
        "message": None if reports else "no test was selected",
        "outputs": plain(outputs),
    }


def _judged(report: Report, arrays: Sequence[Judged]) -> tuple[Verdict, Explanation, str]:
    """Verdict, explanation and message of one test.

    Red or green is the gate where its arrays declare no tolerance. Where they declare one, and it holds, and rounding explains the error,
    a red test is red for a reason that the arrays don't show: that is unjudged, and never a pass.
    """
    alone = _WITHOUT_ARRAYS[report.outcome]
    problems = [each.problem for each in arrays if each.problem]
    if problems:
        message = "\n".join(filter(None, (report.message, *problems)))
        return worst((alone, Verdict.error)), Explanation.unjudged, message[:MOST_MESSAGE_CHARS]
    known = [(each.test, each.judgement) for each in arrays if each.test is not None and each.judgement is not None]
    if not known:
        return alone, Explanation.unjudged, report.message
    explanation = worst_explanation(judgement.explanation for _, judgement in known)
    said = worst(judgement.verdict for _, judgement in known)
    message = report.message
    if report.outcome is Outcome.failed:
        declared = all(test.tolerance for test, _ in known)
        if explanation is Explanation.explained and declared and said is Verdict.pass_:
            said = Verdict.unjudged
            message = f"{message}\n{_OTHER_REASON}".strip()
        elif explanation is not Explanation.no_information:
            said = verdict(is_within=False, explanation=explanation)
    elif report.outcome is not Outcome.passed:
        said = worst((said, alone))
    return said, explanation, message


def _of_arrays(judged: Judged) -> Iterable[tuple[str, dict[str, Any]]]:
    """The entries of the outputs of some arrays, named "<test>/dx"."""
    if judged.judgement is None or judged.test is None:
        return
    for output, found in judged.judgement.outputs.items():
        yield short_name(f"{judged.label}/{output}"), {**found.to_json(), "test": judged.test.canonical()}


def short_name(name: str) -> str:
    """The name, cut in the middle of what is too long for a key; still distinct."""
    clean = _text(name, len(name)) or "(no name)"
    if len(clean) <= MOST_NAME_CHARS:
        return clean
    mark = hashlib.sha256(clean.encode()).hexdigest()[:8]
    return f"{clean[: MOST_NAME_CHARS - 90]}...{mark}...{clean[-70:]}"


def _text(value: object, most: int) -> str:
    """Text that any database stores: no NUL, no halves of surrogate pairs, at most so many characters."""
    clean = str(value).replace("\x00", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()
    return clean if len(clean) <= most else clean[: most // 2] + "\n...\n" + clean[-most // 2 + 5 :]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _failure(data: Mapping[str, Any]) -> dict[str, Any]:
    """{"expression", "count", "message"} and where it stands."""
    count = data.get("count")
    found: dict[str, Any] = {
        "expression": _text(data.get("expression") or "", MOST_MESSAGE_CHARS // 4),
        "count": count if isinstance(count, int) and not isinstance(count, bool) and count > 0 else 1,
        "message": _text(data.get("message") or "", MOST_MESSAGE_CHARS // 2),
    }
    return found | {name: _plain_text(data[name]) for name in ("file", "line") if data.get(name) is not None}


def _kinds(measurements: Mapping[str, float]) -> dict[str, str]:
    """The measurements that are no finite numbers, which are stored as null, by their kind."""
    return {
        name: "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
        for name, value in measurements.items()
        if not math.isfinite(value)
    }


def _plain_text(value: object) -> Any:
    """Plain JSON with clean texts, two levels deep at most."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {_text(str(key), 100): _text(str(each), 500) for key, each in list(value.items())[:MOST_MEASUREMENTS]}
    if isinstance(value, list | tuple):
        return [each if _is_number(each) else _text(str(each), 500) for each in value[:MOST_MEASUREMENTS]]
    return _text(str(value), MOST_MESSAGE_CHARS)
