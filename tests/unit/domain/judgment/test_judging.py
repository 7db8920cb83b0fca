"""Judge small kernels: right ones are explained, wrong ones aren't, and a judgment says more than
the verdict: the tolerance to take, and what would not be seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from gonogo.arithmetic import Program, exact
from gonogo.arithmetic.formats import round_to
from gonogo.graph import trace
from gonogo.judgment import Judgment, judge, reach
from gonogo.judgment.common import common_of_cells
from gonogo.judgment.tolerance import Tolerance
from gonogo.spec.verdicts import Explanation
from tests.unit.domain.judgment.kernels import Array, F, graphs, inputs, judged, layernorm, stored

EXPLAINED, UNEXPLAINED = Explanation.explained, Explanation.unexplained


def running_mean(x: Array) -> Array:
    """Return the mean by one running total."""
    return np.add.accumulate(x, axis=-1)[..., -1:] / F(x.shape[-1])


def reversed_mean(x: Array) -> Array:
    return running_mean(x[..., ::-1])


def wide_mean(x: Array) -> Array:
    return x.mean(-1, keepdims=True, dtype=np.float64)


FORMS = ("fp32", "bf16", "fp16")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "arithmetic",
    [{}, {"mean_of": running_mean}, {"mean_of": reversed_mean}, {"mean_of": wide_mean}],
    ids=["pairwise sums", "a running sum", "from the end", "in float64"],
)
def test_right_kernels_are_explained(arithmetic: dict[str, Any], form: str) -> None:
    given = inputs((16, 128), form)
    result = judged(given, layernorm(**given, **arithmetic), form)
    assert result.explanation is EXPLAINED, result.message
    assert result.rounding_ratio <= 1.05


def summed_by_threads(terms: Array, form: str, threads: int) -> Array:
    """Return the sums down the rows as torch has them on a CPU: each thread stores its totals."""
    total = np.zeros(terms.shape[1], F)
    length = -(-len(terms) // threads)
    for at in range(0, len(terms), length):
        part = np.zeros(terms.shape[1], F)
        for row in terms[at : at + length]:
            part = stored(part + row, form)
        total = total + part
    return stored(total, form)


@pytest.mark.parametrize(("form", "threads"), [("fp16", 1), ("bf16", 3)])
def test_sums_are_explained_by_the_totals_that_threads_store(form: str, threads: int) -> None:
    """Their terms are rounded otherwise than the reference's, so that near ties go either way."""
    random = np.random.default_rng(3)
    raw = {"x": random.normal(10, 1, (300, 40)), "dy": random.normal(size=(300, 40))}
    raw |= {"mean": raw["x"].mean(-1, keepdims=True), "rstd": 1 + 0.1 * random.random((300, 1))}
    given = {name: stored(raw.get(name, np.ones(40)), form) for name in ("gamma", *raw)}
    xhat = given["x"] * given["rstd"] - given["mean"] * given["rstd"]
    right = given["dy"] * xhat
    for terms, expected in ((right, EXPLAINED), (right[:-1], UNEXPLAINED)):
        dgamma = summed_by_threads(terms, form, threads)
        answer = judge(
            graphs("layernorm_bw", given), given, {"dgamma": dgamma}, {"dgamma": form}, (form,)
        )
        assert answer.explanation is expected, answer.message


@pytest.mark.parametrize(("factor", "expected"), [(1.0, EXPLAINED), (1.02, UNEXPLAINED)])
def test_the_tail_of_a_tensor_may_store_what_the_rest_does_not(
    factor: float, expected: Explanation
) -> None:
    """So torch's rsqrt does on a CPU: behind the last whole vector a root is rounded first."""
    given = {"x": stored(np.random.default_rng(0).uniform(0.25, 4, (31, 33)), "bf16")}
    y = stored(1 / np.sqrt(given["x"]), "bf16")
    y.reshape(-1)[992:] = stored(factor / stored(np.sqrt(given["x"]), "bf16"), "bf16").reshape(-1)[
        992:
    ]
    answer = judge(graphs("rsqrt", given), given, {"y": y}, {"y": "bf16"}, ("bf16",))
    assert answer.explanation is expected, answer.message


