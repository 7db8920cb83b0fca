"""The sentences about stored results: a seed's diagnosis, its arithmetic, and their limits."""

from __future__ import annotations

from typing import Any

import pytest

from gonogo.spec.arithmetic_words import (
    ArithmeticCount,
    of_output,
    of_results,
    shared_limits,
    unseen,
)
from gonogo.spec.diagnoses import JobDiagnosis, diagnosis_of, sentence_of

FAULT = "s1 is subtracted twice: explains 99.9 % of the misfit"
EXACT = {"mismatches": 3, "words": "gamma is missing", "fault": "missing:gamma"}
PLACES = "32 of 64 values are off, in rows 0 to 31 (counted from 0)."


def wrong(explanation: str = "unexplained", **more: Any) -> dict[str, Any]:
    known = {"reason": "rounding does not explain it", "places": PLACES, "fault": None}
    return {"explanation": explanation, **known, **more}


@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        (wrong(fault=FAULT), FAULT),
        (wrong(), f"rounding does not explain it; {PLACES[:-1]}"),
        (wrong(places=""), "rounding does not explain it"),
        (wrong(fault=FAULT, exact=EXACT), "gamma is missing"),
        (wrong(fault=FAULT, exact={**EXACT, "mismatches": 0}), FAULT),
        (wrong("suspect", fault=FAULT), f"more seeds decide; so far {FAULT}"),
        (wrong("inconclusive", places=None), "rounding does not explain it"),
        (wrong("explained", fault=FAULT, exact=EXACT), ""),
        (wrong("not_judged"), ""),
        ({"explanation": "unexplained", "outcome": "failed"}, ""),
    ],
)
def test_an_output_has_one_sentence(output: dict[str, Any], sentence: str) -> None:
    assert sentence_of(output) == sentence


def test_a_seed_s_diagnosis_joins_those_of_its_wrong_outputs() -> None:
    outputs = {"dx": wrong(fault=FAULT), "dbeta": wrong("explained"), "dgamma": wrong(exact=EXACT)}
    assert diagnosis_of({**outputs, "mean": wrong(places="")}) == JobDiagnosis(
        words=f"dgamma: gamma is missing; dx: {FAULT}; mean: rounding does not explain it",
        can_tell=True,
        faults={"dgamma": "gamma is missing", "dx": FAULT},
    )
    assert diagnosis_of({"dx": wrong("explained"), "y": wrong("not_judged")}) is None
    assert diagnosis_of({}) is None


def test_without_a_named_fault_it_can_t_tell_what_is_wrong() -> None:
    unnamed = {**EXACT, "words": "3 elements differ", "fault": None}
    diagnosis = diagnosis_of({"dx": wrong(), "dgamma": wrong(exact=unnamed)}) or JobDiagnosis()
    assert (diagnosis.can_tell, diagnosis.faults) == (False, {})
    assert str(diagnosis.words).startswith("dgamma: 3 elements differ; dx: rounding")


def entry(arithmetic: str, explanation: str = "explained", **more: Any) -> dict[str, Any]:
    return {"explanation": explanation, "arithmetic": arithmetic, **more}


LIMITED = entry("tt-train", detection_limits=["mean", "factors below 1 %"])
BLOCKED, RUNNING = entry("blocked sums"), entry("running sums")


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ([LIMITED] * 2, "tt-train; couldn't have seen: mean; factors below 1 %"),
        (
            [BLOCKED, BLOCKED, RUNNING, entry("fused", "unexplained")],
            "blocked sums in 2 of 4 seeds; running sums in 1 of 4 seeds;"
            " none explains it in 1 of 4 seeds (closest: fused)",
        ),
        (
            [entry("fused", "suspect"), entry("fused", "inconclusive")],
            "none explains it in 2 of 2 seeds (closest: fused)",
        ),
    ],
)
def test_the_arithmetics_of_an_output_are_one_line(
    entries: list[dict[str, Any]], words: str
) -> None:
    assert of_output("y", entries).words == f"arithmetic of y: {words}"


def test_an_output_names_the_arithmetic_of_most_seeds_and_what_explained_ones_hide() -> None:
    name = "bf16 operations in an unknown order"
    wide = entry(name, is_wide=True, detection_limits=["gamma"])
    other = entry("fused", "unexplained", is_wide=False, detection_limits=["gamma"])
    output = of_output("y", [other, wide, wide])
    assert (output.arithmetic, output.closest) == (name, "fused")
    assert output.counts == [ArithmeticCount(name, 2), ArithmeticCount(None, 1)]
    assert (output.seeds, output.is_wide, output.detection_limits) == (3, True, ["gamma"])
    assert not of_output("y", [other]).is_wide
    assert of_output("y", [other, other, wide]).arithmetic is None


def test_results_have_the_outputs_that_were_judged_in_their_order() -> None:
    first = {"y": entry("fused"), "mean": {"explanation": "not_judged"}}
    second = {"x": entry("fused"), "y": entry("fused")}
    outputs = of_results([{"outputs": outputs} for outputs in (first, second, {}, None)])
    assert [(output.output, output.seeds) for output in outputs] == [("y", 2), ("x", 1)]


def test_a_job_s_limits_are_those_of_all_seeds_with_the_smallest_size() -> None:
    seeds = [
        ["gamma is missing", "rstd is truncated", "factors below 1.003"],
        ["gamma is missing", "factors below 1.0003"],
        ["factors below 1.01", "gamma is missing"],
    ]
    assert shared_limits(seeds) == ("gamma is missing", "factors below 1.0003")
    assert shared_limits([["gamma is missing"], []]) == shared_limits([]) == ()


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ([], ""),
        (["a", "factors below 3 %"], "couldn't have seen: a; factors below 3 %"),
        (["a", "b", "c", "d"], "couldn't have seen: a; b; c; d"),
        ([*"abcdef", "below 3 %"], "couldn't have seen: a; b; c; 3 more faults; below 3 %"),
    ],
)
def test_a_phrase_of_limits_is_short(limits: list[str], words: str) -> None:
    assert unseen(limits) == words
