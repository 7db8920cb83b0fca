"""What one iteration of a selection becomes: a result row with an entry per test, and one per
output of the arrays that a test handed over.

An entry of a test says `outcome` (green or red, as the test itself has it) beside the verdict,
because without arrays a test is `not_judged` either way. With arrays it is judged in full: the
numbers say whether rounding explains the error, and the gate that the verdict compares with is the
declared tolerance, or where none is declared the test's own green or red.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gonogo.errors import JobError
from gonogo.judging.judging import SeedJudgement
from gonogo.reports.outcomes import OTHER_REASON, WITHOUT_ARRAYS, OfArrays, Outcome, verdict_of
from gonogo.reports.texts import MOST_MESSAGE_CHARS, MOST_NAME_CHARS, clean, short_name
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.verdicts import POLICY, Explanation, Verdict, worst, worst_explanation
from gonogo_workers.messages.chunk import Work
from gonogo_workers.messages.rows import Place, Row, head, plain

MAX_REPORTS = 20_000
MAX_FAILURES = 20
MAX_MEASUREMENTS = 100


LOST = frozenset({Outcome.crash, Outcome.hang})
"""Outcomes after which nothing in the same process, or on the same device, is to be trusted."""


@dataclass(frozen=True)
class Judged:
    """Arrays of a test, judged; or the reason why they can't be."""

    test: TestSpec | None
    judgement: SeedJudgement | None
    problem: str = ""
    label: str = ""
    """What its outputs are named after: the test, and its own name where the test hands over
    several."""


@dataclass(frozen=True)
class Report:
    """One test of one iteration, as the child process told it: read from untrusted JSON, cut to
    what a database holds.
    """

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
            raise JobError(
                f"test {data['name'][:100]}: the outcome {data.get('outcome')!r} is none of {', '.join(Outcome)}"
            ) from None
        measured = data.get("measurements") or {}
        numbers = {
            str(name)[:MOST_NAME_CHARS]: float(value)
            for name, value in dict(measured).items()
            if _is_number(value)
        }
        stage, duration = data.get("stage"), data.get("duration_ms")
        known = {
            "name",
            "outcome",
            "duration_ms",
            "message",
            "failures",
            "measurements",
            "stage",
            "dumps",
        }
        return cls(
            name=short_name(data["name"]),
            outcome=outcome,
            duration_ms=float(duration)
            if isinstance(duration, int | float) and math.isfinite(duration)
            else None,
            message=clean(data.get("message") or "", MOST_MESSAGE_CHARS),
            failures=tuple(
                _failure(each)
                for each in (data.get("failures") or ())[:MAX_FAILURES]
                if isinstance(each, Mapping)
            ),
            measurements=dict(list(numbers.items())[:MAX_MEASUREMENTS]),
            stage=None if stage is None else clean(str(stage), MOST_NAME_CHARS),
            dumps=tuple(each for each in data.get("dumps") or () if isinstance(each, Mapping)),
            more={
                clean(str(key), 100): _plain_text(value)
                for key, value in data.items()
                if key not in known
            },
        )


def reports_of(data: object) -> list[Report]:
    """The reports of an iteration, their names made distinct. Raises JobError for what isn't a list
    of reports, or is too long.
    """
    if not isinstance(data, list) or len(data) > MAX_REPORTS:
        raise JobError(f"the executor must give a list of at most {MAX_REPORTS} reports")
    found: list[Report] = []
    seen: dict[str, int] = {}
    for each in map(Report.parse, data):
        count = seen[each.name] = seen.get(each.name, 0) + 1
        found.append(
            each if count == 1 else replace(each, name=short_name(f"{each.name} ({count})"))
        )
    return found


def iteration_row(
    work: Work,
    place: Place,
    duration_ms: float | None,
    reports: Sequence[Report],
    judged: Mapping[str, Sequence[Judged]],
) -> Row:
    """The row of an iteration. `judged` are the arrays by the name of the test that handed them
    over.
    """
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
            **{
                name: value
                for name, value in report.more.items()
                if name not in ("verdict", "explanation")
            },
        }
        for each in arrays:
            outputs.update(_of_arrays(each))
    arithmetics = {
        each.judgement.arithmetic
        for arrays in judged.values()
        for each in arrays
        if each.judgement is not None
    }
    return {
        **head(work, place, duration_ms),
        "verdict": worst(verdicts).value,
        "explanation": worst_explanation(explanations).value,
        "arithmetic": ", ".join(sorted(arithmetics)) or None,
        "policy": POLICY.version if arithmetics else None,
        "message": None if reports else "no test was selected",
        "outputs": plain(outputs),
    }


def _judged(report: Report, arrays: Sequence[Judged]) -> tuple[Verdict, Explanation, str]:
    """Verdict, explanation and message of one test.

    What can't be judged is an error; everything else is as gonogo.reports.outcomes.verdict_of says.
    """
    problems = [each.problem for each in arrays if each.problem]
    if problems:
        message = "\n".join(filter(None, (report.message, *problems)))
        return (
            worst((WITHOUT_ARRAYS[report.outcome], Verdict.error)),
            Explanation.not_judged,
            message[:MOST_MESSAGE_CHARS],
        )
    known = [
        (each.test, each.judgement)
        for each in arrays
        if each.test is not None and each.judgement is not None
    ]
    told = [
        OfArrays(judgement.verdict, judgement.explanation, bool(test.tolerance))
        for test, judgement in known
    ]
    said, explanation, otherwise = verdict_of(report.outcome, told)
    return (
        said,
        explanation,
        f"{report.message}\n{OTHER_REASON}".strip() if otherwise else report.message,
    )


def _of_arrays(judged: Judged) -> Iterable[tuple[str, dict[str, Any]]]:
    """The entries of the outputs of some arrays, named "<test>/dx"."""
    if judged.judgement is None or judged.test is None:
        return
    for output, found in judged.judgement.outputs.items():
        yield (
            short_name(f"{judged.label}/{output}"),
            {**found.to_json(), "test": judged.test.canonical()},
        )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _failure(data: Mapping[str, Any]) -> dict[str, Any]:
    """{"expression", "count", "message"} and where it stands."""
    count = data.get("count")
    found: dict[str, Any] = {
        "expression": clean(data.get("expression") or "", MOST_MESSAGE_CHARS // 4),
        "count": count
        if isinstance(count, int) and not isinstance(count, bool) and count > 0
        else 1,
        "message": clean(data.get("message") or "", MOST_MESSAGE_CHARS // 2),
    }
    return found | {
        name: _plain_text(data[name]) for name in ("file", "line") if data.get(name) is not None
    }


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
        return {
            clean(str(key), 100): clean(str(each), 500)
            for key, each in list(value.items())[:MAX_MEASUREMENTS]
        }
    if isinstance(value, list | tuple):
        return [
            each if _is_number(each) else clean(str(each), 500)
            for each in value[:MAX_MEASUREMENTS]
        ]
    return clean(str(value), MOST_MESSAGE_CHARS)
