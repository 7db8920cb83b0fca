"""From a report to the rows of a job: one for each iteration, as a worker sends them, verdicts made
from outcomes and numbers.

No NumPy: the service reads reports, and does without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gonogo.errors import FieldError
from gonogo.reports.cases import MOST_OF_ITERATION, Case, Comparison, TestReport
from gonogo.reports.outcomes import OTHER_REASON, WITHOUT_ARRAYS, OfArrays, verdict_of
from gonogo.reports.texts import MOST_MESSAGE_CHARS, short_name
from gonogo.spec.verdicts import (
    POLICY,
    Explanation,
    Verdict,
    explain,
    verdict,
    within,
    worst,
    worst_explanation,
)

Row = dict[str, Any]
Entries = dict[str, dict[str, Any]]
Iteration = tuple[int, int]


def rows_of(report: TestReport) -> list[Row]:
    """Return a row for each (iteration, repeat), in order; of a report without tests one that says so.
    Raises FieldError for too many tests.
    """
    found: dict[Iteration, list[Case]] = {}
    for case in report.cases:
        found.setdefault((case.seed or 0, case.repeat), []).append(case)
    for iteration, cases in found.items():
        if len(cases) > MOST_OF_ITERATION:
            raise FieldError(
                "tests",
                len(cases),
                f"too many tests in iteration {iteration[0]}",
                limit=str(MOST_OF_ITERATION),
            )
    return [_row(iteration, found[iteration]) for iteration in sorted(found)] or [_row((0, 0), [])]


def _row(iteration: Iteration, cases: Sequence[Case]) -> Row:
    outputs: Entries = {}
    verdicts: list[Verdict] = []
    explanations: list[Explanation] = []
    for case in cases:
        name = _free(short_name(case.name), outputs)
        outputs[name] = {}  # its place is before those of its arrays
        said, explanation, message = _judged(case, name, outputs)
        verdicts.append(said)
        explanations.append(explanation)
        outputs[name] = {
            "verdict": said.value,
            "explanation": explanation.value,
            "outcome": case.outcome.value,
            "duration_ms": case.duration_ms,
            "message": message,
            "failures": [dict(each) for each in case.failures],
            "measurements": dict(case.measurements),
            **case.more,
            **({} if case.seed is None else {"seed": case.seed}),
        }
    judged = [
        each
        for case in cases
        for each in case.comparisons
        if each.test is not None and each.outputs
    ]
    times = [case.duration_ms for case in cases if case.duration_ms is not None]
    return {
        "seed": iteration[0],
        "repeat": iteration[1],
        "device": None,
        "host_run": None,
        "position": None,
        "duration_ms": round(sum(times), 4) if times else None,
        "verdict": worst(verdicts).value,
        "explanation": worst_explanation(explanations).value,
        "arithmetic": ", ".join(sorted({each.arithmetic or "generic" for each in judged})) or None,
        "policy": POLICY.version if judged else None,
        "message": None if cases else "the file holds no test",
        "outputs": outputs,
    }


def _judged(case: Case, name: str, outputs: Entries) -> tuple[Verdict, Explanation, str]:
    """Verdict, explanation and message of one test; the entries of its arrays are put beside its
    own.
    """
    arrays: list[OfArrays] = []
    words = [case.message]
    for comparison, label in zip(case.comparisons, _labels(name, case.comparisons), strict=True):
        words += [comparison.problem, comparison.words]
        if found := _compared(comparison, label, outputs):
            arrays.append(found)
    said, explanation, otherwise = verdict_of(case.outcome, arrays)
    if any(each.problem for each in case.comparisons):
        said, explanation, otherwise = (
            worst((WITHOUT_ARRAYS[case.outcome], Verdict.error)),
            Explanation.not_judged,
            False,
        )
    message = "\n".join(filter(None, (*words, OTHER_REASON if otherwise else "")))
    return said, explanation, message[:MOST_MESSAGE_CHARS]


def _compared(comparison: Comparison, label: str, outputs: Entries) -> OfArrays | None:
    """Judge the numbers of one comparison, as gonogo.judging.judging judges arrays; None where there is no
    spec, or no number.
    """
    test = comparison.test
    judged: list[tuple[bool, Explanation]] = []
    for output, statistics in comparison.outputs.items():
        key = _free(short_name(f"{label}/{output}"), outputs)
        if test is None or output in test.downstream:
            gate = {"tolerance": dict(comparison.tolerance)} if comparison.tolerance else {}
            outputs[key] = {
                "verdict": Verdict.not_judged.value,
                "explanation": Explanation.not_judged.value,
                **statistics,
                **gate,
            }
            continue
        is_within, explanation = within(test.tolerance_for(output), statistics), explain(statistics)
        judged.append((is_within, explanation))
        said = {"verdict": verdict(is_within, explanation).value, "explanation": explanation.value}
        outputs[key] = {**said, **statistics, "test": test.canonical()}
    if test is None or not judged:
        return None
    explanation = worst_explanation(each for _, each in judged)
    return OfArrays(
        verdict(all(each for each, _ in judged), explanation), explanation, bool(test.tolerance)
    )


def _labels(name: str, comparisons: Sequence[Comparison]) -> list[str]:
    """What the arrays of a test are called: as the test, when there are some once; else by their
    own names, else numbered.
    """
    if len(comparisons) == 1:
        return [name]
    found: list[str] = []
    for number, each in enumerate(comparisons, 1):
        own = f"{name}#{each.name or number}"
        found.append(own if own not in found else f"{own} ({number})")
    return found


def _free(name: str, taken: Mapping[str, Any]) -> str:
    """Return the name, numbered when another test of the iteration has it: what reports the same name
    twice loses nothing.
    """
    number, found = 1, name
    while found in taken:
        number += 1
        found = short_name(f"{name} ({number})")
    return found
