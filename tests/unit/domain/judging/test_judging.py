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


def judged(
    case: Case, outputs: Outputs | None = None, arithmetic: str | None = "tt-train", **fields: Any
) -> SeedJudgement:
    return judge(
        case.test,
        case.raw,
        case.given,
        case.emulated() if outputs is None else outputs,
        arithmetic=arithmetic,
        **({"with_limits": False} | fields),
    )


def changed(case: Case, name: str, value: object) -> Outputs:
    outputs: dict[str, Any] = dict(case.emulated())
    outputs[name] = value
    return outputs


@pytest.fixture(scope="module")
def case() -> Case:
    return Case.of(spec(shape=(2, 3, 10, 40), tolerance=LOOSE))


# What can't be judged is refused.


def test_a_missing_output_is_refused_with_those_that_are_there(case: Case) -> None:
    outputs = case.emulated()
    del outputs["dgamma"]
    with pytest.raises(KernelOutputError, match="'dgamma' is missing; the kernel gave dbeta, dx"):
        judged(case, outputs)
    with pytest.raises(KernelOutputError, match="the kernel gave nothing"):
        judged(case, {})


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("dx", (2, 3, 40, 10)),
        ("dx", (60, 41)),
        ("dx", (2400,)),
        ("dgamma", (41,)),
        ("dgamma", (40, 1)),
        ("dbeta", ()),
    ],
)
def test_a_wrong_shape_is_refused_with_both_shapes(
    case: Case, name: str, shape: tuple[int, ...]
) -> None:
    with pytest.raises(KernelOutputError, match=f"'{name}' has shape") as caught:
        judged(case, changed(case, name, np.zeros(shape, np.float32)))
    assert str(list(shape)) in str(caught.value)
    assert str(list(case.test.shape_of(name))) in str(caught.value)


@pytest.mark.parametrize(
    "value",
    [
        np.zeros(40, np.int32),
        np.zeros(40, np.complex64),
        np.zeros(40, bool),
        [0.0] * 40,
        None,
        "text",
    ],
)
def test_what_is_no_float_array_is_refused(case: Case, value: object) -> None:
    with pytest.raises(KernelOutputError, match=r"'dgamma' is .*, not a float array"):
        judged(case, changed(case, "dgamma", value))


def test_a_wrong_arithmetic_is_a_field_error(case: Case) -> None:
    with pytest.raises(FieldError) as caught:
        judged(case, arithmetic="tt_train")
    assert (caught.value.field, caught.value.value) == ("arithmetic", "tt_train")


# The same output gets the same judgment.


def test_the_tests_shape_the_flat_one_and_other_layouts_and_widths_are_one(case: Case) -> None:
    outputs = case.emulated()
    expected_json = judged(case, outputs).to_json()
    flat = {
        name: value.reshape(60, 40) if name == "dx" else value.reshape(1, 40)
        for name, value in outputs.items()
    }
    fortran = {name: np.asfortranarray(value) for name, value in outputs.items()}
    wide = {name: value.astype(np.float64) for name, value in outputs.items()}
    for same in (flat, fortran, wide):
        assert judged(case, same).to_json() == expected_json


def test_the_result_names_the_arithmetic_and_the_judge(case: Case) -> None:
    assert judged(case).arithmetic == "tt-train's dataflow on a Wormhole"
    answer = judged(case, perfect(case.test, case.given), None)
    assert answer.arithmetic == "blocked sums"
    assert answer.judge == judged(case).judge
    version, _, reference = answer.judge.partition(":")
    assert version == JUDGE
    other = Case.of(spec(shape=(60, 41)))
    assert reference != judged(other).judge.partition(":")[2]


# Outputs that the build doesn't declare.


def test_undeclared_outputs_are_neither_missed_nor_judged(case: Case) -> None:
    only = {"dx": case.emulated()["dx"]}
    judgement = judged(case, only, produced=("dx",))
    assert list(judgement.outputs) == ["dx"]
    assert judgement.verdict is Verdict.pass_
    assert list(judged(case, produced=("dbeta", "dx")).outputs) == [
        "dx",
        "dbeta",
    ]  # in the kernel's order; its undeclared outputs aren't judged


