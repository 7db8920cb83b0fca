"""Kernels whose arithmetic nobody named, as a stranger writes them: right ones and wrong ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gonogo.judging.judging import SeedJudgement, judge
from gonogo.numerics.formats import round_to
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.verdicts import Explanation, Verdict

Floats = NDArray[np.float32]
EPSILON = np.float32(1e-5)
LOOSE = {"rtol": 2e-2, "atol": 2e-2}


def spec(kernel: str, shape: tuple[int, int], form: str, **fields: Any) -> TestSpec:
    """A test whose tensors all have one format."""
    return TestSpec.parse(
        {
            "kernel": kernel,
            "shape": list(shape),
            "epsilon": 1e-5,
            "numerics": {"input": form, "output": form, **fields.pop("numerics", {})},
            **({"tolerance": LOOSE} | fields),
        }
    )


SHAPE = (32, 384)


def inputs(form: str, shape: tuple[int, int] = SHAPE, **changes: Floats) -> dict[str, Floats]:
    """x, gamma, beta and dy of a format."""
    generator = np.random.default_rng(sum(shape))
    features = shape[1]
    drawn = {
        "x": generator.normal(size=shape),
        "gamma": 1 + 0.3 * generator.normal(size=features),
        "beta": 0.5 * generator.normal(size=features),
        "dy": generator.normal(size=shape),
    } | changes
    return {name: round_to(values, form) for name, values in drawn.items()}


def judged(
    kernel: str, form: str, given: dict[str, Floats], outputs: dict[str, Floats], **fields: Any
) -> SeedJudgement:
    """Judge the outputs with no arithmetic named."""
    if kernel.endswith("_bw"):
        fields["numerics"] = {"statistics": "own"}
    test = spec(kernel, given["x"].shape, form, **fields)  # type: ignore[arg-type]
    chosen = {name: given[name] for name in test.input_names}
    rounded = {name: round_to(values, form) for name, values in outputs.items()}
    return judge(test, chosen, chosen, rounded, arithmetic=None, produced=tuple(rounded))


def rms_norm(given: dict[str, Floats]) -> Floats:
    """RMSNorm in float32."""
    x = given["x"]
    return x / np.sqrt(np.square(x).mean(axis=1, keepdims=True) + EPSILON) * given["gamma"]


def layer_norm(
    given: dict[str, Floats],
    *,
    mean: Callable[[Floats], Floats] = lambda x: x.mean(axis=1, keepdims=True),
    divisor: int = 0,
    left_out: int = 0,
) -> Floats:
    """LayerNorm in float32; `divisor` less than N, and columns left out of the variance."""
    x = given["x"]
    centered = x - mean(x)
    squares = np.square(centered)
    if left_out:
        squares[:, -left_out:] = 0
    variance = squares.sum(axis=1, keepdims=True) / np.float32(x.shape[1] - divisor)
    normalized = centered / np.sqrt(variance + EPSILON)
    return np.asarray(normalized * given["gamma"] + given["beta"], np.float32)


@pytest.mark.parametrize("form", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("shape", [(32, 1024), (33, 33), (5, 300)])
def test_right_kernels_pass_as_fp32_inside_in_every_format(
    form: str, shape: tuple[int, int]
) -> None:
    given = inputs(form, shape)
    for kernel, y in (("rmsnorm_fw", rms_norm(given)), ("layernorm_fw", layer_norm(given))):
        result = judged(kernel, form, given, {"y": y})
        assert (result.verdict, result.arithmetic) == (Verdict.pass_, "fp32-inside")


@pytest.mark.parametrize("form", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("factor", [1.004, 1.001])
def test_a_factor_that_a_loose_tolerance_lets_through_is_a_hollow_pass(
    form: str, factor: float
) -> None:
    given = inputs(form)
    result = judged("rmsnorm_fw", form, given, {"y": rms_norm(given) * np.float32(factor)})
    assert result.verdict is Verdict.pass_by_tolerance
    assert (
        result.outputs["y"].statistics["fault"].startswith(f"a common factor of {factor:.3f}"[:-1])
    )


def rms_gradients(given: dict[str, Floats]) -> dict[str, Floats]:
    """The gradients of RMSNorm in float32."""
    x, dy = given["x"], given["dy"]
    rstd = 1 / np.sqrt(np.square(x).mean(axis=1, keepdims=True) + EPSILON)
    product, normalized = dy * given["gamma"], x * rstd
    s2 = (product * normalized).mean(axis=1, keepdims=True)
    return {"dx": (product - normalized * s2) * rstd, "dgamma": (dy * normalized).sum(axis=0)}


@pytest.mark.parametrize("form", ["fp32", "bf16", "fp16"])
def test_the_gradients_of_rmsnorm_have_their_faults_and_limits(form: str) -> None:
    given = inputs(form, (40, 300))
    right = rms_gradients(given)
    result = judged("rmsnorm_bw", form, given, right)
    assert (result.verdict, result.arithmetic) == (Verdict.pass_, "fp32-inside")
    for output in result.outputs.values():
        assert output.statistics["unseen_terms"] == []
        assert not any("s1" in phrase for phrase in output.statistics["detection_limits"])
    without = {**given, "gamma": np.ones_like(given["gamma"])}
    last = {name: a[:-1] if a.ndim == 2 else a for name, a in given.items()}
    rstd = 1 / np.sqrt(np.square(given["x"]).mean(axis=1, keepdims=True) + EPSILON)
    wrong = {
        "s2 is missing": {"dx": given["dy"] * given["gamma"] * rstd},
        "gamma is missing": {"dx": rms_gradients(without)["dx"]},
        "row 39 is missing from the sum": {"dgamma": rms_gradients(last)["dgamma"]},
    }
    for words, outputs in wrong.items():
        faulty = judged("rmsnorm_bw", form, given, right | outputs)
        assert faulty.explanation in (Explanation.suspect, Explanation.unexplained)
        (name,) = outputs
        assert faulty.outputs[name].statistics["fault"].startswith(words)


def test_red_wrong_kernels_are_never_acquitted() -> None:
    given = inputs("fp32", (33, 33), x=np.float32(100) + inputs("fp32", (33, 33))["x"])
    right = layer_norm(given)
    normalized = (right - given["beta"]) / given["gamma"]
    wrong = {
        "gamma": normalized + given["beta"],
        "beta": normalized * given["gamma"],
        "rstd": right * np.float32(1.01),
    }
    for name, y in wrong.items():
        result = judged(
            "layernorm_fw", "fp32", given, {"y": y}, tolerance={"rtol": 0.0, "atol": 1e-4}
        )
        assert result.verdict is Verdict.fail, name


@pytest.mark.parametrize("missing", ["nothing", "s2", "rstd"])
def test_red_gradients_far_from_zero_are_acquitted_only_if_right(missing: str) -> None:
    given = inputs("fp32", (33, 33), x=np.float32(100) + inputs("fp32", (33, 33))["x"])
    centered = given["x"] - given["x"].mean(axis=1, keepdims=True)
    rstd = 1 / np.sqrt(np.square(centered).mean(axis=1, keepdims=True) + EPSILON)
    normalized, product = centered * rstd, given["dy"] * given["gamma"]
    s2 = (product * normalized).mean(axis=1, keepdims=True)
    inside = product - product.mean(axis=1, keepdims=True)
    if missing != "s2":
        inside = inside - normalized * s2
    dx = inside if missing == "rstd" else inside * rstd
    result = judged(
        "layernorm_bw", "fp32", given, {"dx": dx}, tolerance={"rtol": 0.0, "atol": 1e-9}
    )
    right = missing == "nothing"
    assert result.verdict is (Verdict.fail_by_tolerance if right else Verdict.fail)


@pytest.mark.parametrize("form", ["fp32", "bf16", "fp16"])
def test_faint_faults_are_found(form: str) -> None:
    given = inputs(form)
    wrong = {
        "divides by N - 1": layer_norm(given, divisor=1),
        "mean stored in bf16": layer_norm(
            given, mean=lambda x: round_to(x.mean(axis=1, keepdims=True), "bf16")
        ),
        "leaves out the last 3": layer_norm(given, left_out=3),
    }
    for name, y in wrong.items():
        result = judged("layernorm_fw", form, given, {"y": y})
        if name != "mean stored in bf16" or form == "fp32":
            assert result.verdict is Verdict.pass_by_tolerance, name
        elif form == "fp16":  # no fp16 kernel stores bf16, and no term is wrong
            assert result.verdict is Verdict.suspect
        else:  # a bf16 kernel may store its mean: explained, and named
            assert result.arithmetic == "bf16: mean stored"


def test_the_fault_that_explains_the_error_is_named_with_its_share() -> None:
    given = inputs("fp32")
    for y, words in (
        (layer_norm(given, divisor=1), "the variance divides by N - 1"),
        (layer_norm(given, left_out=3), "the variance leaves out the last 3 columns"),
        (layer_norm(given) - given["beta"], "beta is missing"),
    ):
        result = judged("layernorm_fw", "fp32", given, {"y": y})
        statistics = result.outputs["y"].statistics
        assert statistics["fault"].startswith(f"{words}: explains ")
        assert statistics["fault_share"] > 0.99
    stale = layer_norm(given)
    stale[7] = stale[6]
    result = judged("layernorm_fw", "fp32", given, {"y": stale})
    assert result.outputs["y"].statistics["fault"].startswith("row 7 holds the values of row 6")


def test_column_sums_that_a_library_keeps_in_16_bits_are_explained_by_their_order() -> None:
    given = inputs("bf16", (64, 300))
    total = np.zeros(300, np.float32)
    for row in given["dy"]:
        total = round_to(total + row, "bf16")
    result = judged("layernorm_bw", "bf16", given, {"dbeta": total}, tolerance={})
    assert result.verdict is Verdict.pass_
    assert result.arithmetic == "bf16: column sum stored, column sums: rows in order"
    # without its last row it is another sum
    missing = np.zeros(300, np.float32)
    for row in given["dy"][:-1]:
        missing = round_to(missing + row, "bf16")
    assert (
        judged("layernorm_bw", "bf16", given, {"dbeta": missing}).explanation.value == "unexplained"
    )


def test_a_cancelled_variance_is_a_failure_far_from_zero_and_an_arithmetic_model_near_it() -> None:
    def by_moments(given: dict[str, Floats]) -> Floats:
        x = given["x"]
        mean = x.mean(axis=1, keepdims=True)
        variance = np.square(x).mean(axis=1, keepdims=True) - np.square(mean)
        y = (x - mean) / np.sqrt(variance + EPSILON) * given["gamma"] + given["beta"]
        return np.asarray(y, np.float32)

    for offset, explained in ((2, True), (1000, False)):
        given = inputs("fp32", x=np.float32(offset) + inputs("fp32")["x"])
        result = judged("layernorm_fw", "fp32", given, {"y": by_moments(given)})
        assert (result.explanation.value == "explained") is explained


def test_a_running_mean_over_a_ramp_is_explained_as_one() -> None:
    ramp = np.broadcast_to(np.linspace(0, 10, 8192), (4, 8192))
    given = inputs("fp32", (4, 8192), x=ramp.astype(np.float32))
    x = given["x"]

    def running(terms: Floats) -> Floats:
        mean = np.zeros(len(terms), np.float32)
        for index, column in enumerate(terms.T, 1):
            mean += (column - mean) / np.float32(index)
        return mean[:, None]

    mean = running(x)
    variance = running(np.square(x - mean))
    y = (x - mean) / np.sqrt(variance + EPSILON) * given["gamma"] + given["beta"]
    result = judged("layernorm_fw", "fp32", given, {"y": np.asarray(y, np.float32)})
    assert (result.verdict, result.arithmetic) == (Verdict.pass_, "fp32-inside, running means")


def test_welford_s_updates_in_a_single_lane_share_their_running_mean_with_y() -> None:
    ramp = np.broadcast_to(np.linspace(1, 1.01, 196), (8, 196))
    given = inputs("fp32", (8, 196), x=ramp.astype(np.float32))
    x = given["x"]
    mean, squares = np.zeros((8, 1), np.float32), np.zeros((8, 1), np.float32)
    for index, column in enumerate(x.T[:, :, None], 1):
        off = column - mean
        mean += off / np.float32(index)
        squares += off * (column - mean)
    y = (x - mean) / np.sqrt(squares / np.float32(196) + EPSILON) * given["gamma"] + given["beta"]
    result = judged("layernorm_fw", "fp32", given, {"y": np.asarray(y, np.float32)})
    name = "fp32-inside, variance by Welford's updates, running means"
    assert (result.verdict, result.arithmetic) == (Verdict.pass_, name)


def test_a_truncated_output_is_an_arithmetic_of_its_own_and_three_half_steps_are_none() -> None:
    given = inputs("bf16")
    test = spec("layernorm_fw", SHAPE, "bf16")
    chosen = {name: given[name] for name in test.input_names}
    y = layer_norm(given)
    truncated = round_to(y, "bf16", "zero")
    result = judge(test, chosen, chosen, {"y": truncated}, arithmetic=None, produced=("y",))
    assert result.arithmetic == "fp32-inside, output truncated"
    step = round_to(1.01 * truncated, "bf16", "zero")
    for off in (np.where(np.arange(SHAPE[1]) % 2, truncated, round_to(y, "bf16")), step):
        result = judge(test, chosen, chosen, {"y": off}, arithmetic=None, produced=("y",))
        assert result.explanation.value != "explained"


def test_a_tolerance_below_half_a_step_is_the_test_s_fault_and_the_advice_says_which_to_take() -> (
    None
):
    given = inputs("bf16")
    given["gamma"] = round_to(6 * given["gamma"], "bf16")
    tolerance = {"rtol": 0.0, "atol": 0.06}
    result = judged("layernorm_fw", "bf16", given, {"y": layer_norm(given)}, tolerance=tolerance)
    statistics = result.outputs["y"].statistics
    assert result.verdict in (Verdict.pass_, Verdict.fail_by_tolerance)
    assert "take atol 0.125" in statistics["advice"] or "take atol 0.0625" in statistics["advice"]
    assert 0 < statistics["red_rate"] <= 1


def test_what_could_not_have_shown_is_listed_and_acquits_of_nothing() -> None:
    # gamma and beta of this size hide in the rounding of their own output
    small = inputs("bf16", (4, 64))
    small["beta"] = np.full(64, 2.0**-20, np.float32)
    y = layer_norm(small)
    within = judged("layernorm_fw", "bf16", small, {"y": y})
    assert within.verdict is Verdict.pass_
    assert "beta" in within.outputs["y"].statistics["detection_limits"]
    red = judged("layernorm_fw", "bf16", small, {"y": y}, tolerance={"rtol": 0.0, "atol": 1e-9})
    assert red.verdict is Verdict.inconclusive


@pytest.mark.parametrize(
    ("form", "std", "is_listed", "red"),
    [
        ("fp32", 1.0, False, Verdict.fail_by_tolerance),
        ("fp32", 6.0, True, Verdict.inconclusive),
        ("fp32", 20.0, True, Verdict.fail_by_tolerance),  # far less than a rounding
        ("bf16", 1.0, False, Verdict.fail_by_tolerance),
        ("bf16", 200.0, False, Verdict.fail_by_tolerance),  # it changes no element
    ],
)
def test_an_epsilon_that_could_not_have_shown_is_a_limit_and_acquits_of_nothing(
    form: str, std: float, is_listed: bool, red: Verdict
) -> None:
    drawn = std * np.random.default_rng(3).standard_normal(SHAPE)
    given = inputs(form, x=np.asarray(drawn, np.float32))
    tight = {"rtol": 0.0, "atol": 1e-9}
    result = judged("layernorm_fw", form, given, {"y": layer_norm(given)}, tolerance=tight)
    statistics = result.outputs["y"].statistics
    limits = statistics["detection_limits"]
    assert ("epsilon" in limits) is is_listed
    assert ("epsilon (these inputs don't use it)" in limits) is (std == 200.0)
    assert ("epsilon" in statistics["unseen_terms"]) is (red is Verdict.inconclusive)
    assert result.verdict is red


def test_an_output_that_shows_epsilon_shows_that_of_all_outputs_of_the_kernel() -> None:
    # one rstd is in dx and in dgamma; the rounding of an offset hides epsilon in dgamma
    drawn = 100 + np.random.default_rng(3).standard_normal((33, 33))
    given = inputs("fp32", (33, 33), x=np.asarray(drawn, np.float32))
    x, dy = given["x"], given["dy"]
    centered = x - x.mean(axis=1, keepdims=True)
    rstd = 1 / np.sqrt(np.square(centered).mean(axis=1, keepdims=True) + EPSILON)
    product, normalized = dy * given["gamma"], centered * rstd
    s1 = product.mean(axis=1, keepdims=True)
    s2 = (product * normalized).mean(axis=1, keepdims=True)
    dx = rstd * (product - s1 - normalized * s2)
    outputs = {"dx": dx, "dgamma": (dy * normalized).sum(axis=0)}
    both = judged("layernorm_bw", "fp32", given, outputs).outputs
    assert not any(output.statistics["unseen_terms"] for output in both.values())
    alone = judged("layernorm_bw", "fp32", given, {"dgamma": outputs["dgamma"]}).outputs
    assert alone["dgamma"].statistics["unseen_terms"] == ["epsilon"]


def ramps() -> dict[str, Floats]:
    """Rows that differ by powers of two."""
    ramp = np.linspace(-1, 2, 8448) * np.array([[1.0], [2.0], [4.0], [8.0]])
    return inputs("fp32", (4, 8448), x=ramp.astype(np.float32))


def test_an_epsilon_that_another_rung_of_the_ladder_explains_is_a_limit() -> None:
    # blocked sums show it; a kernel without it could have updated its variance instead
    given = ramps()
    result = judged("layernorm_fw", "fp32", given, {"y": layer_norm(given)})
    assert result.verdict is Verdict.pass_
    assert result.arithmetic == "fp32-inside"
    assert "epsilon" in result.outputs["y"].statistics["detection_limits"]


def test_a_missing_epsilon_is_no_false_alarm_on_rows_of_any_size() -> None:
    # the rounding of the largest row once hid the smallest one's epsilon
    given = ramps()
    x = given["x"]
    centered = x - x.mean(axis=1, keepdims=True)
    variance = np.square(centered).mean(axis=1, keepdims=True)
    y = centered / np.sqrt(variance) * given["gamma"] + given["beta"]
    result = judged(
        "layernorm_fw", "fp32", given, {"y": y}, tolerance={"rtol": 1.3e-6, "atol": 1e-6}
    )
    assert result.verdict not in (Verdict.fail_by_tolerance, Verdict.pass_)


def test_a_fault_is_not_sought_in_the_error_of_a_program_that_the_kernel_does_not_have() -> None:
    # beside an offset, the program with the nearest worst element may be further off altogether
    drawn = 100 + np.random.default_rng(3).standard_normal((16, 1000))
    given = inputs("bf16", (16, 1000), x=np.asarray(drawn, np.float32))
    y = layer_norm(given)
    y[8] = y[7]
    result = judged("layernorm_fw", "bf16", given, {"y": y})
    assert "row 8 holds the values of row 7" in result.outputs["y"].statistics["fault"]


def at_random(values: Floats) -> Floats:
    """bf16, rounded up with the probability of what is cut off."""
    drawn = np.random.default_rng(11).integers(0, 2**16, values.shape, dtype=np.uint32)
    bits = np.asarray(values, np.float32).view(np.uint32) + drawn
    return (bits & np.uint32(0xFFFF0000)).view(np.float32)


@pytest.mark.parametrize("factor", [1.0, 1.001])
def test_rounding_at_random_is_explained_and_hides_no_factor(factor: float) -> None:
    # every second element of .1 % is within a step of its value, but all rows lean one way
    given = inputs("bf16", (16, 128))
    result = judged(
        "layernorm_fw", "bf16", given, {"y": at_random(layer_norm(given) * np.float32(factor))}
    )
    assert (result.explanation is Explanation.explained) is (factor == 1.0)
    expected = "fp32-inside, output rounded at random" if factor == 1.0 else "unknown"
    assert result.arithmetic == expected


def test_a_small_output_is_rounded_at_random_where_a_large_one_shows_it() -> None:
    given = inputs("bf16", (32, 20))
    x, dy = given["x"], given["dy"]
    centered = x - x.mean(axis=1, keepdims=True)
    normalized = centered / np.sqrt(np.square(centered).mean(axis=1, keepdims=True) + EPSILON)
    product = dy * given["gamma"]
    s2 = (product * normalized).mean(axis=1, keepdims=True)
    rstd = normalized[:, :1] / centered[:, :1]
    dx = rstd * (product - product.mean(axis=1, keepdims=True) - normalized * s2)
    outputs = {"dx": at_random(dx), "dbeta": at_random(dy.sum(axis=0))}
    both = judged("layernorm_bw", "bf16", given, outputs)
    assert both.arithmetic == "fp32-inside, output rounded at random"
    outputs["dbeta"] = at_random(dy[:-1].sum(axis=0))
    wrong = judged("layernorm_bw", "bf16", given, outputs).outputs["dbeta"]
    assert wrong.explanation is Explanation.unexplained


def test_what_a_later_rung_stands_in_for_is_a_limit() -> None:
    # the running sums of E[x^2] - mean^2 are as far off as another epsilon, and to the same side
    drawn = 3 + np.random.default_rng(7).standard_normal((2, 459))
    given = inputs("fp32", (2, 459), x=np.asarray(drawn, np.float32))
    centered = given["x"] - given["x"].mean(axis=1, keepdims=True)
    variance = np.square(centered).mean(axis=1, keepdims=True)
    y = centered / np.sqrt(variance + 2 * EPSILON) * given["gamma"] + given["beta"]
    result = judged("layernorm_fw", "fp32", given, {"y": y})
    assert result.arithmetic == "fp32-inside, variance as E[x^2] - mean^2, running sums"
    limits = result.outputs["y"].statistics["detection_limits"]
    assert limits == ["epsilon", "a common factor below 0.001 %"]


@pytest.mark.parametrize("factor", [1.0, 1.004])
def test_a_backward_pass_in_single_operations_has_one_arithmetic_in_all_outputs(
    factor: float,
) -> None:
    given = inputs("bf16", (40, 200))

    def stored(values: Floats) -> Floats:
        return round_to(values, "bf16")

    def mean(values: Floats) -> Floats:
        return values.mean(axis=1, keepdims=True)

    x, dy = given["x"], given["dy"]
    variance = mean(np.square(x - mean(x)))  # x.var() takes it from x, not from the stored mean
    centered = stored(x - stored(mean(x)))
    rstd = stored(1 / np.sqrt(variance + EPSILON)) * np.float32(factor)
    normalized, product = stored(centered * rstd), stored(dy * given["gamma"])
    s1, s2 = stored(mean(product)), stored(mean(stored(product * normalized)))
    outputs = {
        "dx": (product - s1 - stored(normalized * s2)) * rstd,
        "dgamma": stored(dy * normalized).sum(axis=0),
        "dbeta": dy.sum(axis=0),
    }
    judgement = judged("layernorm_bw", "bf16", given, outputs)
    explained = {
        name: output.explanation is Explanation.explained
        for name, output in judgement.outputs.items()
    }
    is_right = factor == 1
    assert explained == {"dx": is_right, "dgamma": is_right, "dbeta": True}
    if is_right:
        for name in ("mean", "x - mean", "rstd", "x^"):
            assert all(name in judgement.arithmetic.split("; ")[at] for at in (0, 1))
