"""The diagnosis of a seed says what its stored outputs show, and accuses no right one."""

from __future__ import annotations

from typing import Any

import pytest

from gonogo.spec.diagnoses import JobDiagnosis, diagnosis_of, sentence_of

FAULT = "s1 is subtracted twice: explains 99.9 % of the misfit"
EXACT = {"mismatches": 3, "words": "gamma is missing", "fault": "missing:gamma"}
PLACES = "32 of 64 values are off, in rows 0 to 31 (counted from 0)."


def entry(explanation: str = "unexplained", **more: Any) -> dict[str, Any]:
    known = {"reason": "rounding does not explain it", "places": PLACES, "fault": None}
    return {"explanation": explanation, **known, **more}


@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        (entry(fault=FAULT), FAULT),
        (entry(), f"rounding does not explain it; {PLACES[:-1]}"),
        (entry(places=""), "rounding does not explain it"),
        (entry(fault=FAULT, exact=EXACT), "gamma is missing"),
        (entry(fault=FAULT, exact={**EXACT, "mismatches": 0}), FAULT),
        (entry("suspect", fault=FAULT), f"more seeds decide; so far {FAULT}"),
        (entry("inconclusive", places=None), "rounding does not explain it"),
        (entry("explained", fault=FAULT, exact=EXACT), ""),
        (entry("not_judged"), ""),
        ({"explanation": "unexplained", "outcome": "failed"}, ""),
    ],
)
def test_an_output_has_one_sentence(output: dict[str, Any], sentence: str) -> None:
    assert sentence_of(output) == sentence


def test_a_seed_s_diagnosis_joins_those_of_its_wrong_outputs() -> None:
    outputs = {
        "dx": entry(fault=FAULT),
        "dbeta": entry("explained"),
        "dgamma": entry(exact=EXACT),
        "mean": entry(places=""),
    }
    assert diagnosis_of(outputs) == JobDiagnosis(
        words=f"dgamma: gamma is missing; dx: {FAULT}; mean: rounding does not explain it",
        can_tell=True,
        faults={"dgamma": "gamma is missing", "dx": FAULT},
    )


def test_without_a_named_fault_it_can_t_tell_what_is_wrong() -> None:
    unnamed = {**EXACT, "words": "3 elements differ", "fault": None}
    diagnosis = diagnosis_of({"dx": entry(), "dgamma": entry(exact=unnamed)})
    assert diagnosis is not None
    assert (diagnosis.can_tell, diagnosis.faults) == (False, {})
    assert diagnosis.words is not None
    assert diagnosis.words.startswith("dgamma: 3 elements differ; dx: rounding")


def test_right_outputs_need_none() -> None:
    assert diagnosis_of({"dx": entry("explained"), "y": entry("not_judged")}) is None
    assert diagnosis_of({}) is None
