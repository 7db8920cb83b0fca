"""The comparison of two builds.

It decides *within* and *explained*, and says which build is at fault. Its budgets don't depend on
blocks of rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gonogo.errors import FieldError, KernelOutputError
from gonogo.judging import expected, paired
from gonogo.judging.flip_summary import pooled
from gonogo.judging.judging import SeedJudgement, judge
from gonogo.judging.pairs import Reference, compare, words
from gonogo.kernels import kind, registry
from gonogo.numerics.formats import round_to
from gonogo.spec.test_spec import TestSpec
from numeric_cases import REGIMES, Case, spec

CORRECT = Reference("other", "tt-train")


def pair(
    case: Case,
    outputs: dict[str, Any],
    reference_outputs: dict[str, Any],
    reference: Reference = CORRECT,
    **options: Any,
) -> SeedJudgement:
    alone = judge(case.test, case.raw, case.given, outputs, arithmetic="tt-train", **options)
    return compare(case.test, alone, case.raw, case.given, outputs, reference_outputs, reference)


def entry(judgement: SeedJudgement, output: str) -> dict[str, Any]:
    reference_entry: dict[str, Any] = judgement.outputs[output].statistics["reference"]
    return reference_entry


def backward_case(tolerance: dict[str, Any] | None = None) -> Case:
    return Case.of(
        TestSpec.parse(
            {
                "kernel": "layernorm_bw",
                "shape": [64, 1024],
                "tolerance": tolerance or {"rtol": 1e-3, "atol": 0.5},
            }
        )
    )


@pytest.mark.parametrize("kernel", ["layernorm_fw", "layernorm_bw"])
def test_two_right_builds_of_other_arithmetic_are_explained(kernel: str) -> None:
    fields = {"numerics": {"srcb": "bf16"}}
    case, other = Case.of(spec(kernel, (64, 416))), Case.of(spec(kernel, (64, 416), **fields))
    judgement = pair(case, case.emulated(), other.emulated())
    assert judgement.verdict == "pass"
    assert words(judgement) is None
    for output in case.test.outputs:
        reference_entry = entry(judgement, output)
        assert reference_entry["build"] == "other"
        assert (reference_entry["explanation"], reference_entry["within"]) == ("explained", True)
        assert reference_entry["against_float64"]["explanation"] == "explained"


def test_a_wrong_build_is_told_from_a_wrong_reference() -> None:
    case = backward_case()
    right, wrong = case.emulated(), case.emulated("double-subtract")
    for outputs, reference_outputs, wrong_side in (
        (wrong, right, "this build"),
        (right, wrong, "the reference"),
    ):
        judgement = pair(case, outputs, reference_outputs)
        assert (judgement.verdict, judgement.outputs["dx"].verdict) == (
            "pass_by_tolerance",
            "pass_by_tolerance",
        )
        assert judgement.outputs["dgamma"].verdict == "pass"
        assert entry(judgement, "dx")["explanation"] == "unexplained"
        assert entry(judgement, "dx")["against_float64"]["explanation"] == (
            "explained" if wrong_side == "this build" else "unexplained"
        )
        sentence = words(judgement)
        assert sentence is not None
        assert sentence.startswith("dx differs from other (")
        assert f"rounding doesn't explain {wrong_side} against float64" in sentence
    both = pair(case, wrong, wrong)
    assert both.verdict == "pass_by_tolerance"  # they are alike, and both are wrong
    assert entry(both, "dx")["max_abs"] == 0
    assert words(both) is None


def test_within_is_asked_of_the_reference_builds_output() -> None:
    case = backward_case({"rtol": 0, "atol": 0})
    right = case.emulated()
    assert (
        judge(case.test, case.raw, case.given, right, arithmetic="tt-train").verdict
        == "fail_by_tolerance"
    )
    same = pair(case, right, {name: array.copy() for name, array in right.items()})
    assert same.verdict == "pass"
    assert entry(same, "dx")["tolerance_ratio"] == 0
    assert same.outputs["dx"].statistics["tolerance_ratio"] is None  # against float64 it is x / 0
    nearly = {name: array.copy() for name, array in right.items()}
    nearly["dx"][0, 0] *= np.float32(1 + 2.0**-7)
    assert pair(case, right, nearly).verdict == "fail_by_tolerance"


def test_numbers_say_how_far_two_builds_are_apart() -> None:
    case = backward_case()
    right = case.emulated()
    other = {name: array.copy() for name, array in right.items()}
    where = np.abs(other["dx"]).argmax()
    value = other["dx"].flat[where]
    other["dx"].flat[where] = value * np.float32(1 + 2.0**-7)
    reference_entry = entry(pair(case, right, other), "dx")
    step = abs(float(other["dx"].flat[where]) - float(value))
    assert reference_entry["max_abs"] == pytest.approx(step)
    assert reference_entry["mismatch_fraction"] == pytest.approx(1 / other["dx"].size)
    assert 0.5 <= reference_entry["ulp_max"] <= 2
    assert reference_entry["worst_index"] == [where // 1024, where % 1024]
    assert not {"digest", "outliers", "tolerance_ratio_quantised"} & set(reference_entry)


@pytest.mark.parametrize("side", ["build", "reference"])
def test_nan_on_either_side_is_not_explained(side: str) -> None:
    case = backward_case()
    sides = {
        "build": case.emulated(),
        "reference": {name: array.copy() for name, array in case.emulated().items()},
    }
    sides[side]["dx"][3, 5] = np.nan
    judgement = pair(case, sides["build"], sides["reference"])
    assert judgement.verdict == "fail"
    assert entry(judgement, "dx")["nonfinite"] == 1
    assert entry(judgement, "dx")["worst_index"] == [3, 5]
    assert judgement.outputs["dgamma"].verdict == "pass"


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
    alone = judge(
        case.test, case.raw, case.given, outputs, arithmetic="tt-train", produced=produced
    )
    assert (alone.verdict, alone.outputs["linear"].verdict) == ("pass", "not_judged")
    assert alone.outputs["linear"].statistics["count"] == 512
    judgement = pair(
        case,
        outputs,
        reference_outputs,
        Reference("other", "tt-train", produced),
        produced=produced,
    )
    assert judgement.verdict == "pass"
    reference_entry = entry(judgement, "linear")
    assert (
        reference_entry["explanation"],
        reference_entry["within"],
        reference_entry["against_float64"],
    ) == (
        "not_judged",
        None,
        None,
    )
    assert (
        reference_entry["max_abs"],
        reference_entry["ulp_max"],
        reference_entry["mismatch_fraction"],
    ) == (2.0**-6, 1.0, 1.0)
    assert "budget_ratio" not in reference_entry
    assert (
        "linear"
        not in judge(case.test, case.raw, case.given, outputs, arithmetic="tt-train").outputs
    )


@pytest.mark.parametrize("kernel", ["layernorm_fw", "layernorm_bw"])
@pytest.mark.parametrize("own_statistics", [False, True])
@pytest.mark.parametrize("arithmetic", ["tt-train", "torch", None])
def test_budgets_in_blocks_are_those_of_the_whole(
    monkeypatch: pytest.MonkeyPatch, kernel: str, own_statistics: bool, arithmetic: str | None
) -> None:
    monkeypatch.setattr(kind, "ELEMENTS_IN_CACHE", 7 * 100)
    numerics = {"statistics": "own"} if own_statistics and kernel == "layernorm_bw" else {}
    case = Case.of(spec(kernel, (100, 100), numerics=numerics))
    whole = expected.expectations(case.test, case.given, arithmetic)
    block_bounds = paired.bounds(case.test, case.given, arithmetic)
    assert set(block_bounds) == set(whole)
    for name, output_bound in block_bounds.items():
        np.testing.assert_allclose(output_bound.bound, whole[name].bound, rtol=1e-9)
        np.testing.assert_allclose(output_bound.variance, whole[name].variance, rtol=1e-9)


def test_rows_that_say_nothing_are_left_out_of_the_comparison() -> None:
    case = Case.of(spec("layernorm_fw", (8, 64), inputs=dict(REGIMES["constant"])))
    judgement = pair(case, case.emulated(), case.emulated())
    assert judgement.verdict == "inconclusive"
    assert entry(judgement, "y")["rows_left_out"] == 8


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ("x", "reference"),
        ({}, "reference.build"),
        ({"build": ""}, "reference.build"),
        ({"build": "a", "python": "b"}, "reference.python"),
    ],
)
def test_a_reference_of_a_message_is_checked(data: Any, field: str) -> None:
    with pytest.raises(FieldError) as caught:
        Reference.parse(data)
    assert caught.value.field == field


def test_a_reference_is_read_from_a_message() -> None:
    assert Reference.parse(None) is None
    assert Reference.parse({"build": "a"}) == Reference("a")
    assert Reference.parse(
        {"build": "a", "arithmetic": "bf16: gamma x^, x^ stored", "outputs": ["y"]}
    ) == Reference("a", "bf16: x^, gamma x^ stored", ("y",))


def test_a_model_that_has_no_budget_of_its_own_is_bounded_by_the_generic_one() -> None:
    case = backward_case()
    right = case.emulated()
    alone = judge(case.test, case.raw, case.given, right, arithmetic="generic")
    replayed = replace(alone, arithmetic="fp32-inside; 16-bit column sums")
    by_name, by_program = (
        compare(case.test, judged, case.raw, case.given, right, right, CORRECT)
        for judged in (alone, replayed)
    )
    assert entry(by_program, "dx") == entry(by_name, "dx")


def rounded(case: Case, factor: float) -> dict[str, Any]:
    """Return the exact outputs, rounded once; y is scaled before."""
    exact = registry.numerics(case.test).reference(case.test, case.given)
    return {
        name: round_to(value * (factor if name == "y" else 1.0), "bf16")
        for name, value in exact.items()
    }


def test_flips_are_counted_for_each_common_output_and_decide_no_verdict() -> None:
    case = Case.of(spec("layernorm_fw", (64, 416)))
    right, moved = rounded(case, 1.0), rounded(case, 1 + 2e-3)
    judgement = pair(case, moved, right)
    assert judgement.verdict == pair(case, right, right).verdict == "pass"
    (mean, rstd, y) = pooled(
        {name: [entry(judgement, name)["flips"]] for name in case.test.outputs}
    )
    assert (mean.differing, rstd.differing, rstd.rows) == (0, 0, 64)
    assert (y.one_way, y.toward) == (True, 0)
