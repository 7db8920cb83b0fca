"""Judging, from arrays to a verdict: refused outputs, omitted rows, and the two-by-two table."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gonogo import emulator
from gonogo.errors import FieldError, KernelOutputError
from gonogo.judging.judging import SeedJudgement, exact_words, judge
from gonogo.spec.statistics import STATISTICS
from gonogo.spec.verdicts import JUDGE, Explanation, Verdict, within
from numeric_cases import KERNELS, Case, perfect, spec

Outputs = dict[str, NDArray[Any]]
LOOSE = {"rtol": 1e-3, "atol": 0.5}
TIGHT = {"rtol": 0, "atol": 1e-4}
WRONG = "tt-train-2025"


def judged(
    case: Case, outputs: Outputs | None = None, arithmetic: str | None = "tt-train", **fields: Any
) -> SeedJudgement:
    outputs = case.emulated() if outputs is None else outputs
    fields = {"with_limits": False, **fields}
    return judge(case.test, case.raw, case.given, outputs, arithmetic=arithmetic, **fields)


def of(tolerance: dict[str, Any], **fields: Any) -> Case:
    return Case.of(spec(shape=(16, 96), tolerance=tolerance, **fields))


@pytest.fixture(scope="module")
def case() -> Case:
    return Case.of(spec(shape=(2, 8, 96), tolerance=LOOSE))


@pytest.fixture(scope="module")
def clean(case: Case) -> SeedJudgement:
    return judged(case)


# What can't be judged is refused.


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("dx", np.zeros((2, 96, 8), "f4"), "'dx' has shape [2, 96, 8], not [2, 8, 96]"),
        ("dx", np.zeros((16, 97), "f4"), "'dx' has shape [16, 97], not [2, 8, 96]"),
        ("dx", np.zeros(1536, "f4"), "'dx' has shape [1536], not [2, 8, 96]"),
        ("dgamma", np.zeros(97, "f4"), "'dgamma' has shape [97], not [96]"),
        ("dgamma", np.zeros((96, 1), "f4"), "'dgamma' has shape [96, 1], not [96]"),
        ("dbeta", np.zeros((), "f4"), "'dbeta' has shape [], not [96]"),
        ("dgamma", np.zeros(96, np.int32), "'dgamma' is int32, not a float array"),
        ("dgamma", np.zeros(96, np.complex64), "'dgamma' is complex64, not a float array"),
        ("dgamma", [0.0] * 96, "'dgamma' is list, not a float array"),
        ("dgamma", None, "'dgamma' is NoneType, not a float array"),
    ],
)
def test_an_output_of_a_wrong_shape_or_type_is_refused(
    case: Case, name: str, value: Any, words: str
) -> None:
    with pytest.raises(KernelOutputError) as caught:
        judged(case, case.emulated() | {name: value})
    assert words in str(caught.value)


def test_what_is_missing_is_named(case: Case) -> None:
    outputs = case.emulated()
    del outputs["dgamma"]
    with pytest.raises(KernelOutputError, match="'dgamma' is missing; the kernel gave dbeta, dx"):
        judged(case, outputs)
    with pytest.raises(KernelOutputError, match="the kernel gave nothing"):
        judged(case, {})
    with pytest.raises(FieldError) as caught:
        judged(case, arithmetic="tt_train")
    assert (caught.value.field, caught.value.value) == ("arithmetic", "tt_train")


# The same output gets the same judgment.


def test_the_tests_shape_the_flat_one_and_other_layouts_and_widths_are_one(
    case: Case, clean: SeedJudgement
) -> None:
    outputs = case.emulated()
    flat = {name: a.reshape(16, 96) if name == "dx" else a[None] for name, a in outputs.items()}
    fortran = {name: np.asfortranarray(value) for name, value in outputs.items()}
    wide = {name: value.astype(np.float64) for name, value in outputs.items()}
    for same in (flat, fortran, wide):
        assert judged(case, same).to_json() == clean.to_json()


def test_the_result_names_the_arithmetic_and_the_judge(case: Case, clean: SeedJudgement) -> None:
    assert clean.arithmetic == "tt-train's dataflow on a Wormhole"
    answer = judged(case, perfect(case.test, case.given), None)
    assert (answer.arithmetic, answer.judge) == ("blocked sums", clean.judge)
    version, _, reference = answer.judge.partition(":")
    assert version == JUDGE
    assert reference != judged(Case.of(spec(shape=(60, 41)))).judge.partition(":")[2]


@pytest.mark.parametrize("on_wormhole", [True, False])
def test_a_card_s_noise_is_allowed_for_where_the_kernel_ran_on_one(
    case: Case, on_wormhole: bool
) -> None:
    output = judged(case, arithmetic=None, on_wormhole=on_wormhole).outputs["dx"]
    assert output.answer is not None
    assert output.answer.arithmetic == "tt-train's dataflow on a Wormhole"
    assert output.answer.program.is_of_card is on_wormhole


# Outputs that the build doesn't declare.


def test_undeclared_outputs_are_neither_missed_nor_judged(case: Case) -> None:
    judgement = judged(case, {"dx": case.emulated()["dx"]}, produced=("dx",))
    assert (list(judgement.outputs), judgement.verdict) == (["dx"], Verdict.pass_)
    in_the_kernel_s_order = list(judged(case, produced=("dbeta", "dx")).outputs)
    assert in_the_kernel_s_order == ["dx", "dbeta"]
    assert judged(case, {}, produced=()).verdict is Verdict.not_judged


def test_a_downstream_output_is_there_where_the_build_has_it() -> None:
    case = Case.of(spec("layernorm_fw", (8, 64), tolerance=LOOSE))
    linear = np.ones((8, 64), np.float32)
    linear[1, :3] = np.nan, np.inf, -np.inf
    outputs = case.emulated() | {"linear": linear}
    produced = tuple(case.test.outputs)
    assert list(judged(case, outputs, produced=produced).outputs) == list(produced)
    judgement = judged(case, outputs, produced=(*produced, "linear"))
    assert [*produced, "linear"] == list(judgement.outputs)
    assert judgement.verdict is Verdict.pass_
    assert judgement.outputs["linear"].to_json() == {
        "verdict": "not_judged",
        "explanation": "not_judged",
        "count": 512,
        "digest": "676daccdf20d2e94",
        "nonfinite": 3,
        "nonfinite_kinds": {"nan": 1, "+inf": 1, "-inf": 1},
    }


EXACT = {"inputs": {"regime": "exact"}, "tolerance": LOOSE, "epsilon": 2**-18}


def test_exact_inputs_name_each_output_that_is_wrong() -> None:
    case = Case.of(spec("layernorm_fw", (8, 64), **EXACT))
    right = {"y": perfect(case.test, case.given)["y"]}
    assert exact_words(judged(case, right, produced=("y",), with_faults=False)) is None
    wrong = judged(case, {"y": right["y"] + 1}, produced=("y",), with_faults=False)
    assert (exact_words(wrong) or "").startswith("y: ")
    assert wrong.explanation is Explanation.unexplained


@pytest.mark.parametrize("shape", [(32, 1024), (64, 96)])
def test_exact_inputs_accuse_no_right_kernel_whose_registers_hold_fewer_digits(
    shape: tuple[int, int],
) -> None:
    case = Case.of(spec("layernorm_fw", shape, **EXACT))
    judgement = judged(case, emulator.run(case.test, case.given, "correct", position=0))
    assert judgement.verdict is Verdict.pass_
    assert exact_words(judgement) is None


# NaN and Inf.


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [("dx", np.nan, "nan"), ("dgamma", np.inf, "+inf"), ("dgamma", -np.inf, "-inf")],
)
def test_one_nan_or_inf_is_unexplained_and_outside_everything(
    case: Case, clean: SeedJudgement, name: str, value: float, kind: str
) -> None:
    outputs = case.emulated()
    outputs[name].reshape(-1)[7] = value
    judgement = judged(case, outputs)
    answer = judgement.outputs.pop(name)  # type: ignore[attr-defined]
    assert answer.explanation is judgement.explanation is Explanation.unexplained
    assert answer.verdict is judgement.verdict is Verdict.fail
    assert answer.statistics["nonfinite_kinds"] == {kind: 1}
    assert answer.statistics["worst_index"] == [0, 7]
    before = clean.outputs[name].statistics
    assert answer.statistics["count"] == before["count"]
    for number in ("max_abs", "rounding_ratio", "tolerance_ratio"):  # of all the others
        assert 0 <= answer.statistics[number] <= before[number]
    assert answer.statistics["digest"] != before["digest"]
    assert all(other.verdict is Verdict.pass_ for other in judgement.outputs.values())


def test_wrong_places_are_those_beside_the_closest_arithmetic_not_beside_a_card_s() -> None:
    case = Case.of(spec("layernorm_fw", (6, 64)))
    outputs = perfect(case.test, case.given)
    outputs["y"].reshape(-1)[7] = np.nan
    places = judged(case, outputs, None).outputs["y"].statistics["places"]
    assert places.startswith("1 of 384 values is off, in row 0, column 7")


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("shape", "places"), [((1, 64), 1), ((64,), 64), ((2, 64), 64)])
def test_nan_is_found_in_an_output_of_one_row(
    kernel: str, shape: tuple[int, ...], places: int
) -> None:
    case = Case.of(spec(kernel, shape))
    name = case.test.outputs[0]
    outputs = case.emulated()
    outputs[name].reshape(-1)[:places] = np.nan
    judgement = judged(case, outputs)
    assert judgement.verdict is Verdict.fail
    assert judgement.outputs[name].statistics["nonfinite"] == places
    assert judgement.outputs[name].statistics["nonfinite_kinds"] == {"nan": places}


# The two-by-two table of verdicts.


@pytest.mark.parametrize(
    ("tolerance", "build", "verdicts"),
    [
        (LOOSE, "correct", ("pass", "pass", "pass")),
        (LOOSE, WRONG, ("pass_by_tolerance", "pass_by_tolerance", "pass")),
        (TIGHT, "correct", ("fail_by_tolerance", "fail_by_tolerance", "fail_by_tolerance")),
        (TIGHT, WRONG, ("fail", "fail", "fail_by_tolerance")),
        # unexplained within, and explained outside: a fail, which neither output is alone
        ({"dx": LOOSE, "dgamma": TIGHT}, WRONG, ("fail", "pass_by_tolerance", "fail_by_tolerance")),
        ({}, "correct", ("pass", "pass", "pass")),  # what is undeclared is within
        ({}, "drop-s1", ("pass_by_tolerance", "pass_by_tolerance", "pass")),
        ({"dgamma": TIGHT}, "correct", ("fail_by_tolerance", "pass", "fail_by_tolerance")),
        ({"dx": {"pcc": 0.999}}, "correct", ("pass", "pass", "pass")),
        ({"dx": {"pcc": 0.9999999}}, "correct", ("fail_by_tolerance", "fail_by_tolerance", "pass")),
        ({"dx": {"frobenius": 0.05}}, "correct", ("pass", "pass", "pass")),
        (
            {"dx": {"frobenius": 1e-5}},
            "correct",
            ("fail_by_tolerance", "fail_by_tolerance", "pass"),
        ),
        ({"dx": {"ulp": 1e6}}, "correct", ("pass", "pass", "pass")),
        ({"dx": {"ulp": 0}}, "correct", ("fail_by_tolerance", "fail_by_tolerance", "pass")),
        (
            {"dx": {**LOOSE, "pcc": 0.9999999}},
            "correct",
            ("fail_by_tolerance", "fail_by_tolerance", "pass"),
        ),
    ],
)
def test_rounding_and_every_declared_comparator_make_the_verdict(
    tolerance: dict[str, Any], build: str, verdicts: tuple[str, str, str]
) -> None:
    """verdicts: the seed's, dx's and dgamma's."""
    case = of(tolerance)
    judgement = judged(case, case.emulated(build))
    dx, dgamma = judgement.outputs["dx"], judgement.outputs["dgamma"]
    assert (judgement.verdict, dx.verdict, dgamma.verdict) == verdicts
    declares_rtol = "rtol" in {**tolerance, **tolerance.get("dx", {})}
    assert (dx.statistics["tolerance_ratio"] is not None) is declares_rtol


