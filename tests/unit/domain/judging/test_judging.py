"""Judging, from arrays to a verdict: refused outputs, omitted rows, and the two-by-two table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gonogo.errors import FieldError, KernelOutputError
from gonogo.judging import expected, judging
from gonogo.judging.judging import SeedJudgement, exact_words, judge, matrix
from gonogo.numerics.blocks import together
from gonogo.numerics.jit import HAVE_NUMBA
from gonogo.spec.verdicts import POLICY, Explanation, Verdict
from numeric_cases import KERNELS, Case, spec
from right_arithmetics import perfect

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
        **fields,
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


@pytest.mark.parametrize("kernel", KERNELS)
def test_matrices_are_rows_by_features_or_one_row(kernel: str) -> None:
    case = Case.of(spec(kernel, (2, 3, 4, 5)))
    shapes = {
        "y": (24, 5),
        "dx": (24, 5),
        "mean": (1, 24),
        "rstd": (1, 24),
        "dgamma": (1, 5),
        "dbeta": (1, 5),
    }
    for name, value in case.emulated().items():
        output_matrix = matrix(case.test, name, {name: value})
        assert output_matrix.shape == shapes[name]
        assert output_matrix.dtype == np.float32
        assert output_matrix.flags.c_contiguous
        np.testing.assert_array_equal(output_matrix.ravel(), value.ravel())


def test_a_vector_as_shape_is_one_row() -> None:
    for kernel in KERNELS:
        vector = Case.of(spec(kernel, (64,)))
        assert set(judged(vector).outputs) == set(vector.test.outputs)


def test_the_result_names_the_arithmetic_and_the_policy(case: Case) -> None:
    assert judged(case).arithmetic == "tt-train"
    assert judged(case, arithmetic="generic").arithmetic == "generic"
    assert judged(case).policy == POLICY.version
    assert (
        judged(case, policy=replace(POLICY, version="strict", budget_ratio=0.5)).policy == "strict"
    )


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


def test_a_subset_is_judged_as_in_the_whole(case: Case) -> None:
    whole = judged(case)
    for name in case.test.outputs:
        assert judged(case, produced=(name,)).outputs[name] == whole.outputs[name]


def test_a_downstream_output_is_there_where_the_build_has_it() -> None:
    case = Case.of(spec("layernorm_fw", (8, 64), tolerance=LOOSE))
    outputs = case.emulated() | {"linear": np.ones((8, 64), np.float32)}
    produced = tuple(case.test.outputs)
    assert list(judged(case, outputs, produced=produced).outputs) == list(produced)
    judgement = judged(case, outputs, produced=(*produced, "linear"))
    assert [*produced, "linear"] == list(judgement.outputs)
    assert judgement.outputs["linear"].verdict is Verdict.not_judged


@pytest.mark.parametrize(
    ("arithmetic", "replayed"), [(None, True), ("fp32-inside", True), ("tt-train", False)]
)
def test_outputs_are_replayed_in_every_arithmetic_but_the_wormhole_s(
    case: Case, arithmetic: str | None, replayed: bool
) -> None:
    judgement = judged(case, {"dx": case.emulated()["dx"]}, arithmetic, produced=("dx",))
    assert ("cell_max" in judgement.outputs["dx"].statistics) is replayed


def test_exact_inputs_name_each_output_that_is_wrong() -> None:
    exact = {"inputs": {"regime": "exact"}, "tolerance": LOOSE}
    case = Case.of(spec("layernorm_fw", (8, 64), **exact))
    right = perfect(case.test, case.given)
    assert exact_words(judged(case, right, None)) is None
    wrong = exact_words(judged(case, right | {"y": right["y"] + np.float32(1)}, None))
    assert wrong is not None
    assert wrong.startswith("y: ")


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
def test_an_output_of_nothing_but_nan_fails(kernel: str) -> None:
    case = Case.of(spec(kernel, (40, 50), tolerance=LOOSE))
    for name, value in case.emulated().items():
        judgement = judged(case, changed(case, name, np.full_like(value, np.nan)))
        assert judgement.verdict is Verdict.fail, name
        assert judgement.outputs[name].statistics["nonfinite"] == value.size


def test_nan_is_outside_even_where_no_tolerance_is_declared() -> None:
    case = Case.of(spec(shape=(40, 50)))
    output = case.emulated()["dx"].copy()
    output[3, 3] = np.nan
    assert judged(case, changed(case, "dx", output)).verdict is Verdict.fail


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
    assert 0 < statistics["budget_ratio"] <= clean["budget_ratio"]
    assert statistics["tolerance_ratio"] is not None
    assert statistics["digest"] != clean["digest"]


# Rows that say nothing.


def test_a_forward_kernel_on_constants_says_nothing_whatever_it_gives() -> None:
    case = Case.of(spec("layernorm_fw", (32, 128), regime="constant", tolerance=TIGHT))
    outputs = case.emulated()
    for y in (outputs["y"], np.full_like(outputs["y"], 0.891)):
        judgement = judged(case, changed(case, "y", y))
        assert judgement.outputs["y"].verdict is judgement.verdict is Verdict.inconclusive
        assert judgement.outputs["y"].statistics["rows_left_out"] == 32
        assert judgement.outputs["y"].statistics["budget_ratio"] is None
    assert (
        judgement.outputs["mean"].explanation is Explanation.explained
    )  # the mean of a constant is known
    wrong = judged(case, changed(case, "mean", outputs["mean"] + 1))
    assert wrong.verdict is Verdict.fail


@pytest.mark.parametrize("kernel", KERNELS)
def test_rows_that_say_nothing_are_left_out_and_counted_where_the_kernel_makes_its_own_statistics(
    kernel: str,
) -> None:
    test = spec(kernel, (40, 64), numerics={"statistics": "own"})
    case = Case.of(test)
    for arrays in (case.raw, case.given):
        arrays["x"][:7] = 0.5
    name = test.outputs[0]
    outputs = case.emulated()
    judgement = judged(case, outputs)
    assert judgement.outputs[name].statistics["rows_left_out"] == 7
    assert judgement.outputs[name].explanation is Explanation.explained
    spoiled = outputs[name].copy()
    spoiled[:7] += 3
    again = judged(case, {**outputs, name: spoiled})
    assert again.outputs[name].explanation is Explanation.explained
    assert (
        again.outputs[name].statistics["budget_ratio"]
        == judgement.outputs[name].statistics["budget_ratio"]
    )
    spoiled[7] += 3
    assert judged(case, {**outputs, name: spoiled}).explanation is Explanation.unexplained


def test_given_statistics_leave_no_row_out() -> None:
    case = Case.of(spec(shape=(8, 64), regime="constant"))
    assert judged(case).outputs["dx"].statistics["rows_left_out"] == 0


# The two-by-two table of verdicts.


def test_green_and_right_is_a_pass(case: Case) -> None:
    judgement = judged(case)
    assert (judgement.verdict, judgement.explanation) == (Verdict.pass_, Explanation.explained)


def test_green_and_wrong_is_a_pass_by_tolerance(case: Case) -> None:
    judgement = judged(case, case.emulated("tt-train-2025"))
    assert (judgement.verdict, judgement.explanation) == (
        Verdict.pass_by_tolerance,
        Explanation.unexplained,
    )
    assert judgement.outputs["dx"].verdict is Verdict.pass_by_tolerance
    assert judgement.outputs["dgamma"].verdict is Verdict.pass_


def test_red_and_right_is_a_fail_by_tolerance() -> None:
    case = Case.of(spec(shape=(60, 40), tolerance=TIGHT))
    assert judged(case).verdict is Verdict.fail_by_tolerance


def test_red_and_wrong_is_a_fail() -> None:
    case = Case.of(spec(shape=(60, 40), tolerance=TIGHT))
    judgement = judged(case, case.emulated("tt-train-2025"))
    assert (judgement.verdict, judgement.explanation) == (Verdict.fail, Explanation.unexplained)


def off_by(case: Case, budgets: float) -> Outputs:
    """Return perfectly rounded outputs, except one element of dx that is off by so many budgets."""
    outputs = perfect(case.test, case.given)
    expectation = expected.expectations(case.test, case.given, "tt-train")["dx"]
    outputs["dx"] = outputs["dx"].copy()
    outputs["dx"].reshape(expectation.reference.shape)[4, 9] = (
        expectation.reference[4, 9] + budgets * expectation.bound[4, 9]
    )
    return outputs


@pytest.mark.parametrize(
    ("budgets", "loose_verdict", "tight_verdict"),
    [(2.5, "pass", "fail_by_tolerance"), (6, "suspect", "fail")],
)
def test_suspect_is_its_own_word_while_green_and_a_fail_when_red(
    budgets: float, loose_verdict: str, tight_verdict: str
) -> None:
    for tolerance, expected_verdict in ((LOOSE, loose_verdict), (TIGHT, tight_verdict)):
        case = Case.of(spec(shape=(60, 40), tolerance=tolerance))
        judgement = judged(case, off_by(case, budgets))
        assert judgement.outputs["dx"].statistics["budget_ratio"] == pytest.approx(
            budgets, rel=1e-3
        )
        assert judgement.verdict == expected_verdict
        assert judgement.explanation is (
            Explanation.suspect if budgets > 3 else Explanation.explained
        )


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


def test_the_correlation_of_a_constant_output_is_not_met() -> None:
    case = Case.of(
        spec(
            shape=(8, 64),
            inputs={"regime": "constant", "x": 0.5, "dy": 1, "gamma": 1},
            tolerance={"dx": {"pcc": 0.5}},
        )
    )
    judgement = judged(case, perfect(case.test, case.given))
    assert judgement.outputs["dx"].statistics["pcc_deficit"] is None
    assert judgement.verdict is Verdict.fail_by_tolerance


@pytest.mark.skipif(not HAVE_NUMBA, reason="numba: not installed")
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("form", ["fp32", "bf16"])
def test_a_large_test_s_replay_beside_its_comparison_changes_nothing(
    kernel: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    numerics = {"input": form, "output": form}
    case = Case.of(spec(kernel, (40, 64), tolerance=TIGHT, numerics=numerics))
    outputs = perfect(case.test, case.given)
    outputs[case.test.outputs[0]] = outputs[case.test.outputs[0]] * np.float32(1.01)
    one_after_the_other = judged(case, outputs, None).to_json()
    pairs = []

    def noted(first: Any, second: Any) -> Any:
        pairs.append((first, second))
        return together(first, second)

    monkeypatch.setattr(judging, "MIN_ELEMENTS", 1000)
    monkeypatch.setattr(judging, "together", noted)
    assert judged(case, outputs, None).to_json() == one_after_the_other
    assert len(pairs) == 1
    judged(case)  # a Wormhole's arithmetic is compared only
    assert len(pairs) == 1