@pytest.mark.parametrize(("wrong", "expected"), [(-1, EXPLAINED), (0, UNEXPLAINED)])
def test_what_is_subnormal_may_be_0_as_where_an_exponential_overflows(
    wrong: int, expected: Explanation
) -> None:
    given = {"x": stored(np.linspace(-80, -104, 64), "fp32")}
    with np.errstate(over="ignore"):
        y = F(1) / (F(1) + np.exp(-given["x"].astype(F)))
    y[wrong] = 0
    answer = judge(graphs("sigmoid", given), given, {"y": y}, {"y": "fp32"})
    assert answer.explanation is expected, answer.message


def test_rows_of_one_value_are_no_sign_that_a_sharper_arithmetic_is_the_kernel_s() -> None:
    random = np.random.default_rng(0)
    given = {"x": stored(random.normal(size=(200, 1)), "bf16")}
    right = given["x"] / (1 + np.exp(-given["x"]))
    y = stored(right * (1 + 2.0**-8 * random.uniform(-1, 1, right.shape)), "bf16")
    answer = judge(graphs("silu", given), given, {"y": y}, {"y": "bf16"}, ("bf16",))
    assert answer.explanation is EXPLAINED, answer.message


def test_an_input_that_is_stored_with_fewer_digits_than_it_has_is_a_fault() -> None:
    given = inputs()
    rounded = {**given, "x": round_to(given["x"], "bf16")}
    result = judged(given, stored(layernorm(**rounded), "bf16"), "bf16")
    assert result.explanation is UNEXPLAINED
    assert "x is stored in bf16" in result.message


def test_rounding_that_leaves_nothing_is_inconclusive() -> None:
    given = {**inputs((32, 64)), "beta": np.zeros(64), "x": np.full((32, 64), 0.1, F)}
    result = judged(given, np.full((32, 64), 3e-5))
    assert result.explanation is Explanation.inconclusive
    assert "the kernel's own rounding is larger than the output" in result.reason


def test_inf_is_right_where_the_reference_is() -> None:
    x = np.array([1.0, 4e4, -4e4, 3.0])
    graph = [trace(lambda x: {"y": x * 2.0}, {"x": x})]
    answers = [
        judge(graph, {"x": x}, {"y": np.array(y)}, {"y": "fp16"}, ["fp16"]).explanation
        for y in ([2, np.inf, -np.inf, 6], [2, np.inf, np.inf, 6], [2, 65504, -np.inf, 6])
    ]
    assert [answer is EXPLAINED for answer in answers] == [True, False, False]


@pytest.mark.parametrize("largest", [65504.0, np.inf])
def test_a_sum_at_the_end_of_a_format_may_overflow_or_not(largest: float) -> None:
    terms = np.random.default_rng(0).uniform(1, 2, (8, 64))
    terms *= 65519.999 / terms.sum(1, keepdims=True)  # from 65520 on, fp16 has inf
    terms[1:] /= 2
    y = stored(terms.sum(1), "fp16")
    y[0] = largest
    answer = judge(graphs("sum", {"x": terms}), {"x": terms}, {"y": y}, {"y": "fp16"})
    assert answer.explanation is EXPLAINED, answer.message


@pytest.mark.parametrize(
    ("size", "flush", "expected"),
    [(1.0, True, EXPLAINED), (1.0, False, UNEXPLAINED), (2.0, True, UNEXPLAINED)],
)
def test_zero_is_right_for_the_smallest_normal_number_where_a_program_flushes(
    size: float, flush: bool, expected: Explanation
) -> None:
    given = {"x": np.array([[size, 0.0]] * 8) * 2.0**-126}
    program, y = Program(flush=flush), np.zeros(8)
    answer = judge(graphs("sum", given), given, {"y": y}, {"y": "fp32"}, programs=[program])
    assert answer.explanation is expected


@pytest.mark.parametrize("outside", [5, 6])
def test_a_factor_is_certain_where_it_moves_six_groups_into_their_cells(outside: int) -> None:
    z = np.array([5.0] * outside + [-3.0] * 10 + [-7.0] * 30)
    slope = np.where(z == -7, 1.0, -1.0)
    cells = {"rstd": (z, slope, np.arange(z.size), np.full(8, 2.0**-24))}
    (factor,) = common_of_cells(cells)
    assert factor.is_certain == (outside == 6)


def test_no_stored_value_that_overflows_explains_an_output() -> None:
    given = inputs(form="fp16")
    given["x"] = stored(2000 * given["x"], "fp16")  # its variance is no fp16
    y = np.broadcast_to(given["beta"], given["x"].shape)
    assert judged(given, y, "fp16").explanation is UNEXPLAINED