@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps", "explanation", "verdict"),
    [
        (8, "explained", "pass"),
        (16, "suspect", "suspect"),
        (32, "unexplained", "pass_by_tolerance"),
    ],
)
def test_an_error_that_grows_is_explained_then_suspect_then_unexplained(
    steps: int, explanation: str, verdict: str
) -> None:
    """One value of an fp32 kernel is so many steps from the right one."""
    numerics = {"input": "fp32", "output": "fp32"}
    case = Case.of(spec("rmsnorm_fw", (12, 40), tolerance=LOOSE, numerics=numerics))
    outputs = perfect(case.test, case.given)
    outputs["y"][4, 9] += steps * np.spacing(outputs["y"][4, 9])
    judgement = judged(case, outputs, None)
    assert (judgement.outputs["y"].explanation, judgement.verdict) == (explanation, verdict)


# A seed's row holds all that its verdict needs.


def stored(judgement: SeedJudgement) -> dict[str, Any]:
    """Return a judgment as a database gives it back: strict JSON, without NaN and Infinity."""
    result: dict[str, Any] = json.loads(json.dumps(judgement.to_json(), allow_nan=False))
    return result


@pytest.mark.parametrize("build", ["correct", "tile-missing", "nan-tile", "power-of-two-outliers"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_stored_number_is_a_statistic_and_says_the_same_again(
    kernel: str, build: str
) -> None:
    case = Case.of(spec(kernel, (33, 70), tolerance={"rtol": 1e-2, "atol": 1e-3}))
    judgement = judged(case, case.emulated(build))
    for name, entry in stored(judgement)["outputs"].items():
        assert entry.keys() - {"verdict", "explanation"} <= STATISTICS.keys()
        assert entry["explanation"] == judgement.outputs[name].explanation
        for rtol, needed in entry["needed_atol"].items():
            for atol, green in ((needed * 1.001, True), (needed * 0.999, False)):
                other = spec(kernel, (33, 70), tolerance={"rtol": float(rtol), "atol": atol})
                is_green = (green and not entry["nonfinite"]) or not needed
                assert within(other.tolerance_for(name), entry) is is_green


def test_an_infinite_statistic_is_null_and_named() -> None:
    inputs = {"regime": "constant", "x": 0.5, "dy": 0, "gamma": 1}
    case = Case.of(spec(shape=(4, 64), inputs=inputs, tolerance={"rtol": 0.1, "atol": 0}))
    outputs = case.emulated()
    outputs["dx"] = outputs["dx"] + np.float32(1e-3)  # nothing is allowed: the ratio is 1e-3 / 0
    judgement = judged(case, outputs)
    row = stored(judgement)["outputs"]["dx"]
    assert row["tolerance_ratio"] is None
    assert row["nonfinite_statistics"]["tolerance_ratio"] == "inf"
    assert not within(case.test.tolerance_for("dx"), row)
    assert judgement.verdict is Verdict.fail


# What an answer says beside the verdict.


def test_a_wrong_output_has_its_fault_and_places_and_a_right_one_its_limits(case: Case) -> None:
    outputs = stored(judged(case, case.emulated(WRONG), with_limits=True))["outputs"]
    assert "s1 is subtracted twice" in outputs["dx"]["fault"]
    assert outputs["dx"]["fault_share"] > 0.9
    assert outputs["dx"]["faults"][0]["share"] <= outputs["dx"]["fault_share"]
    assert "values are off" in outputs["dx"]["places"]
    assert "fault" not in outputs["dgamma"]
    assert any("factor below" in limit for limit in outputs["dgamma"]["detection_limits"])


@pytest.mark.parametrize(
    ("atol", "advised"), [(1e-4, True), (0.012, True), (0.5, False)], ids=["red", "nearly", "far"]
)
def test_advice_stands_where_a_right_kernel_is_red_or_nearly(atol: float, advised: bool) -> None:
    numbers = judged(of({"rtol": 0, "atol": atol})).outputs["dx"].statistics
    assert ("advice" in numbers) is ("red_rate" in numbers) is advised
    if advised:
        assert "atol" in numbers["advice"]
        assert (numbers["red_rate"] > 0.9) is (atol < 0.01)