def test_a_downstream_output_is_there_where_the_build_has_it() -> None:
    case = Case.of(spec("layernorm_fw", (8, 64), tolerance=LOOSE))
    outputs = case.emulated() | {"linear": np.ones((8, 64), np.float32)}
    produced = tuple(case.test.outputs)
    assert list(judged(case, outputs, produced=produced).outputs) == list(produced)
    judgement = judged(case, outputs, produced=(*produced, "linear"))
    assert [*produced, "linear"] == list(judgement.outputs)
    assert judgement.outputs["linear"].verdict is Verdict.not_judged


@pytest.mark.slow
def test_exact_inputs_name_each_output_that_is_wrong() -> None:
    exact = {"inputs": {"regime": "exact"}, "tolerance": LOOSE}
    case = Case.of(spec("layernorm_fw", (8, 64), **exact))
    right = {"y": perfect(case.test, case.given)["y"]}
    assert exact_words(judged(case, right, produced=("y",), with_faults=False)) is None
    wrong = {"y": right["y"] + np.float32(1)}
    words = exact_words(judged(case, wrong, produced=("y",), with_faults=False))
    assert words is not None
    assert words.startswith("y: ")


@pytest.mark.parametrize("shape", [(32, 1024), (64, 96)])
def test_exact_inputs_accuse_no_right_kernel_whose_registers_hold_fewer_digits(
    shape: tuple[int, int],
) -> None:
    case = Case.of(
        spec("layernorm_fw", shape, inputs={"regime": "exact"}, tolerance=LOOSE, epsilon=2**-18)
    )
    judgement = judged(case, emulator.run(case.test, case.given, "correct", position=0))
    assert judgement.verdict is Verdict.pass_
    assert exact_words(judgement) is None


def test_no_output_at_all_is_unjudged(case: Case) -> None:
    assert judged(case, {}, produced=()).verdict is Verdict.not_judged


# NaN and Inf.


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["dx", "dgamma"])
def test_one_nan_or_inf_is_unexplained_and_outside_everything(
    case: Case, name: str, value: float
) -> None:
    output = case.emulated()[name].copy()
    output[(0,) * output.ndim] = value
    judgement = judged(case, changed(case, name, output))
    assert judgement.outputs[name].explanation is judgement.explanation is Explanation.unexplained
    assert judgement.outputs[name].verdict is judgement.verdict is Verdict.fail
    assert judgement.outputs[name].statistics["nonfinite"] == 1
    assert judgement.outputs[name].statistics["worst_index"] == [0, 0]
    others = [other for other in case.test.outputs if other != name]
    assert all(judgement.outputs[other].verdict is Verdict.pass_ for other in others)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("shape", [(1, 64), (64,), (2, 64)])
@pytest.mark.parametrize("places", [1, 64])
def test_nan_is_found_in_an_output_of_one_row(
    kernel: str, shape: tuple[int, ...], places: int
) -> None:
    case = Case.of(spec(kernel, shape))
    name = case.test.outputs[0]
    output = case.emulated()[name].copy()
    output.reshape(-1)[:places] = np.nan
    judgement = judged(case, changed(case, name, output))
    assert judgement.verdict is Verdict.fail
    assert judgement.outputs[name].statistics["nonfinite"] == places
    assert judgement.outputs[name].statistics["nonfinite_kinds"] == {"nan": places}


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_other_rows_are_compared_all_the_same(kernel: str) -> None:
    case = Case.of(spec(kernel, (70, 50), tolerance=LOOSE))
    name = case.test.outputs[0]
    output = case.emulated()[name].copy()
    clean = judged(case).outputs[name].statistics
    output[5, 7] = np.inf
    statistics = judged(case, changed(case, name, output)).outputs[name].statistics
    assert statistics["count"] == clean["count"] == 3500
    assert 0 < statistics["max_abs"] <= clean["max_abs"]
    assert 0 < statistics["rounding_ratio"] <= clean["rounding_ratio"]
    assert statistics["tolerance_ratio"] is not None
    assert statistics["digest"] != clean["digest"]


# The two-by-two table of verdicts.


@pytest.mark.parametrize(
    ("tolerance", "build", "verdict", "explanation"),
    [
        (LOOSE, "correct", Verdict.pass_, Explanation.explained),
        (LOOSE, "tt-train-2025", Verdict.pass_by_tolerance, Explanation.unexplained),
        (TIGHT, "correct", Verdict.fail_by_tolerance, Explanation.explained),
        (TIGHT, "tt-train-2025", Verdict.fail, Explanation.unexplained),
    ],
)
def test_both_answers_make_the_verdict(
    tolerance: dict[str, float], build: str, verdict: Verdict, explanation: Explanation
) -> None:
    case = Case.of(spec(shape=(60, 40), tolerance=tolerance))
    judgement = judged(case, case.emulated(build))
    assert (judgement.verdict, judgement.explanation) == (verdict, explanation)
    assert judgement.outputs["dx"].verdict is verdict


