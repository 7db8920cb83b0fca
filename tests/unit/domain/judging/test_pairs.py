"""Two builds compared with each other: both questions, whose fault a difference is, and budgets
that don't depend on their blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gonogo.errors import FieldError, KernelOutputError
from gonogo.judging import expected, paired
from gonogo.judging.judging import SeedJudgement, judge
from gonogo.judging.pairs import Reference, compare, words
from gonogo.kernels.layernorm import parts
from gonogo.spec.test_spec import TestSpec
from numeric_cases import REGIMES, Case, spec

CORRECT = Reference("other", "tt-train")


def pair(
    case: Case,
    ours: dict[str, Any],
    theirs: dict[str, Any],
    reference: Reference = CORRECT,
    **options: Any,
) -> SeedJudgement:
    alone = judge(case.test, case.raw, case.given, ours, arithmetic="tt-train", **options)
    return compare(case.test, alone, case.raw, case.given, ours, theirs, reference)


def entry(found: SeedJudgement, output: str) -> dict[str, Any]:
    given: dict[str, Any] = found.outputs[output].statistics["reference"]
    return given


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
    found = pair(case, case.emulated(), other.emulated())
    assert found.verdict == "pass"
    assert words(found) is None
    for output in case.test.outputs:
        said = entry(found, output)
        assert said["build"] == "other"
        assert (said["explanation"], said["within"]) == ("explained", True)
        assert said["against_float64"]["explanation"] == "explained"


def test_a_wrong_build_is_told_from_a_wrong_reference() -> None:
    case = backward_case()
    right, wrong = case.emulated(), case.emulated("double-subtract")
    for ours, theirs, who in ((wrong, right, "this build"), (right, wrong, "the reference")):
        found = pair(case, ours, theirs)
        assert (found.verdict, found.outputs["dx"].verdict) == (
            "pass_by_tolerance",
            "pass_by_tolerance",
        )
        assert found.outputs["dgamma"].verdict == "pass"
        assert entry(found, "dx")["explanation"] == "unexplained"
        assert entry(found, "dx")["against_float64"]["explanation"] == (
            "explained" if who == "this build" else "unexplained"
        )
        said = words(found)
        assert said is not None
        assert said.startswith("dx differs from other (")
        assert f"rounding doesn't explain {who} against float64" in said
    both = pair(case, wrong, wrong)
    assert both.verdict == "pass_by_tolerance"  # alike, and both wrong
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
    assert same.outputs["dx"].statistics["tolerance_ratio"] is None  # against float64 as ever: x/0
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
    said = entry(pair(case, right, other), "dx")
    step = abs(float(other["dx"].flat[where]) - float(value))
    assert said["max_abs"] == pytest.approx(step)
    assert said["mismatch_fraction"] == pytest.approx(1 / other["dx"].size)
    assert 0.5 <= said["ulp_max"] <= 2
    assert said["worst_index"] == [where // 1024, where % 1024]
    assert not {"digest", "outliers", "tolerance_ratio_quantised"} & set(said)


@pytest.mark.parametrize("side", ["ours", "theirs"])
def test_nan_on_either_side_is_not_explained(side: str) -> None:
    case = backward_case()
    sides = {
        "ours": case.emulated(),
        "theirs": {name: array.copy() for name, array in case.emulated().items()},
    }
    sides[side]["dx"][3, 5] = np.nan
    found = pair(case, sides["ours"], sides["theirs"])
    assert found.verdict == "fail"
    assert entry(found, "dx")["nonfinite"] == 1
    assert entry(found, "dx")["worst_index"] == [3, 5]
    assert found.outputs["dgamma"].verdict == "pass"


def test_an_output_that_the_reference_does_not_produce_is_judged_against_float64_alone() -> None:
    case = backward_case()
    right = case.emulated()
    found = pair(case, right, {"dx": right["dx"]}, Reference("other", "tt-train", ("dx",)))
    assert "reference" in found.outputs["dx"].statistics
    assert "reference" not in found.outputs["dgamma"].statistics
    with pytest.raises(KernelOutputError, match="dgamma"):
        pair(case, right, {"dx": right["dx"]})


def test_a_downstream_output_shows_its_difference_and_counts_for_nothing() -> None:
    case = Case.of(spec("layernorm_fw", (8, 64)))
    produced = ("linear", "mean", "rstd", "y")
    ours = case.emulated() | {"linear": np.full((8, 64), 2, np.float32)}
    theirs = case.emulated() | {"linear": np.full((8, 64), 2 + 2.0**-6, np.float32)}
    alone = judge(case.test, case.raw, case.given, ours, arithmetic="tt-train", produced=produced)
    assert (alone.verdict, alone.outputs["linear"].verdict) == ("pass", "not_judged")
    assert alone.outputs["linear"].statistics["count"] == 512
    found = pair(case, ours, theirs, Reference("other", "tt-train", produced), produced=produced)
    assert found.verdict == "pass"
    said = entry(found, "linear")
    assert (said["explanation"], said["within"], said["against_float64"]) == (
        "not_judged",
        None,
        None,
    )
    assert (said["max_abs"], said["ulp_max"], said["mismatch_fraction"]) == (2.0**-6, 1.0, 1.0)
    assert "budget_ratio" not in said
    assert (
        "linear" not in judge(case.test, case.raw, case.given, ours, arithmetic="tt-train").outputs
    )


@pytest.mark.parametrize("kernel", ["layernorm_fw", "layernorm_bw"])
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("arithmetic", ["tt-train", "torch", None])
def test_budgets_in_blocks_are_those_of_the_whole(
    monkeypatch: pytest.MonkeyPatch, kernel: str, own: bool, arithmetic: str | None
) -> None:
    monkeypatch.setattr(parts, "ELEMENTS_PER_BLOCK", 32 * 100)
    numerics = {"statistics": "own"} if own and kernel == "layernorm_bw" else {}
    case = Case.of(spec(kernel, (100, 100), numerics=numerics))
    whole = expected.expectations(case.test, case.given, arithmetic)
    found = paired.bounds(case.test, case.given, arithmetic)
    assert set(found) == set(whole)
    for name, each in found.items():
        np.testing.assert_allclose(each.bound, whole[name].bound, rtol=1e-9)
        # errors that all rows share are known block by block: a little more or less of them
        np.testing.assert_allclose(
            each.variance, whole[name].variance, rtol=0.2 if kernel == "layernorm_fw" else 1e-9
        )


def test_rows_that_say_nothing_are_left_out_of_the_comparison() -> None:
    case = Case.of(spec("layernorm_fw", (8, 64), inputs=dict(REGIMES["constant"])))
    found = pair(case, case.emulated(), case.emulated())
    assert found.verdict == "inconclusive"
    assert entry(found, "y")["rows_left_out"] == 8


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
    assert Reference.parse({"build": "a", "arithmetic": "torch", "outputs": ["y"]}) == Reference(
        "a", "torch", ("y",)
    )
