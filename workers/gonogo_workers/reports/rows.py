"""The result row of one iteration of a selection.

It has an entry per test, and one per output of the arrays that a test handed over. A test's entry
has its `outcome` (green or red, as the test itself reports) beside the verdict, because without
arrays a test is `not_judged` either way. With arrays it is judged in full: the numbers say whether
rounding explains the error. The verdict compares that with the declared tolerance, or where none is
declared with the test's own green or red.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Annotated, Any, TypeGuard

from pydantic import ConfigDict, Field

from gonogo import fields
from gonogo.errors import FieldError, JobError
from gonogo.judging.judging import SeedJudgement
from gonogo.judging.stored_tensors import Tensors
from gonogo.reports.forms import MAX_COUNT, MAX_INTEGER
from gonogo.reports.outcomes import OTHER_REASON, WITHOUT_ARRAYS, ArraysVerdict, Outcome, verdict_of
from gonogo.reports.texts import MAX_MESSAGE_CHARS, MAX_NAME_CHARS, Entries, clean, short_name
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.validation import Model, checked
from gonogo.spec.verdicts import JUDGE, Explanation, Verdict, worst, worst_explanation
from gonogo_workers.messages.chunk import Work
from gonogo_workers.messages.rows import Place, Row, head, plain

MAX_REPORTS = 20_000
MAX_FAILURES = 20
MAX_MEASUREMENTS = 100
"""Measurements of a test; also its further fields, and the members of each."""


LOST = frozenset({Outcome.crash, Outcome.hang})
"""Outcomes after which nothing in the same process, or on the same device, can be trusted."""


@dataclass(frozen=True)
class JudgedDump:
    """Judged arrays of a test, or the reason why they can't be judged."""

    test: TestSpec | None
    judgement: SeedJudgement | None
    problem: str = ""
    label: str = ""
    """The prefix of its outputs' names: the test, and the dump's name if there are several."""
    given: Tensors = field(default_factory=dict)
    outputs: Tensors = field(default_factory=dict)

    @property
    def is_wrong(self) -> bool:
        """Whether rounding doesn't explain the numbers."""
        wrong = (Explanation.unexplained, Explanation.suspect)
        return self.judgement is not None and self.judgement.explanation in wrong


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _float(value: int | float, path: str = "") -> float:
    try:
        return float(value)
    except OverflowError:
        raise FieldError(path, value, "is too large", limit="up to 1.8e308") from None


def _duration(value: object) -> float | None:
    return _float(value) if _is_number(value) else None


def _numbers(given: object) -> dict[str, float]:
    """Return the first measurements that are numbers; others are left out."""
    named = fields.mapping(given or {}, "")
    measured = ((name, value) for name, value in named.items() if _is_number(value))
    return {
        clean(str(name), MAX_NAME_CHARS): _float(value, str(name))
        for name, value in islice(measured, MAX_MEASUREMENTS)
    }


class _Form(Model):
    """The fields of an executor's report; what is odd in its texts is cut or left out."""

    model_config = ConfigDict(extra="ignore")

    name: Any
    outcome: Outcome = Field(strict=False)
    duration_ms: Annotated[Any, checked(_duration)] = None
    message: Any = None
    failures: list[Any] | None = None
    measurements: Annotated[Any, checked(_numbers)] = Field({}, validate_default=True)
    stage: Any = None
    dumps: list[Any] | None = None


@dataclass(frozen=True)
class Report:
    """One test of one iteration, as the child process reported it.

    It is read from untrusted JSON and cut to what a database holds.
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
    """Other fields of the executor's report, in plain JSON: shown with the entry."""

    @classmethod
    def parse(cls, data: object) -> Report:
        """Return a report from JSON. Raises FieldError for anything else."""
        if not isinstance(data, Mapping) or not isinstance(data.get("name"), str):
            raise FieldError("a report", data, "must be an object with a name")
        try:
            given = _Form.parse(data)
        except FieldError as problem:
            raise problem.at(f"test {data['name'][:100]}: {problem.field}") from None
        duration_ms = math.nan if given.duration_ms is None else given.duration_ms
        others = islice((key for key in data if key not in _Form.model_fields), MAX_MEASUREMENTS)
        return cls(
            name=short_name(given.name),
            outcome=given.outcome,
            duration_ms=duration_ms if math.isfinite(duration_ms) else None,
            message=clean(given.message or "", MAX_MESSAGE_CHARS),
            failures=tuple(
                _failure(item)
                for item in (given.failures or ())[:MAX_FAILURES]
                if isinstance(item, Mapping)
            ),
            measurements=given.measurements,
            stage=None if given.stage is None else clean(str(given.stage), MAX_NAME_CHARS),
            dumps=tuple(item for item in given.dumps or () if isinstance(item, Mapping)),
            more={clean(str(key), 100): _plain_text(data[key]) for key in others},
        )


def reports_of(data: object) -> list[Report]:
    """Return the reports of an iteration, with their names made distinct.

    Raises JobError for anything but a list of reports, or too many.
    """
    if not isinstance(data, list) or len(data) > MAX_REPORTS:
        raise JobError(f"the executor must give a list of at most {MAX_REPORTS} reports")
    try:
        parsed = [Report.parse(item) for item in data]
    except RecursionError as problem:  # the parser of JSON goes deeper than what writes it
        raise JobError("a report has too many lists or objects in one another") from problem
    reports = Entries()
    for report in parsed:
        name = reports.free(report.name)
        reports[name] = replace(report, name=name)
    return list(reports.values())


