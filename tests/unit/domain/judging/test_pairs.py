"""The comparison of two builds: it decides *within*, and says which build rounding explains."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gonogo.arithmetic.formats import round_to
from gonogo.errors import KernelOutputError
from gonogo.judging.flip_summary import pooled
from gonogo.judging.judging import SeedJudgement, judge
from gonogo.judging.pairs import Reference, compare, words
from gonogo.spec.test_spec import TestSpec
from gonogo.workloads import exact_outputs
from numeric_cases import Case, spec

CORRECT = Reference("other", "tt-train")


def pair(
    case: Case,
    outputs: dict[str, Any],
    reference_outputs: dict[str, Any],
    reference: Reference = CORRECT,
    **options: Any,
) -> SeedJudgement:
    options = {"arithmetic": reference.arithmetic, "with_limits": False} | options
    alone = judge(case.test, case.raw, case.given, outputs, **options)
    return compare(case.test, alone, case.raw, case.given, outputs, reference_outputs, reference)


def entry(judgement: SeedJudgement, output: str) -> dict[str, Any]:
    reference_entry: dict[str, Any] = judgement.outputs[output].statistics["reference"]
    return reference_entry


def copied(outputs: dict[str, Any]) -> dict[str, Any]:
    return {name: array.copy() for name, array in outputs.items()}


def backward_case(tolerance: dict[str, Any] | None = None) -> Case:
    fields = {"tolerance": tolerance or {"rtol": 1e-3, "atol": 0.5}}
    return Case.of(TestSpec.parse({"kernel": "layernorm_bw", "shape": [64, 256], **fields}))


def test_each_build_has_its_own_explanation_and_arithmetic() -> None:
    case = Case.of(spec("layernorm_fw", (64, 416)))
    rounded = {
        name: round_to(values, "bf16").astype(np.float32)
        for name, values in exact_outputs(case.test, case.given).items()
    }
    judgement = pair(case, case.emulated(), rounded, Reference("other"), arithmetic="tt-train")
    assert judgement.verdict == "pass"
    assert words(judgement) is None
    assert "tt-train" in judgement.arithmetic
    for output in case.test.outputs:
        reference_entry = entry(judgement, output)
        assert reference_entry["build"] == "other"
        assert (reference_entry["explanation"], reference_entry["within"]) == ("explained", True)
        arithmetic = judgement.outputs[output].statistics["arithmetic"]
        assert reference_entry["arithmetic"] not in (None, arithmetic)


def test_a_wrong_build_is_told_from_a_wrong_reference() -> None:
    case = backward_case()
    right, wrong = case.emulated(), case.emulated("double-subtract")
    for outputs, reference_outputs, verdict, sentence in (
        (wrong, right, "pass_by_tolerance", "dx: rounding explains other, not this build (they"),
        (right, wrong, "pass", "dx: rounding explains this build, not other (they differ by up to"),
        (wrong, wrong, "pass_by_tolerance", "dx: rounding explains neither this build nor other"),
    ):
        judgement = pair(case, outputs, reference_outputs)
        assert judgement.verdict == judgement.outputs["dx"].verdict == verdict
        assert judgement.outputs["dgamma"].verdict == "pass"
        assert entry(judgement, "dx")["explanation"] == (
            "explained" if reference_outputs is right else "unexplained"
        )
        assert (words(judgement) or "").startswith(sentence)
    assert entry(judgement, "dx")["max_abs"] == 0  # alike, and both wrong


def test_within_is_asked_of_the_reference_builds_output() -> None:
    case = backward_case({"rtol": 0, "atol": 0})
    right = case.emulated()
    alone = judge(case.test, case.raw, case.given, right, arithmetic="tt-train")
    assert alone.verdict != "pass"  # against float64 it is red
    same = pair(case, right, copied(right))
    assert entry(same, "dx")["within"] is True
    assert entry(same, "dx")["tolerance_ratio"] == 0
    assert same.outputs["dx"].statistics["tolerance_ratio"] is None  # against float64 it is x / 0
    nearly = copied(right)
    nearly["dx"][0, 0] *= np.float32(1 + 2.0**-7)
    differing = pair(case, right, nearly)
    assert entry(differing, "dx")["within"] is False
    assert entry(differing, "dx")["nonfinite_statistics"] == {"tolerance_ratio": "inf"}


def test_numbers_say_how_far_two_builds_are_apart() -> None:
    case = backward_case()
    right = case.emulated()
    other = copied(right)
    where = np.abs(other["dx"]).argmax()
    value = other["dx"].flat[where]
    other["dx"].flat[where] = value * np.float32(1 + 2.0**-7)
    reference_entry = entry(pair(case, right, other), "dx")
    step = abs(float(other["dx"].flat[where]) - float(value))
    assert reference_entry["max_abs"] == pytest.approx(step)
    assert reference_entry["mismatch_fraction"] == pytest.approx(1 / other["dx"].size)
    assert 0.5 <= reference_entry["ulp_max"] <= 2
    assert reference_entry["flips"]["differing"] == 1


@pytest.mark.parametrize(
    ("side", "verdict", "answers"),
    [
        ("build", "fail", ("unexplained", "explained")),
        ("reference", "fail_by_tolerance", ("explained", "unexplained")),
    ],
)
def test_nan_of_one_build_is_outside_every_tolerance_and_is_its_own(
    side: str, verdict: str, answers: tuple[str, str]
) -> None:
    case = backward_case()
    sides = {"build": case.emulated(), "reference": copied(case.emulated())}
    sides[side]["dx"][3, 5] = np.nan
    judgement = pair(case, sides["build"], sides["reference"])
    assert judgement.verdict == verdict
    assert (judgement.outputs["dx"].explanation, entry(judgement, "dx")["explanation"]) == answers
    assert entry(judgement, "dx")["nonfinite"] == 1
    assert judgement.outputs["dgamma"].verdict == "pass"


def test_equal_infinities_are_no_difference() -> None:
    case = backward_case()
    outputs = copied(case.emulated())
    outputs["dx"][3, 5:7] = np.inf, np.nan
    reference_entry = entry(pair(case, outputs, copied(outputs)), "dx")
    assert (reference_entry["nonfinite"], reference_entry["mismatch_fraction"]) == (0, 0)
    assert reference_entry["within"] is True


def test_an_output_that_the_reference_does_not_produce_is_judged_against_float64_alone() -> None:
    case = backward_case()
    right = case.emulated()
    judgement = pair(case, right, {"dx": right["dx"]}, Reference("other", "tt-train", ("dx",)))
    assert "reference" in judgement.outputs["dx"].statistics
    assert "reference" not in judgement.outputs["dgamma"].statistics
    with pytest.raises(KernelOutputError, match="dgamma"):
        pair(case, right, {"dx": right["dx"]})


def test_a_downstream_output_shows_its_difference_and_counts_for_nothing() -> None:
    case = Case.of(spec("layernorm_fw", (8, 64)))
    produced = ("linear", "mean", "rstd", "y")
    outputs = case.emulated() | {"linear": np.full((8, 64), 2, np.float32)}
    reference_outputs = case.emulated() | {"linear": np.full((8, 64), 2 + 2.0**-6, np.float32)}
    reference = Reference("other", "tt-train", produced)
    judgement = pair(case, outputs, reference_outputs, reference, produced=produced)
    assert judgement.verdict == "pass"
    assert judgement.outputs["linear"].verdict == "not_judged"
    reference_entry = entry(judgement, "linear")
    names = ("explanation", "within", "arithmetic", "max_abs", "ulp_max", "mismatch_fraction")
    assert [reference_entry[name] for name in names] == [
        "not_judged",
        None,
        None,
        2.0**-6,
        1.0,
        1.0,
    ]
    assert "linear" not in pair(case, outputs, reference_outputs).outputs


def test_flips_are_counted_for_each_common_output_and_decide_no_verdict() -> None:
    case = Case.of(spec("layernorm_fw", (64, 416)))
    right = case.emulated()
    moved = copied(right) | {"y": round_to(right["y"] * (1 + 2e-3), "bf16").astype(np.float32)}
    judgement = pair(case, right, moved)
    assert judgement.verdict == pair(case, right, right).verdict == "pass"
    (mean, rstd, y) = pooled(
        {name: [entry(judgement, name)["flips"]] for name in case.test.outputs}
    )
    assert (mean.differing, rstd.differing) == (0, 0)
    assert (y.one_way, y.away) == (True, 0)
