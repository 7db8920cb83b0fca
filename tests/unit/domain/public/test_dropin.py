"""`gonogo.compare(actual, expected)`: it passes and fails as the assertions that it replaces,
stores the numbers of the definition, and judges in full."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import gonogo
from gonogo import closeness, emulator
from gonogo.arithmetic import formats
from gonogo.arithmetic.formats import FORMATS, step
from gonogo.closeness import Gate
from gonogo.judging.inputs import generate, quantise
from gonogo.judgment import Tolerance
from gonogo.judgment.statistics import statistics_of
from gonogo.public import handover, recorded, tensors
from gonogo.public.recorded import Comparison
from gonogo.spec.test_spec import TestSpec
from gonogo.workloads import exact_outputs
from torch_interpreter import run_in_torch

TEST = TestSpec.parse({"kernel": "layernorm_bw", "shape": [1, 32, 256]})
GATE = {"rtol": 1e-3, "atol": 0.5}


@pytest.fixture
def heard() -> Iterator[list[Comparison]]:
    comparisons: list[Comparison] = []
    stop = recorded.listen(comparisons.append)
    yield comparisons
    stop()


@pytest.fixture(scope="module")
def case() -> Callable[[str], tuple[Any, Any, dict[str, Any]]]:
    """Return a function of a build: its dx, the expected dx in float64, and the kernel's inputs."""
    raw = generate(TEST, 0)
    given = quantise(TEST, raw)
    expected = exact_outputs(TEST, raw)["dx"].reshape(TEST.shape)
    inputs = {name: np.asarray(array).reshape(TEST.shape_of(name)) for name, array in given.items()}
    return lambda build: (
        emulator.run(TEST, given, build)["dx"].reshape(TEST.shape),
        expected,
        inputs,
    )


def round_to(values: Any, form: str) -> NDArray[np.float32]:
    return formats.round_to(values, form).astype(np.float32)


def noisy(seed: int = 0, size: int = 500) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    chance = np.random.default_rng(seed)
    expected = chance.standard_normal(size)
    return round_to(expected + 0.01 * chance.standard_normal(size), "bf16"), expected


def test_the_numbers_are_those_of_the_definition() -> None:
    expected = np.random.default_rng(0).normal(size=(16, 64))
    output = formats.round_to(expected * 1.01, "bf16")
    nowhere = np.zeros(output.shape, np.bool_)
    defined = asdict(
        statistics_of(output, expected, expected, "bf16", nowhere, Tolerance(1e-3, 0.05))
    )
    numbers = closeness.numbers(output, expected, Gate(1e-3, 0.05), "bf16")
    needed = numbers.pop("needed_atol")
    assert [float(rtol) for rtol in needed] == list(defined.pop("needed_atol"))
    same = defined.keys() & numbers.keys()
    assert {"max_abs", "rms", "pcc_deficit", "ulp_max", "ulp_p99", "tolerance_ratio"} < same
    assert {name: numbers[name] for name in same} == pytest.approx(
        {name: defined[name] for name in same}, rel=1e-12
    )


@pytest.mark.parametrize("form", ["fp32", "bf16", "fp16", "bfp8_b"])
def test_the_steps_of_a_format_are_those_of_the_judge(form: str) -> None:
    chance = np.random.default_rng(0)
    values = chance.normal(size=(20, 40)) * 2.0 ** chance.integers(-30, 18, (20, 40))
    values[0, :3] = 0.0, 2.0**-140, FORMATS["fp16"].largest * 2
    assert np.array_equal(closeness.step(values, form), step(values, form))
    assert np.array_equal(closeness.rounded(values, form), formats.round_to(values, form))


SPECIAL = [0.0, -0.0, 1.0, 1.0 + 1e-7, -3.0, np.inf, -np.inf, np.nan, 1e-300]


def test_how_many_times_is_told_in_three_digits_also_where_they_round_up_to_a_thousand() -> None:
    expected = {
        0.04123: "0.0412",
        8.0: "8",
        999.4: "999",
        999.6: "1,000",
        12345.0: "12,300",
        1e7: "over 10 million",
    }
    assert {value: recorded.factor(value) for value in expected} == expected