def iteration_row(
    work: Work,
    place: Place,
    duration_ms: float | None,
    reports: Sequence[Report],
    judged: Mapping[str, Sequence[JudgedDump]],
) -> Row:
    """Return the row of an iteration.

    `judged` are the arrays by the name of the test that handed them over.
    """
    outputs: dict[str, dict[str, Any]] = {}
    verdicts: list[Verdict] = []
    explanations: list[Explanation] = []
    for report in reports:
        arrays = judged.get(report.name, ())
        verdict, explanation, message = _judged(report, arrays)
        verdicts.append(verdict)
        explanations.append(explanation)
        outputs[report.name] = {
            **report.more,
            "verdict": verdict.value,
            "explanation": explanation.value,
            "outcome": report.outcome.value,
            "duration_ms": report.duration_ms,
            "message": message,
            "failures": [dict(failure) for failure in report.failures],
            "measurements": dict(report.measurements),
            "nonfinite_kinds": _kinds(report.measurements),
            "stage": report.stage,
        }
        for judged_arrays in arrays:
            outputs.update(_of_arrays(judged_arrays))
    judgements = (one.judgement for arrays in judged.values() for one in arrays)
    arithmetics = {one.arithmetic for one in judgements if one is not None}
    return {
        **head(work, place, duration_ms),
        "verdict": worst(verdicts).value,
        "explanation": worst_explanation(explanations).value,
        "arithmetic": ", ".join(sorted(arithmetics)) or None,
        "judge": JUDGE if arithmetics else None,
        "message": None if reports else "no test was selected",
        "outputs": plain(outputs),
    }


def _judged(report: Report, arrays: Sequence[JudgedDump]) -> tuple[Verdict, Explanation, str]:
    """Return verdict, explanation and message of one test.

    Arrays that can't be judged are an error; otherwise gonogo.reports.outcomes.verdict_of decides.
    """
    problems = [entry.problem for entry in arrays if entry.problem]
    if problems:
        message = "\n".join(filter(None, (report.message, *problems)))
        verdict = worst((WITHOUT_ARRAYS[report.outcome], Verdict.error))
        return verdict, Explanation.not_judged, clean(message, MAX_MESSAGE_CHARS)
    array_verdicts = [
        ArraysVerdict(one.judgement.verdict, one.judgement.explanation, bool(one.test.tolerance))
        for one in arrays
        if one.test is not None and one.judgement is not None
    ]
    verdict, explanation, other_reason = verdict_of(report.outcome, array_verdicts)
    more = f"\n{OTHER_REASON}" if other_reason else ""
    return verdict, explanation, f"{report.message}{more}".strip() if more else report.message


def _of_arrays(judged: JudgedDump) -> Iterable[tuple[str, dict[str, Any]]]:
    """Yield the entries of the outputs of some arrays, named "<test>/dx"."""
    if judged.judgement is None or judged.test is None:
        return
    for output, judgement in judged.judgement.outputs.items():
        name = short_name(f"{judged.label}/{output}")
        yield name, {**judgement.to_json(), "test": judged.test.canonical()}


def _bounded(value: int | float) -> int | float | None:
    """Return a number that the service takes: a larger integer becomes a float, or null."""
    if isinstance(value, float) or abs(value) <= MAX_INTEGER:
        return value
    try:
        return float(value)
    except OverflowError:
        return None


def _failure(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return {"expression", "count", "message"} and the place of a failure."""
    count, file, line = (data.get(name) for name in ("count", "file", "line"))
    failure: dict[str, Any] = {
        "expression": clean(data.get("expression") or "", MAX_MESSAGE_CHARS // 4),
        "count": min(count, MAX_COUNT) if _is_integer(count) and count > 0 else 1,
        "message": clean(data.get("message") or "", MAX_MESSAGE_CHARS // 2),
    }
    if file is not None:
        failure["file"] = clean(str(file), MAX_MESSAGE_CHARS)
    if line is not None:
        is_number = _is_integer(line) and 0 <= line <= MAX_COUNT
        failure["line"] = line if is_number else clean(str(line), MAX_NAME_CHARS)
    return failure


def _kinds(measurements: Mapping[str, float]) -> dict[str, str]:
    """Return the kinds of the non-finite measurements, which are stored as null."""
    return {
        name: "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
        for name, value in measurements.items()
        if not math.isfinite(value)
    }


def _plain_text(value: object) -> Any:
    """Return plain JSON with clean texts, at most two levels deep."""
    if value is None or isinstance(value, bool):
        return value
    if _is_number(value):
        return _bounded(value)
    if isinstance(value, Mapping):
        return {
            clean(str(key), 100): clean(str(item), 500)
            for key, item in islice(value.items(), MAX_MEASUREMENTS)
        }
    if isinstance(value, list | tuple):
        return [
            _bounded(item) if _is_number(item) else clean(str(item), 500)
            for item in value[:MAX_MEASUREMENTS]
        ]
    return clean(str(value), MAX_MESSAGE_CHARS)