@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps", "explanation", "verdict"),
    [
        (16, "explained", "pass"),
        (32, "suspect", "suspect"),
        (64, "unexplained", "pass_by_tolerance"),
    ],
)
def test_an_error_that_grows_is_explained_then_suspect_then_unexplained(
    steps: int, explanation: str, verdict: str
) -> None:
    """One value of an fp32 kernel is so many steps from the right one."""
    numerics = {"input": "fp32", "output": "fp32"}
    case = Case.of(spec("layernorm_fw", (12, 40), tolerance=LOOSE, numerics=numerics))
    outputs = perfect(case.test, case.given)
    outputs["y"][4, 9] += steps * np.spacing(outputs["y"][4, 9])
    judgement = judged(case, outputs, None)
    assert (judgement.outputs["y"].explanation, judgement.verdict) == (explanation, verdict)


def test_both_axes_are_aggregated_before_the_table_is_read() -> None:
    """dx is unexplained but within, and dgamma is explained but outside.

    Together they are unexplained and outside: a fail, which neither output is alone.
    """
    case = Case.of(spec(shape=(60, 40), tolerance={"dx": LOOSE, "dgamma": TIGHT}))
    judgement = judged(case, case.emulated("tt-train-2025"))
    assert judgement.outputs["dx"].verdict is Verdict.pass_by_tolerance
    assert judgement.outputs["dgamma"].verdict is Verdict.fail_by_tolerance
    assert judgement.verdict is Verdict.fail


def test_an_undeclared_tolerance_is_within() -> None:
    undeclared = Case.of(spec(shape=(60, 40)))
    assert judged(undeclared).verdict is Verdict.pass_
    assert judged(undeclared, undeclared.emulated("drop-s1")).verdict is Verdict.pass_by_tolerance
    assert judged(undeclared).outputs["dx"].statistics["tolerance_ratio"] is None


def test_a_map_of_tolerances_names_only_some_outputs() -> None:
    case = Case.of(spec(shape=(60, 40), tolerance={"dgamma": TIGHT}))
    judgement = judged(case)
    assert judgement.outputs["dx"].verdict is judgement.outputs["dbeta"].verdict is Verdict.pass_
    assert judgement.outputs["dgamma"].verdict is judgement.verdict is Verdict.fail_by_tolerance
    assert judgement.outputs["dx"].statistics["tolerance_ratio"] is None
    assert judgement.outputs["dgamma"].statistics["tolerance_ratio"] > 1


@pytest.mark.parametrize(
    ("tolerance", "green"),
    [
        ({"pcc": 0.999}, True),
        ({"pcc": 0.9999999}, False),
        ({"frobenius": 0.05}, True),
        ({"frobenius": 1e-5}, False),
        ({"ulp": 1e6}, True),
        ({"ulp": 0}, False),
        ({"rtol": 1e-3, "atol": 0.5, "pcc": 0.9999999}, False),
    ],
)
def test_every_declared_comparator_must_hold(tolerance: dict[str, float], green: bool) -> None:
    case = Case.of(spec(shape=(60, 40), tolerance={"dx": tolerance}))
    assert judged(case).verdict is (Verdict.pass_ if green else Verdict.fail_by_tolerance)


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
    outputs = stored(judged(case, case.emulated("tt-train-2025"), with_limits=True))["outputs"]
    assert "s1 is subtracted twice" in outputs["dx"]["fault"]
    assert outputs["dx"]["fault_share"] > 0.99
    assert outputs["dx"]["faults"][0]["share"] <= outputs["dx"]["fault_share"]
    assert "values are off" in outputs["dx"]["places"]
    assert "fault" not in outputs["dgamma"]
    assert any("factor below" in limit for limit in outputs["dgamma"]["detection_limits"])


def test_advice_stands_where_a_right_kernel_is_red_or_nearly() -> None:
    red = judged(Case.of(spec(shape=(60, 40), tolerance=TIGHT))).outputs["dx"].statistics
    assert red["red_rate"] > 0.9
    assert "atol" in red["advice"]
    assert (
        "advice"
        not in judged(Case.of(spec(shape=(60, 40), tolerance=LOOSE))).outputs["dx"].statistics
    )