@pytest.mark.parametrize("equal_nan", [True, False])
def test_red_and_green_are_numpy_s(equal_nan: bool) -> None:
    chance = np.random.default_rng(1)
    seen = set()
    for _ in range(150):
        actual, expected = chance.choice(SPECIAL, 3), chance.choice(SPECIAL, 3)
        expected = np.where(chance.random(3) < 0.8, actual, expected)
        rtol, atol = chance.choice([0.0, 1e-7, 1.0]), chance.choice([0.0, 1.0])
        green = bool(np.isclose(actual, expected, rtol=rtol, atol=atol, equal_nan=equal_nan).all())
        seen.add(green)
        with pytest.raises(AssertionError) if not green else _nothing():
            gonogo.assert_allclose(actual, expected, rtol=rtol, atol=atol, equal_nan=equal_nan)
    assert seen == {True, False}


def _nothing() -> Any:
    from contextlib import nullcontext

    return nullcontext()


def test_a_message_rebuilds_the_call(heard: list[Comparison]) -> None:
    with pytest.raises(AssertionError) as raised:
        gonogo.compare(
            np.array([[1.0, 2.0], [3.0, 4.5]]),
            [[1, 2], [3, 4]],
            rtol=0.1,
            name="after",
            msg="the fix is gone",
        )
    first, second, place, unjudged = str(raised.value).split("\n")
    assert first == "the fix is gone"
    assert second == "after: actual: 1 of 4 values outside rtol 0.1, atol 0 (tolerance ratio 1.25)"
    assert place == "  actual: worst at [1, 1]: got 4.5, expected 4.0, fp64"
    assert "nobody can say whether rounding explains the error (kernel missing)" in unjudged
    (only,) = heard
    assert (only.verdict, only.within, only.name, only.tolerance) == (
        "not_judged",
        False,
        "after",
        {"rtol": 0.1, "atol": 0.0},
    )


@pytest.mark.parametrize(
    ("actual", "expected", "gate", "words"),
    [
        (
            [1.0, np.nan],
            [1.0, 2.0],
            {"atol": 1},
            "1 of 2 values are not finite on one side only (1 nan)",
        ),
        (np.ones((2, 3)), np.ones((3, 2)), {}, "shapes differ: [2, 3], expected [3, 2]"),
        ([1.0, -2.0, 3.0], [1.0, 2.0, 3.0], {"pcc": 0.9}, "PCC 0.397"),
        (np.array([1.0, 1 + 2**-20], "f4"), [1.0, 1.0], {"ulp": 2}, "8 ULP above 2"),
        ({"y": 1.0}, {"mean": 1.0}, {}, "the outputs differ: y; expected mean"),
    ],
)
def test_each_comparator_says_what_it_misses(
    actual: Any, expected: Any, gate: dict[str, float], words: str
) -> None:
    with pytest.raises(AssertionError) as raised:
        gonogo.compare(actual, expected, **gate)
    assert words in str(raised.value)


def test_what_differs_in_nothing_is_green_whatever_is_declared() -> None:
    for gate in ({}, {"pcc": 0.99}, {"frobenius": 0.0}, {"ulp": 0}):
        assert gonogo.compare(np.ones(4), 1.0, **gate).within
    assert gonogo.assert_with_pcc(np.ones(3), np.ones(3)) == (True, "PCC: 1.0")
    assert gonogo.compare([np.inf, 1.0], [np.inf, 1.0]).within
    assert gonogo.compare(np.zeros((0, 3)), np.zeros((0, 3))).within


def test_what_can_t_be_compared_is_refused() -> None:
    with pytest.raises(TypeError, match="actual must be an array of real numbers"):
        gonogo.compare(["a"], [1.0])
    with pytest.raises(TypeError, match="unexpected keyword argument 'epsilon'"):
        gonogo.compare([1.0], [1.0], epsilon=1e-5)
    with pytest.raises(ValueError, match="pcc must be between -1 and 1; got 2"):
        gonogo.compare([1.0], [1.0], pcc=2)
    with pytest.raises(ValueError, match="atol must be a number from 0; got nan"):
        gonogo.compare([1.0], [1.0], atol=float("nan"))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"rtol": "1e-3"}, "rtol: must be a number (allowed: a number such as 1e-3, or None); got"),
        ({"atol": True}, "atol: must be a number"),
        ({"pcc": [0.9]}, "pcc: must be a number"),
        ({"ulp": np.ones(2)}, "ulp: must be a number"),
        ({"equal_nan": "no"}, "equal_nan: must be true or false (allowed: True, False); got 'no'"),
        ({"kernel": 7}, "kernel: must name a kernel (allowed: the name of a kernel, or an object"),
        ({"inputs": [np.ones(99)]}, "inputs: must map names to values (allowed: such as {"),
        ({"raw": 7}, "raw: must map names to values (allowed: such as {"),
        ({"output": 3}, "output: must be text (allowed: such as 'y', or None); got 3"),
        ({"arithmetic": 3}, "arithmetic: must be text (allowed: such as 'tt-train', or None)"),
    ],
)
def test_an_argument_of_a_wrong_type_is_named(given: dict[str, Any], words: str) -> None:
    with pytest.raises(TypeError) as refused:
        gonogo.compare([1.0], [1.0], **given)
    (line,) = str(refused.value).splitlines()
    assert line.startswith(words)
    assert "; got " in line


