"""Judgments say more than the verdict: the tolerance to take, what would not be seen, and what
several seeds say together."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from gonogo.arithmetic import exact
from gonogo.judgment import Judgment, judge, pooled_entries
from gonogo.judgment.tolerance import Tolerance
from gonogo.spec.verdicts import Explanation
from tests.unit.domain.judgment.kernels import Array, F, graphs, inputs, layernorm, stored

TIGHT = Tolerance(rtol=1e-3, atol=1e-5)


def rounded_everywhere(
    x: Array, gamma: Array, beta: Array, *, count: int = 256, form: str = "bf16"
) -> Array:
    """Return LayerNorm whose every operation is stored, in an order that no reference has."""

    def s(values: Array) -> Array:
        return stored(values, form)

    x, gamma, beta = (np.asarray(a, F) for a in (x, gamma, beta))
    halves = np.split(x, 2, -1)
    mean = s(s(halves[0].sum(-1, keepdims=True)) + s(halves[1].sum(-1, keepdims=True)))
    centered = s(x - s(mean / F(x.shape[-1])))
    squares = np.split(s(centered * centered), 2, -1)
    total = s(s(squares[0].sum(-1, keepdims=True)) + s(squares[1].sum(-1, keepdims=True)))
    rstd = s(1 / s(np.sqrt(s(s(total / F(count)) + F(1e-5)))))
    return s(s(s(centered * gamma) * rstd) + beta)


def judged_with(given: Mapping[str, Array], y: Array, form: str, tolerance: Tolerance) -> Judgment:
    ways = graphs("layernorm_fw", given, epsilon=1e-5)
    narrow = () if form == "fp32" else (form,)
    return judge(ways, given, {"y": y}, {"y": form}, narrow, tolerances={"y": tolerance})


def is_green(given: Mapping[str, Array], y: Array, tolerance: Tolerance) -> bool:
    (graph,) = graphs("layernorm_fw", given, ways=0, epsilon=1e-5)
    right = exact(graph, given, outputs=["y"])[graph.outputs["y"].id]
    return not tolerance.failing(np.asarray(y, np.float64), right).any()


@pytest.mark.parametrize("form", ["fp32", "bf16", "fp16"])
def test_the_tolerances_of_the_advice_pass_a_right_kernel_on_other_seeds(form: str) -> None:
    given = inputs(form=form)
    y = stored(layernorm(**given), form)
    judgment = judged_with(given, y, form, Tolerance(rtol=1e-9))
    assert judgment.explanation is Explanation.explained
    advice = judgment.advice("y")
    assert advice is not None
    assert advice.red_rate > 0.99
    assert "nearly all of a right kernel's seeds red, with blocked sums" in advice.message
    tolerances = (Tolerance(atol=advice.atol), Tolerance(advice.rtol, advice.floor))
    for seed in range(1, 9):
        other = inputs(form=form, seed=seed)
        y = stored(layernorm(**other), form)
        assert [is_green(other, y, tolerance) for tolerance in tolerances] == [True, True]
        assert not is_green(other, y, Tolerance(atol=advice.atol / 8))


@pytest.mark.parametrize(("part", "words"), [(0.5, "nearly all"), (4.0, "hardly any")])
def test_the_advice_knows_how_often_a_right_kernel_is_red(part: float, words: str) -> None:
    given = inputs()
    y = layernorm(**given)
    graph = graphs("layernorm_fw", given, epsilon=1e-5)[0]
    right = exact(graph, given, outputs=["y"])[graph.outputs["y"].id]
    usual = Tolerance(atol=part * float(np.abs(y - right).max()))
    advice = judged_with(given, y, "fp32", usual).advice("y")
    assert advice is not None
    assert f"Today's tolerance turns {words} of" in advice.message


def test_what_only_an_unknown_order_explains_says_what_it_would_hide() -> None:
    given = inputs(form="bf16")
    judgment = judged_with(given, rounded_everywhere(**given), "bf16", Tolerance(atol=1.0))
    assert judgment.outputs["y"].arithmetic == "bf16 operations in an unknown order"
    assert judgment.explanation is Explanation.explained
    limits = judgment.detection_limits("y")
    assert min(limits.factors.values()) > 2**-9
    assert f"{len(limits.unseen)} of {limits.tried} faults would not be seen" in judgment.message


@pytest.mark.parametrize(
    ("count", "tolerance", "expected"),
    [
        (256, Tolerance(rtol=0.016, atol=1e-5), Explanation.explained),
        (255, Tolerance(atol=0.03), Explanation.inconclusive),
    ],
    ids=["right", "N - 1"],
)
def test_a_red_output_is_acquitted_unless_a_fault_is_why_it_fails(
    count: int, tolerance: Tolerance, expected: Explanation
) -> None:
    given = inputs(form="bf16")
    y = rounded_everywhere(**given, count=count)
    judgment = judged_with(given, y, "bf16", tolerance)
    assert not is_green(given, y, tolerance)
    assert judgment.explanation is expected, judgment.message


def test_a_fault_of_several_seeds_is_named_with_its_mean_size() -> None:
    def answer(seed: int, kernel: Callable[..., Array]) -> Judgment:
        given = inputs(seed=seed)
        return judged_with(given, kernel(**given), "fp32", TIGHT)

    def larger(**given: Array) -> Array:
        return layernorm(**given, scale=1.001)

    kernels = [larger, larger, layernorm, larger]
    seeds = [answer(seed, kernel).outputs["y"] for seed, kernel in enumerate(kernels)]
    result = pooled_entries(seed.entry() for seed in seeds)
    assert result.explanation is Explanation.unexplained
    assert result.fault is not None
    assert (result.fault.id, result.fault.seeds) == ("factor:rstd", 3)
    assert result.fault.size == pytest.approx(1e-3, rel=0.01)
    assert result.fault.share > 0.99
    assert pooled_entries([seeds[2].entry()]).fault is None
