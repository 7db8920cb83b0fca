"""Detection limits of outputs that a budget rules: what is listed can't be seen, and what isn't
can."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gonogo.judging import budget_limits, expected
from gonogo.judging.budget_limits import OutputRuler, Part, Sample, Whole
from gonogo.judging.judging import SeedJudgement, judge
from gonogo.judging.limits.detection import FACTORS, percent
from gonogo.kernels import registry
from gonogo.numerics import jit
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.verdicts import POLICY, Explanation, Verdict
from numeric_cases import Case, spec

ARITHMETIC = "tt-train"
NORMAL = {"regime": "normal", "mean": 0, "std": 1}
GAMMA = {"regime": "uniform", "low": 0.5, "high": 1.5}
KERNELS: dict[str, dict[str, Any]] = {
    "layernorm_fw": {"shape": (12, 96)},
    "layernorm_bw": {"shape": (40, 96)},
    "rmsnorm_fw": {"shape": (12, 96)},
    "rmsnorm_bw": {"shape": (40, 96)},
    "groupnorm_fw": {
        "shape": (2, 8, 16, 16),
        "parameters": {"num_groups": 4},
        "inputs": {"x": NORMAL, "gamma": GAMMA},
    },
}


def small_beta(shape: tuple[int, int], size: float, **fields: Any) -> TestSpec:
    """LayerNorm whose beta, if it is missing, is hard to miss."""
    beta = {"regime": "uniform", "low": -size, "high": size}
    return spec("layernorm_fw", shape, inputs={"x": NORMAL, "gamma": GAMMA, "beta": beta}, **fields)


def right(case: Case) -> dict[str, NDArray[np.float32]]:
    return registry.numerics(case.test).run(case.test, case.given, "correct")


def judged(
    case: Case, outputs: dict[str, NDArray[np.float32]], arithmetic: str | None = ARITHMETIC
) -> SeedJudgement:
    return judge(case.test, case.raw, case.given, outputs, arithmetic=arithmetic)


def test_a_term_that_a_budget_can_t_show_is_listed_and_one_that_it_can_isn_t() -> None:
    for size, unseen in ((1e-4, ["beta"]), (0.5, [])):
        case = Case.of(small_beta((64, 256), size))
        numbers = judged(case, right(case)).outputs["y"].statistics
        assert numbers["unseen_terms"] == unseen
        *listed, factor = numbers["detection_limits"]
        assert listed == unseen
        assert factor.startswith("a common factor below 0.")


def test_a_kernel_without_an_unseen_term_is_explained_and_without_another_is_not() -> None:
    case = Case.of(small_beta((64, 256), 1e-4))
    for term, explanation in (
        ("beta", Explanation.explained),
        ("gamma", Explanation.unexplained),
    ):
        given = {**case.given, term: np.full_like(case.given[term], float(term == "gamma"))}
        outputs = registry.numerics(case.test).run(case.test, given, "correct")
        assert judged(case, outputs).outputs["y"].explanation is explanation


def test_a_red_output_with_an_unseen_term_is_inconclusive_and_a_green_one_passes() -> None:
    for size, red in ((1e-4, Verdict.inconclusive), (0.5, Verdict.fail_by_tolerance)):
        for tolerance, verdict in (((0.0, 1e-9), red), ((0.0, 1.0), Verdict.pass_)):
            rtol, atol = tolerance
            test = small_beta((64, 256), size, tolerance={"y": {"rtol": rtol, "atol": atol}})
            case = Case.of(test)
            assert judged(case, right(case)).verdict is verdict, (size, tolerance)


def test_terms_that_the_inputs_don_t_use_acquit() -> None:
    case = Case.of(
        spec(
            "layernorm_bw",
            (64, 256),
            inputs={"regime": "constant", "x": 0.5, "dy": 1, "gamma": 1},
            tolerance={"dx": {"rtol": 0.0, "atol": 1e-2}},
        )
    )
    outputs = right(case)
    outputs["dx"] = outputs["dx"] + np.float32(2.0)
    result = judged(case, outputs)
    assert result.outputs["dx"].statistics["unseen_terms"] == []
    assert (
        "gamma (these inputs don't use it)" in result.outputs["dx"].statistics["detection_limits"]
    )
    assert result.verdict is Verdict.fail_by_tolerance


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_factor_beyond_the_limit_is_seen(kernel: str) -> None:
    case = Case.of(spec(kernel, **KERNELS[kernel]))
    outputs = right(case)
    for name, output in judged(case, outputs).outputs.items():
        (limit,) = (
            factor
            for factor in FACTORS
            if f"a common factor below {percent(factor)}" in output.statistics["detection_limits"]
        )
        factor = np.float32(1 + 10 * limit)
        wrong = judged(case, outputs | {name: outputs[name] * factor}).outputs[name]
        assert wrong.explanation is not Explanation.explained, name
        assert "detection_limits" not in wrong.statistics


@pytest.mark.parametrize("arithmetic", ["tt-train", "generic"])
@pytest.mark.parametrize("constant_rows", [0, 6])
@pytest.mark.parametrize("kernel", KERNELS)
def test_the_statistics_are_those_that_decide(
    kernel: str, constant_rows: int, arithmetic: str
) -> None:
    case = Case.of(spec(kernel, **KERNELS[kernel]))
    test, given = case.test, case.given
    given["x"][:constant_rows] = 0.5
    numerics = registry.numerics(test)
    part = Part(test, given, test.outputs, arithmetic)
    outputs = {name: part.stored(name, 1.003 * part.references[name]) for name in test.outputs}
    decide = expected.statistics(test, given, given, outputs, arithmetic)
    for name, whole in expected.expectations(test, given, arithmetic).items():
        views = (whole, *numerics.views(test, given, name, whole, slice(None)))
        measured: dict[str, Any] = {}
        for view in reversed(views):  # a view has its own count
            for numbers in OutputRuler(view).statistics(outputs[name]):
                measured |= numbers
        assert {"budget_ratio", "chi", "scale_z", "scale_z_max"} <= set(measured)
        assert set(measured) >= {key for key in decide[name] if key.endswith(("_z", "_z_max"))}
        for key, number in measured.items():
            assert number == pytest.approx(decide[name][key], rel=1e-6), (name, key)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_sample_sees_what_the_statistics_see(kernel: str) -> None:
    case = Case.of(spec(kernel, **KERNELS[kernel]))
    part = Part(case.test, case.given, case.test.outputs, ARITHMETIC)
    sample, whole = Sample(part), Whole(part)
    seen = []
    for name, values in part.references.items():
        # one sign per channel of the group norm, which has two in each row
        signs = np.where(np.arange(values.shape[1]) < values.shape[1] // 2, 1.0, -1.0)
        for size in (1e-4, 3e-3, 4e-3, 5e-3, 6e-3, 1.0):
            for changed in (values * (1 + size), values * (1 + size * signs)):
                seen.append(sample.is_seen(name, changed, POLICY))
                assert seen[-1] is whole.is_seen(name, changed, POLICY), (name, size)
    assert {True, False} == set(seen)


def test_a_term_that_only_all_rows_together_show_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case.of(small_beta((512, 1024), 1e-3))
    whole = Part(case.test, case.given, ("y",), ARITHMETIC)
    (part,) = budget_limits._parts(whole)
    assert part.test.rows < case.test.rows
    for of, seen in ((Sample(part), False), (Whole(whole), True)):
        changed = (part if not seen else whole).without_terms["y"]["beta"]
        assert of.is_seen("y", changed, POLICY) is seen
    limits = [judged(case, right(case)).outputs["y"].statistics["detection_limits"]]
    monkeypatch.setattr(jit, "HAVE_NUMBA", False)
    limits.append(judged(case, right(case)).outputs["y"].statistics["detection_limits"])
    assert limits[0] == limits[1]
    assert "beta" not in limits[0]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("elements", [1, 2**20])
def test_a_part_is_a_test_of_the_same_function(
    kernel: str, elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case.of(spec(kernel, **KERNELS[kernel]))
    monkeypatch.setattr(budget_limits, "MAX_ELEMENTS", elements)
    whole = Part(case.test, case.given, case.test.outputs, ARITHMETIC)
    parts = list(budget_limits._parts(whole))
    assert sorted(name for part in parts for name in part.outputs) == sorted(case.test.outputs)
    for part in parts:
        numerics = registry.numerics(part.test)
        assert (part is whole) is (elements > 1)
        for name in part.outputs:
            values, all_values = part.references[name], whole.references[name]
            chosen = np.isin(all_values, values)
            assert chosen.sum() == values.size, name
            if elements == 1:
                assert values.size < all_values.size, name
            graph = numerics.graphs(part.test, part.given)[name]
            exact = graph.replay(graph.forms[0]).values.reshape(values.shape)
            assert exact == pytest.approx(values, rel=1e-9, abs=1e-12)


def test_rows_that_say_nothing_count_as_unseen() -> None:
    case = Case.of(small_beta((64, 256), 0.5))
    case.given["x"][:-1] = 0.5
    case.raw["x"][:-1] = 0.5
    assert judged(case, right(case)).outputs["y"].statistics["unseen_terms"] == []
    case.given["x"][:] = case.raw["x"][:] = 0.5
    result = judged(case, right(case)).outputs["y"]
    assert result.explanation is Explanation.inconclusive
    assert "detection_limits" not in result.statistics


def test_large_sums_that_need_whole_rows_have_the_same_limits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = Case.of(spec("layernorm_bw", (40, 64), numerics={"statistics": "own"}))

    def limits() -> dict[str, list[str]]:
        outputs = judged(case, right(case), "generic").outputs
        return {name: output.statistics["detection_limits"] for name, output in outputs.items()}

    by_samples = limits()
    monkeypatch.setattr(budget_limits, "ELEMENTS_PER_BLOCK", 0)
    assert limits() == by_samples


@pytest.mark.parametrize("arithmetic", [None, "fp32-inside"])
def test_block_formats_have_limits_whatever_is_named(arithmetic: str | None) -> None:
    case = Case.of(small_beta((64, 256), 1e-3, numerics={"output": "bfp8_b"}))
    y = judged(case, right(case), arithmetic).outputs["y"]
    assert y.statistics["unseen_terms"] == ["beta"]
    assert y.statistics["detection_limits"] == ["beta", "a common factor below 1 %"]


def test_an_exact_reading_sees_what_a_budget_doesn_t() -> None:
    case = Case.of(spec("layernorm_fw", (64, 256), inputs={"regime": "exact"}))
    part = Part(case.test, case.given, ("y",), "generic")
    changed = part.references["y"] * (1 + 1e-4)
    assert not Sample(part).is_seen("y", changed, POLICY)
    assert Whole(part).is_seen("y", changed, POLICY)