def test_a_number_of_any_library_is_a_tolerance() -> None:
    for number in (np.float32(0.1), np.array(0.1), np.int64(1), 1):
        assert gonogo.compare([1.0], [1.0], rtol=number).within
    for call in (gonogo.compare, lambda: gonogo.compare([1.0]), lambda: gonogo.compare("y", [1.0])):
        with pytest.raises(TypeError, match=r"allowed: compare\(actual, expected, \.\.\.\) and "):
            call()


def test_a_float32_array_of_bf16_values_is_one_of_bf16() -> None:
    actual, expected = noisy()
    assert tensors.read(actual, "actual").format == "bf16"
    assert tensors.read(expected.astype("f4"), "actual").format == "fp32"
    assert tensors.read(np.arange(8, dtype="f4"), "actual").format == "fp32", (
        "a few whole numbers say nothing"
    )
    assert tensors.read(np.float16([1, 2]), "actual").format == "fp16"
    assert tensors.read([1, 2], "actual").format is None


def test_a_tolerance_below_some_values_own_rounding_is_told() -> None:
    """Half an ulp of bf16 is .0625 at 30: the published gate that a right kernel fails."""
    values = np.full(64, 30.0)
    values[:32] = np.linspace(1.0, 1.9, 32)
    comparison = gonogo.compare(round_to(values, "bf16"), round_to(values, "bf16"), atol=0.06)
    assert "and at some values only 0.96 times: a right kernel can fail" in comparison.words


def test_a_right_kernel_passes_and_a_wrong_one_is_hollow(
    case: Any, heard: list[Comparison]
) -> None:
    for build, verdict in (("correct", "pass"), ("double-subtract", "pass_by_tolerance")):
        actual, expected, inputs = case(build)
        raw = {
            name: array.reshape(TEST.shape_of(name)) for name, array in generate(TEST, 0).items()
        }
        comparison = gonogo.compare(
            actual,
            expected,
            **GATE,
            kernel="layernorm_bw",
            inputs=inputs,
            raw=raw,
            arithmetic="tt-train",
        )
        assert (comparison.verdict, comparison.within, comparison.hollow) == (
            verdict,
            True,
            build != "correct",
        )
        assert comparison.spec == {
            "kernel": "layernorm_bw",
            "shape": [1, 32, 256],
            "tolerance": GATE,
        }
    assert [call.verdict for call in heard] == ["pass", "pass_by_tolerance"]
    assert "dx: s1 is subtracted twice in P_centered: explains" in heard[1].words
    numbers = heard[1].outputs["dx"]
    assert (numbers["verdict"], numbers["explanation"]) == ("pass_by_tolerance", "unexplained")
    assert numbers["rounding_ratio"] > 100
    assert numbers["against_float64"]["tolerance_ratio"] == pytest.approx(
        numbers["tolerance_ratio"], rel=1e-12
    ), "the same reference"


def test_an_error_that_no_term_explains_is_not_called_right(case: Any) -> None:
    actual, expected, inputs = case("correct")
    spoiled = round_to(
        actual + 0.02 * np.random.default_rng(0).standard_normal(actual.shape), "bf16"
    )
    comparison = gonogo.compare(
        spoiled, expected, **GATE, kernel="layernorm_bw", inputs=inputs, arithmetic="tt-train"
    )
    assert comparison.hollow
    assert "values are off, in all 32 rows" in comparison.words
    assert "fault" not in comparison.outputs["dx"]


def test_a_false_alarm_is_red_and_says_so(case: Any) -> None:
    actual, expected, inputs = case("correct")
    with pytest.raises(
        AssertionError,
        match=r"(?s)dx: .* of 8192 values outside.*verdict fail_by_tolerance.*Red and right",
    ):
        gonogo.assert_close(
            actual,
            expected,
            rtol=1e-3,
            atol=1e-4,
            kernel={"kernel": "layernorm_bw"},
            inputs=inputs,
            arithmetic="tt-train",
        )