def test_a_small_factor_of_all_rows_is_found_in_bf16() -> None:
    given = inputs((64, 1024), "bf16")
    result = judged(given, layernorm(**given, scale=1 + 4e-7), "bf16")
    assert result.explanation is not EXPLAINED, result.message


def test_unknown_outputs_and_shapes_are_refused() -> None:
    given = inputs((8, 32))
    ways = graphs("layernorm_fw", given, epsilon=1e-5)
    with pytest.raises(ValueError, match="it has y, mean, rstd"):
        judge(ways, given, {"z": given["x"]}, {"z": "fp32"})
    with pytest.raises(ValueError, match="its reference"):
        judge(ways, given, {"y": given["x"][:4]}, {"y": "fp32"})


# Tolerances


def rounded_everywhere(x: Array, gamma: Array, beta: Array, *, count: int = 256) -> Array:
    """Return LayerNorm whose every operation is stored, in an order that no reference has."""

    def s(values: Array) -> Array:
        return stored(values, "bf16")

    x, gamma, beta = (np.asarray(a, F) for a in (x, gamma, beta))
    halves = np.split(x, 2, -1)
    mean = s(s(halves[0].sum(-1, keepdims=True)) + s(halves[1].sum(-1, keepdims=True)))
    centered = s(x - s(mean / F(x.shape[-1])))
    squares = np.split(s(centered * centered), 2, -1)
    total = s(s(squares[0].sum(-1, keepdims=True)) + s(squares[1].sum(-1, keepdims=True)))
    rstd = s(1 / s(np.sqrt(s(s(total / F(count)) + F(1e-5)))))
    return s(s(s(centered * gamma) * rstd) + beta)


def judged_with(
    given: Mapping[str, Array], y: Array, form: str, tolerance: Tolerance, **more: Any
) -> Judgment:
    ways = graphs("layernorm_fw", given, epsilon=1e-5)
    narrow = () if form == "fp32" else (form,)
    return judge(ways, given, {"y": y}, {"y": form}, narrow, tolerances={"y": tolerance}, **more)


def right_y(given: Mapping[str, Array]) -> Array:
    (graph,) = graphs("layernorm_fw", given, ways=0, epsilon=1e-5)
    return exact(graph, given, outputs=["y"])[graph.outputs["y"].id]


def is_green(given: Mapping[str, Array], y: Array, tolerance: Tolerance) -> bool:
    return not tolerance.failing(np.asarray(y, np.float64), right_y(given)).any()


@pytest.mark.parametrize("form", FORMS)
def test_the_tolerances_of_the_advice_pass_a_right_kernel_on_other_seeds(form: str) -> None:
    given = inputs(form=form)
    judgment = judged_with(given, stored(layernorm(**given), form), form, Tolerance(rtol=1e-9))
    assert judgment.explanation is EXPLAINED
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


def test_advice_is_about_errors_from_the_values_that_tolerances_compare_with() -> None:
    given = inputs()
    expected = {"y": right_y(given) + 0.5}
    judgment = judged_with(given, layernorm(**given), "fp32", Tolerance(0.1), expected=expected)
    advice = judgment.advice("y")
    assert advice is not None
    assert advice.atol > 0.5


@pytest.mark.parametrize("sampled", [reach.SAMPLED, 2**12], ids=["whole", "sampled"])
@pytest.mark.parametrize(
    ("count", "tolerance", "expected", "words"),
    [
        (256, Tolerance(rtol=0.016, atol=1e-5), EXPLAINED, "Rounding explains it"),
        (255, Tolerance(atol=0.03), Explanation.inconclusive, "The test may fail for another"),
    ],
    ids=["right", "N - 1"],
)
def test_a_red_output_is_acquitted_unless_a_fault_is_why_it_fails(
    count: int,
    tolerance: Tolerance,
    expected: Explanation,
    words: str,
    sampled: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reach, "SAMPLED", sampled)
    given = inputs(form="bf16")
    y = rounded_everywhere(**given, count=count)
    answer = judged_with(given, y, "bf16", tolerance).outputs["y"]
    assert not is_green(given, y, tolerance)
    assert answer.explanation is expected, answer.message
    assert answer.message.startswith(words)
