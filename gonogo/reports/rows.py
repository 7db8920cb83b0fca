"""Convert a report to the rows of a job, one for each iteration, as workers send them.

Verdicts are computed from outcomes, numbers and explanations. No NumPy: the service reads reports
without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gonogo.fields import check_count
from gonogo.reports.cases import MAX_ITERATION_CASES, Case, Comparison, TestReport
from gonogo.reports.outcomes import OTHER_REASON, ArraysVerdict, verdict_of
from gonogo.reports.texts import MAX_MESSAGE_CHARS, Entries, labels, short_name
from gonogo.spec.verdicts import (
    JUDGE,
    Explanation,
    Verdict,
    seed_verdict,
    verdict,
    within,
    worst,
    worst_explanation,
)

Row = dict[str, Any]
Iteration = tuple[int, int]


def rows_of(report: TestReport) -> list[Row]:
    """Return a row for each (iteration, repeat), in order.

    A report without tests gives one row that says so. Raises FieldError for too many tests.
    """
    by_iteration: dict[Iteration, list[Case]] = {}
    for case in report.cases:
        by_iteration.setdefault((case.seed or 0, case.repeat), []).append(case)
    for iteration, cases in by_iteration.items():
        reason = f"too many tests in iteration {iteration[0]}"
        check_count(len(cases), MAX_ITERATION_CASES, "tests", reason)
    return [_row(iteration, by_iteration[iteration]) for iteration in sorted(by_iteration)] or [
        _row((0, 0), [])
    ]


def _row(iteration: Iteration, cases: Sequence[Case]) -> Row:
    outputs = Entries()
    verdicts: list[Verdict] = []
    explanations: list[Explanation] = []
    for case in cases:
        name = outputs.free(short_name(case.name))
        outputs[name] = {}  # keeps its place before those of its arrays
        case_verdict, explanation, message = _judged(case, name, outputs)
        verdicts.append(case_verdict)
        explanations.append(explanation)
        outputs[name] = {
            "verdict": case_verdict.value,
            "explanation": explanation.value,
            "outcome": case.outcome.value,
            "duration_ms": case.duration_ms,
            "message": message,
            "failures": [dict(failure) for failure in case.failures],
            "measurements": dict(case.measurements),
            **case.more,
            **({} if case.seed is None else {"seed": case.seed}),
        }
    judged = [
        comparison
        for case in cases
        for comparison in case.comparisons
        if comparison.test is not None and comparison.outputs
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
        "arithmetic": ", ".join(
            sorted({comparison.arithmetic for comparison in judged if comparison.arithmetic})
        )
        or None,
        "judge": JUDGE if judged else None,
        "message": None if cases else "the file has no tests",
        "outputs": dict(outputs),
    }


def _judged(case: Case, name: str, outputs: Entries) -> tuple[Verdict, Explanation, str]:
    """Return verdict, explanation and message of one test."""
    arrays: list[ArraysVerdict] = []
    words = [case.message]
    names = labels(name, [comparison.name for comparison in case.comparisons])
    for comparison, label in zip(case.comparisons, names, strict=True):
        words += [comparison.problem, comparison.words]
        if result := _compared(comparison, label, outputs):
            arrays.append(result)
    case_verdict, explanation, otherwise = verdict_of(case.outcome, arrays)
    message = "\n".join(filter(None, (*words, OTHER_REASON if otherwise else "")))
    return case_verdict, explanation, message[:MAX_MESSAGE_CHARS]


def _compared(comparison: Comparison, label: str, outputs: Entries) -> ArraysVerdict | None:
    """Return the verdict on one comparison, from its numbers and the explanations that it names."""
    test = comparison.test
    judged: list[tuple[bool, Explanation]] = []
    for output, statistics in comparison.outputs.items():
        key = outputs.free(short_name(f"{label}/{output}"))
        if test is None or output in test.downstream:
            gate = {"tolerance": dict(comparison.tolerance)} if comparison.tolerance else {}
            outputs[key] = {
                "verdict": Verdict.not_judged.value,
                **statistics,
                "explanation": Explanation.not_judged.value,
                **gate,
            }
            continue
        is_within = within(test.tolerance_for(output), statistics)
        explanation = Explanation(statistics.get("explanation") or Explanation.not_judged)
        judged.append((is_within, explanation))
        outputs[key] = {
            "verdict": verdict(is_within, explanation).value,
            **statistics,
            "explanation": explanation.value,
            "test": test.canonical(),
        }
    if test is None or not judged:
        return None
    return ArraysVerdict(
        seed_verdict(judged),
        worst_explanation(explanation for _, explanation in judged),
        bool(test.tolerance),
    )