@pytest.mark.parametrize("wide", [False, True])
def test_a_right_kernel_beside_a_wrong_expectation_is_told_so(wide: bool) -> None:
    """The expectation divides the variance by N - 1; the kernel doesn't."""
    chance = np.random.default_rng(0)
    x, ones, zeros = (
        chance.normal(size=(16, 64)).astype("f4"),
        np.ones(64, "f4"),
        np.zeros(64, "f4"),
    )
    centered = x - x.mean(-1, keepdims=True)
    y, expected = (
        centered / np.sqrt(x.var(-1, keepdims=True, ddof=ddof) + np.float32(1e-5))
        for ddof in (0, 1)
    )
    with pytest.raises(AssertionError) as raised:
        gonogo.compare(
            y,
            expected.astype("f8" if wide else "f4"),
            rtol=1e-3,
            atol=1e-3,
            kernel="layernorm_fw",
            inputs={"x": x, "gamma": ones, "beta": zeros},
            epsilon=1e-5,
        )
    message = str(raised.value)
    assert "the values that the test expects are wrong" in message
    assert "y: the expected values are off from float64: variance divides by N - 1" in message
    assert "tolerance turns" not in message, "another tolerance is no remedy"


def test_an_expectation_that_rounding_explains_is_not_called_wrong(case: Any) -> None:
    actual, expected, inputs = case("correct")
    with pytest.raises(AssertionError) as raised:
        gonogo.compare(actual, expected, rtol=0, atol=1e-6, kernel="layernorm_bw", inputs=inputs)
    assert "the tolerance is tighter than the formats allow" in str(raised.value)
    assert "expected values" not in str(raised.value)


def rms(x: Any, epsilon: float = 1e-6) -> dict[str, Any]:
    """Return x by its root mean square."""
    square = np.mean(x * x, axis=-1, keepdims=True)
    rstd = 1 / np.sqrt(square + epsilon)
    return {"y": x * rstd}


def test_a_function_judges_a_comparison_like_a_kernel(heard: list[Comparison]) -> None:
    x = np.random.default_rng(0).normal(size=(16, 64)).astype("f4")
    right = (x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(1e-3))).astype("f4")
    exact = rms(x.astype("f8"), 1e-3)["y"]
    given: dict[str, Any] = {"reference": rms, "inputs": {"x": x}, "parameters": {"epsilon": 1e-3}}
    for factor in (1, 1.001):
        gonogo.compare(right * np.float32(factor), exact, rtol=1e-2, output="y", **given)
    assert [call.verdict for call in heard] == ["pass", "pass_by_tolerance"]
    assert heard[1].spec is None
    assert "y: rstd has a factor of 1.001" in heard[1].words
    with pytest.raises(AssertionError, match="the expected values are off from float64: rstd"):
        gonogo.compare(right, exact * 1.001, rtol=1e-5, output="y", **given)
    with pytest.raises(TypeError, match="unexpected keyword argument 'shape'"):
        gonogo.compare(right, exact, shape=[3], **given)
    with pytest.raises(TypeError, match="reference: must be a function"):
        gonogo.compare(right, exact, reference="rms")


def test_the_formats_are_those_of_the_tensors(case: Any) -> None:
    actual, expected, inputs = case("correct")
    wide = {**inputs, "gamma": (inputs["gamma"] + np.float32(2.0**-20)).astype("f4")}
    # beside a bf16 output a float32 input is rather what was drawn than what the kernel was given
    refused = gonogo.compare(actual, expected, **GATE, kernel="layernorm_bw", inputs=wide)
    assert refused.verdict == "not_judged"
    assert "gamma[0]: isn't a bf16 value" in refused.problem
    comparison = gonogo.compare(
        expected.astype("f4"), expected, **GATE, kernel="layernorm_bw", inputs=wide
    )
    assert comparison.spec is not None
    assert comparison.spec["numerics"] == {"output": "fp32", "input": {"gamma": "fp32"}}


def test_an_output_in_a_format_without_arithmetic_is_compared_and_not_judged(case: Any) -> None:
    actual, expected, inputs = case("correct")
    narrow = actual.astype(ml_dtypes.float8_e4m3fnuz)
    gate = {"rtol": 1.0, "atol": 1.0}
    comparison = gonogo.compare(narrow, expected, **gate, kernel="layernorm_bw", inputs=inputs)
    assert (comparison.verdict, comparison.within) == ("not_judged", True)
    assert "dx: is float8_e4m3fnuz, a format that can't be judged" in comparison.problem


def test_several_outputs_are_one_comparison(case: Any) -> None:
    given = quantise(TEST, generate(TEST, 0))
    _, _, inputs = case("correct")
    outputs = {
        name: array.reshape(TEST.shape_of(name))
        for name, array in emulator.run(TEST, given, "correct").items()
    }
    expected = {
        name: array.reshape(TEST.shape_of(name))
        for name, array in exact_outputs(TEST, generate(TEST, 0)).items()
    }
    comparison = gonogo.compare(
        outputs, expected, **GATE, kernel="layernorm_bw", inputs=inputs, arithmetic="tt-train"
    )
    assert (comparison.verdict, set(comparison.outputs)) == ("pass", {"dx", "dgamma", "dbeta"})


def test_who_takes_the_arrays_judges_them(case: Any) -> None:
    arrays: list[recorded.Arrays] = []
    stop = recorded.take(arrays.append)
    actual, expected, inputs = case("double-subtract")
    comparison = gonogo.compare(
        actual, expected, **GATE, kernel="layernorm_bw", inputs=inputs, name="n" * 300
    )
    assert (comparison.verdict, comparison.words) == (
        "not_judged",
        "sent to the worker, which judges it",
    )
    with pytest.raises(AssertionError):
        gonogo.compare(actual, expected, rtol=0, atol=1e-6, kernel="layernorm_bw", inputs=inputs)
    assert gonogo.compare("layernorm_bw", **inputs, dx=actual, arithmetic="fused") is None
    stop()
    first, _, third = arrays
    assert (first.fields["kernel"], first.name, first.arithmetic) == (
        "layernorm_bw",
        "n" * handover.MAX_NAME,
        None,
    )
    assert (first.tensors["dx"] == actual).all()
    assert (third.arithmetic, set(third.tensors)) == ("fused", {*inputs, "dx"})
    assert (
        gonogo.compare(actual, expected, **GATE, kernel="layernorm_bw", inputs=inputs).verdict
        == "pass_by_tolerance"
    )


TORCH = """
import torch, gonogo
values = torch.linspace(-3, 3, 999)
for kind in (torch.bfloat16, torch.float16, torch.float32, torch.float64):
    narrow = values.to(kind).requires_grad_()
    numbers = gonogo.compare(narrow, values.double(), ulp=1).outputs["actual"]
    print(numbers["dtype"], numbers["format"], numbers["ulp_max"])
print(gonogo.compare(values.bfloat16().float(), values, pcc=0.99).outputs["actual"]["format"])
gonogo.assert_close((values, values[:3]), (values, values[:3]))
gonogo.assert_close(torch.tensor([1, 2]), torch.tensor([1, 2]))
for actual, expected in ((values, values.double()), (values, values + 0.1), (values, values[:5])):
    for compare in (gonogo.assert_close, torch.testing.assert_close):
        try:
            compare(actual, expected)
        except AssertionError as problem:
            print(str(problem).splitlines()[0][:40])
for scale in (0.5, 1.5):  # times what torch allows
    near = values + scale * (1e-5 + 1.3e-6 * values.abs())
    for compare in (gonogo.assert_close, torch.testing.assert_close):
        try:
            print(scale, compare(near, values))
        except AssertionError:
            print(scale, "red")
"""


def test_torch_s_tensors_and_its_defaults() -> None:
    assert run_in_torch(TORCH).splitlines() == [
        "torch.bfloat16 bf16 0.0",
        "torch.float16 fp16 0.0",
        "torch.float32 fp32 0.0",
        "torch.float64 fp64 0.0",
        "bf16",
        "actual: dtype torch.float32, expected to",
        "The values for attribute 'dtype' do not ",
        "actual: 999 of 999 values outside rtol 1",
        "Tensor-likes are not close!",
        "actual: shapes differ: [999], expected [",
        "The values for attribute 'shape' do not ",
        *("0.5 None", "0.5 None", "1.5 red", "1.5 red"),
    ]


def test_what_was_to_be_judged_and_could_not_be_is_recorded_as_a_problem(
    case: Any, heard: list[Comparison]
) -> None:
    actual, expected, inputs = case("correct")
    gonogo.compare(actual, expected, **GATE, kernel="layernorm_bw", inputs=inputs, epsilon=-1)
    (comparison,) = heard
    assert (comparison.verdict, comparison.within) == ("not_judged", True)
    assert comparison.problem.startswith("test.epsilon: is too small")
    # the gate stays a gate
    with pytest.raises(AssertionError):
        gonogo.compare(
            actual, expected + 1, **GATE, kernel="layernorm_bw", inputs=inputs, epsilon=-1
        )
