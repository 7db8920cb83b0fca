"""`gonogo.compare`: it passes and fails as the assertions that it replaces, judges a kernel's
arrays without a worker, and refuses what it can't judge."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from textwrap import dedent
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import gonogo
from gonogo import emulator
from gonogo.arithmetic import formats
from gonogo.errors import FieldError, JobError
from gonogo.judging import comparison as judging
from gonogo.judging.inputs import generate, quantise
from gonogo.judging.judging import OutputJudgement, SeedJudgement
from gonogo.public import handover, recorded, tensors
from gonogo.public.recorded import Comparison
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.verdicts import Explanation, Verdict
from gonogo.workloads import exact_outputs
from pytest_plugin import in_this_process
from torch_interpreter import run_in_torch

Arrays = dict[str, NDArray[Any]]
ROOT = Path(__file__).parents[4]
TEST = TestSpec.parse({"kernel": "layernorm_bw", "shape": [1, 32, 96]})
GATE = {"rtol": 1e-3, "atol": 0.5}
KERNEL: dict[str, Any] = {"kernel": "layernorm_bw", "arithmetic": "tt-train"}
FIELDS = KERNEL | {"tolerance": GATE}
WRONG = "double-subtract"


def in_shape(arrays: Arrays) -> Arrays:
    return {name: np.reshape(array, TEST.shape_of(name)) for name, array in arrays.items()}


@cache
def given() -> Arrays:
    return in_shape(quantise(TEST, generate(TEST, 0)))


@cache
def raw() -> Arrays:
    return in_shape(generate(TEST, 0))


@cache
def outputs(build: str = "correct") -> Arrays:
    return in_shape(emulator.run(TEST, quantise(TEST, generate(TEST, 0)), build))


@cache
def expected() -> Arrays:
    return in_shape(exact_outputs(TEST, generate(TEST, 0)))


def arrays(build: str = "correct") -> Arrays:
    """Return what the kernel was given, and its dx."""
    return {**given(), "dx": outputs(build)["dx"]}


def compared(build: str = "correct", **fields: Any) -> Any:
    """Compare the dx of a build with the float64 function of what was drawn."""
    fields = KERNEL | GATE | {"inputs": given()} | fields
    return gonogo.compare(outputs(build)["dx"], expected()["dx"], **fields)


@pytest.fixture
def heard() -> Iterator[list[Comparison]]:
    comparisons: list[Comparison] = []
    stop = recorded.listen(comparisons.append)
    yield comparisons
    stop()


def round_to(values: Any, form: str) -> NDArray[np.float32]:
    return formats.round_to(values, form).astype(np.float32)


# A kernel's arrays


def test_a_right_kernel_gives_its_judgment_and_a_wrong_one_fails_with_numbers_and_the_term() -> (
    None
):
    judgment = gonogo.compare(**FIELDS, **arrays())
    assert (judgment.verdict, set(judgment.outputs)) == (Verdict.pass_, {"dx"})
    with pytest.raises(AssertionError) as raised:
        gonogo.compare(**FIELDS, **arrays(WRONG), name="after the fix")
    first, numbers, diagnosis = str(raised.value).split("\n")
    title = "after the fix: layernorm_bw [1, 32, 96]: Hollow pass (arithmetic: tt-train"
    assert first.startswith(title)
    assert "Green and wrong" in first
    assert numbers.startswith("  dx: Hollow pass, unexplained; rounding_ratio ")
    assert diagnosis.startswith("  dx: s1 is subtracted twice in P_centered: explains 9")


HOLLOW = Verdict.pass_by_tolerance, Explanation.unexplained
ALARM = Verdict.fail_by_tolerance, Explanation.explained
SUSPECT = Verdict.suspect, Explanation.suspect
PLACES = {"reason": "no", "places": "Row 3."}
BIASED = {"fault": "s1 is missing"}
ADVICE = {"advice": "Take atol 3.", "detection_limits": ["a missing beta"]}


@pytest.mark.parametrize(
    ("answer", "statistics", "first", "second"),
    [
        (HOLLOW, {"rounding_ratio": 5.0, **PLACES}, "rounding_ratio 5", "no; Row 3"),
        (HOLLOW, {"max_abs": 0.25, **BIASED, **PLACES}, "max_abs 0.25", "s1 is missing"),
        (
            SUSPECT,
            {"max_abs": 2.0, **BIASED},
            "max_abs 2",
            "more seeds decide; so far s1 is missing",
        ),
        (ALARM, {"max_abs": 2.0, **ADVICE}, "max_abs 2", "Take atol 3."),
    ],
    ids=["places", "fault", "suspect", "false alarm"],
)
def test_a_message_has_a_line_for_each_thing_that_is_known_of_an_output(
    answer: tuple[Verdict, Explanation], statistics: dict[str, Any], first: str, second: str
) -> None:
    verdict, explanation = answer
    outputs = {
        "y": OutputJudgement(*answer, {"count": 9, "tolerance_ratio": None, **statistics}),
        "dgamma": OutputJudgement(Verdict.pass_, Explanation.explained, {"max_abs": 1.0}),
    }
    judged = SeedJudgement(*answer, outputs, "blocked sums")
    head, *lines = judging.message("layernorm_bw [4]", judged).split("\n")
    assert head.startswith(f"layernorm_bw [4]: {verdict.label} (arithmetic: blocked sums). ")
    assert lines[0] == f"  y: {verdict.label}, {explanation.value}; {first}"
    unseen = ["  y: couldn't have seen: a missing beta"] if answer is ALARM else []
    assert lines[1:] == [f"  y: {second}", *unseen]


@pytest.mark.parametrize("verdict", [Verdict.suspect, Verdict.inconclusive])
def test_what_is_neither_right_nor_wrong_fails_no_test(
    verdict: Verdict, monkeypatch: pytest.MonkeyPatch
) -> None:
    explanation = Explanation(verdict.value)
    dx = OutputJudgement(verdict, explanation, {"reason": "9 deviations"})
    answer = SeedJudgement(verdict, explanation, {"dx": dx}, "blocked sums")
    monkeypatch.setattr(judging.TestCase, "judge", lambda case: answer)
    with pytest.warns(handover.ComparisonWarning, match="9 deviations"):
        assert gonogo.compare(**FIELDS, **arrays()) is answer


def test_the_mode_may_warn_or_be_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover, "_mode", "warn")
    with pytest.warns(handover.ComparisonWarning, match="Hollow pass") as warned:
        assert gonogo.compare(**FIELDS, **arrays(WRONG)).verdict is Verdict.pass_by_tolerance
    assert warned[0].filename == __file__
    monkeypatch.setattr(handover, "_mode", "off")
    assert gonogo.compare(**FIELDS, **arrays(WRONG)) is None
    with pytest.raises(ValueError, match="fail, warn, off"):
        handover.set_mode("maybe")


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"x": np.full(TEST.shape, 0.1)}, FieldError, r"x\[0, 0\]: isn't a bf16 value"),
        ({"gamma": np.ones(5)}, FieldError, "gamma: has a wrong shape"),
        ({"y": np.ones(TEST.shape)}, FieldError, "y: isn't a tensor of layernorm_bw"),
        ({"arithmetic": "guess"}, FieldError, "arithmetic"),
        ({"dx": None}, JobError, "no output to judge"),
        ({"dy": None}, JobError, "dy missing"),
        ({"x": np.array(["a"])}, TypeError, "x must be an array of real numbers"),
        ({"x": None}, TypeError, "x is missing"),
    ],
)
def test_arrays_that_can_t_be_judged_are_refused_by_name(
    changes: dict[str, Any], error: type[Exception], words: str
) -> None:
    fields = FIELDS | arrays() | changes
    with pytest.raises(error, match=words):
        gonogo.compare(**{name: value for name, value in fields.items() if value is not None})


@pytest.mark.parametrize("has_statistics", [True, False])
def test_raw_inputs_are_rounded_for_the_kernel(has_statistics: bool) -> None:
    names = [name for name in raw() if has_statistics or name not in ("mean", "rstd")]
    fields = {"raw": {name: raw()[name] for name in names}, "numerics": {"statistics": "given"}}
    judgment = gonogo.compare(**FIELDS, **fields, dx=outputs()["dx"])
    assert judgment.verdict is Verdict.pass_


class Tensor:
    """A stand-in for torch's tensor, with the methods that lead to a NumPy array."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.array = array

    def detach(self) -> Tensor:
        return self

    cpu = float = detach

    def numpy(self) -> NDArray[Any]:
        return self.array


def test_tensors_of_torch_are_read_without_torch() -> None:
    read = {name: Tensor(array) for name, array in arrays().items()}
    assert gonogo.compare(**FIELDS, **read).verdict is Verdict.pass_


def test_importing_gonogo_loads_neither_numpy_nor_the_numerics() -> None:
    code = (
        "import gonogo, gonogo.pytest_plugin.plugin, sys; "
        "assert not {'numpy', 'scipy', 'gonogo.judging.judging'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_without_the_numerics_a_comparison_is_an_error_and_no_silent_pass(tmp_path: Path) -> None:
    executor = ROOT / "workers/gonogo_workers/executors/child/pytest_executor.py"
    listed = executor.read_text().partition("PLUGIN_FILES = ")[2]
    for name in ast.literal_eval(listed[: listed.index("\n)\n") + 2]):
        copy = tmp_path / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text((ROOT / name).read_text())
    code = "import gonogo; gonogo.compare('layernorm_bw', x=[[1.0]], dx=[[0.0]])"
    alone = {"cwd": tmp_path, "env": {**os.environ, "PYTHONPATH": ""}}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, **alone)
    assert done.returncode == 1
    assert "RuntimeError: gonogo.compare can't judge here" in done.stderr


@pytest.mark.parametrize(
    ("mode", "line"), [("fail", "1 failed, 1 passed"), ("warn", "1 passed, 1 warning, 1 hollow")]
)
def test_the_plug_in_judges_in_anybody_s_pytest(
    tmp_path: Path, mode: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez(tmp_path / "right.npz", **arrays())
    np.savez(tmp_path / "wrong.npz", **arrays(WRONG))
    (tmp_path / "test_kernel.py").write_text(
        dedent(f"""
        import numpy as np, pytest
        @pytest.mark.parametrize("name", ["right", "wrong"])
        def test_kernel(gonogo, name):
            gonogo.compare(**{FIELDS!r}, **np.load(name + ".npz"))
        """)
    )
    output_lines = in_this_process(monkeypatch)(
        tmp_path, f"--gonogo-compare={mode}", "--tb=line", status=int(mode == "fail")
    )
    assert line in output_lines[-1], output_lines
    assert "Hollow pass" in "\n".join(output_lines)
    assert handover._mode == "fail", "the option holds for that run only"


# In the place of an assertion


SPECIAL = [0.0, -0.0, 1.0, 1.0 + 1e-7, -3.0, np.inf, -np.inf, np.nan, 1e-300]


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
        with nullcontext() if green else pytest.raises(AssertionError):
            gonogo.assert_allclose(actual, expected, rtol=rtol, atol=atol, equal_nan=equal_nan)
    assert seen == {True, False}


def test_a_message_rebuilds_the_call(heard: list[Comparison]) -> None:
    actual = np.array([[1.0, 2.0], [3.0, 4.5]])
    with pytest.raises(AssertionError) as raised:
        gonogo.compare(actual, [[1, 2], [3, 4]], rtol=0.1, name="after", msg="the fix is gone")
    first, second, place, unjudged = str(raised.value).split("\n")
    assert first == "the fix is gone"
    assert second == "after: actual: 1 of 4 values outside rtol 0.1, atol 0 (tolerance ratio 1.25)"
    assert place == "  actual: worst at [1, 1]: got 4.5, expected 4.0, fp64"
    assert "nobody can say whether rounding explains the error (kernel missing)" in unjudged
    (only,) = heard
    assert (only.verdict, only.within, only.name) == ("not_judged", False, "after")
    assert only.tolerance == {"rtol": 0.1, "atol": 0.0}


NOT_FINITE = "1 of 2 values are not finite on one side only (1 nan)"


@pytest.mark.parametrize(
    ("actual", "expected", "gate", "words"),
    [
        ([1.0, np.nan], [1.0, 2.0], {"atol": 1}, NOT_FINITE),
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


NUMBER, MAPPING = (
    "must be a number (allowed: a number such as 1e-3, or None); got",
    "must map names",
)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"rtol": "1e-3"}, f"rtol: {NUMBER} '1e-3'"),
        ({"atol": True}, f"atol: {NUMBER} True"),
        ({"pcc": [0.9]}, f"pcc: {NUMBER} [0.9]"),
        ({"ulp": np.ones(2)}, f"ulp: {NUMBER} array([1., 1.])"),
        ({"equal_nan": "no"}, "equal_nan: must be true or false (allowed: True, False); got 'no'"),
        ({"kernel": 7}, "kernel: must name a kernel (allowed: the name of a kernel, or an object"),
        ({"inputs": [np.ones(99)]}, f"inputs: {MAPPING} to values (allowed: such as {{"),
        ({"raw": 7}, f"raw: {MAPPING} to values (allowed: such as {{"),
        ({"output": 3}, "output: must be text (allowed: such as 'y', or None); got 3"),
        ({"arithmetic": 3}, "arithmetic: must be text (allowed: such as 'tt-train', or None)"),
        ({"epsilon": 1e-5}, "compare() got an unexpected keyword argument 'epsilon'"),
        ({"reference": "rms"}, "reference: must be a function"),
        ({"reference": abs, "shape": [3]}, "compare() got an unexpected keyword argument 'shape'"),
        ({"pcc": 2}, "pcc must be between -1 and 1; got 2"),
        ({"atol": float("nan")}, "atol must be a number from 0; got nan"),
    ],
)
def test_a_wrong_argument_is_named_in_one_line(given: dict[str, Any], words: str) -> None:
    with pytest.raises((TypeError, ValueError)) as refused:
        gonogo.compare([1.0], [1.0], **given)
    (line,) = str(refused.value).splitlines()
    assert line.startswith(words)


def test_a_number_of_any_library_is_a_tolerance_and_text_is_no_tensor() -> None:
    for number in (np.float32(0.1), np.array(0.1), np.int64(1), 1):
        assert gonogo.compare([1.0], [1.0], rtol=number).within
    for call in (gonogo.compare, lambda: gonogo.compare([1.0]), lambda: gonogo.compare("y", [1.0])):
        with pytest.raises(TypeError, match=r"allowed: compare\(actual, expected, \.\.\.\) and "):
            call()
    with pytest.raises(TypeError, match="actual must be an array of real numbers"):
        gonogo.compare(["a"], [1.0])


@pytest.mark.parametrize(
    ("actual", "form"),
    [
        (round_to(np.random.default_rng(0).normal(size=500), "bf16"), "bf16"),
        (np.random.default_rng(0).normal(size=500).astype("f4"), "fp32"),
        (np.arange(8, dtype="f4"), "fp32"),  # a few whole numbers say nothing
        (np.float16([1, 2]), "fp16"),
        ([1, 2], None),
    ],
)
def test_a_float32_array_of_bf16_values_is_one_of_bf16(actual: Any, form: str | None) -> None:
    assert tensors.read(actual, "actual").format == form


def test_a_tolerance_below_some_values_own_rounding_is_told() -> None:
    """Half an ulp of bf16 is .0625 at 30: the published gate that a right kernel fails."""
    values = np.full(64, 30.0)
    values[:32] = np.linspace(1.0, 1.9, 32)
    comparison = gonogo.compare(round_to(values, "bf16"), round_to(values, "bf16"), atol=0.06)
    assert "and at some values only 0.96 times: a right kernel can fail" in comparison.words


def test_how_many_times_is_told_in_three_digits_also_where_they_round_up_to_a_thousand() -> None:
    expected = {0.04123: "0.0412", 8.0: "8", 999.4: "999", 999.6: "1,000", 12345.0: "12,300"}
    expected[1e7] = "over 10 million"
    assert {value: recorded.factor(value) for value in expected} == expected


def test_a_right_kernel_passes_and_a_wrong_one_is_hollow(heard: list[Comparison]) -> None:
    for build, verdict in (("correct", "pass"), (WRONG, "pass_by_tolerance")):
        comparison = compared(build, raw=raw())
        assert (comparison.verdict, comparison.within) == (verdict, True)
        assert comparison.hollow is (build == WRONG)
        assert comparison.spec == {
            "kernel": "layernorm_bw",
            "shape": [1, 32, 96],
            "tolerance": GATE,
        }
    assert [call.verdict for call in heard] == ["pass", "pass_by_tolerance"]
    assert "dx: s1 is subtracted twice in P_centered: explains" in heard[1].words
    numbers = heard[1].outputs["dx"]
    assert (numbers["verdict"], numbers["explanation"]) == ("pass_by_tolerance", "unexplained")
    assert numbers["rounding_ratio"] > 100
    same = pytest.approx(numbers["tolerance_ratio"], rel=1e-12)
    assert numbers["against_float64"]["tolerance_ratio"] == same


def test_an_error_that_no_term_explains_is_not_called_right() -> None:
    actual = outputs()["dx"]
    noise = 0.02 * np.random.default_rng(0).standard_normal(actual.shape)
    spoiled = round_to(actual + noise, "bf16")
    comparison = gonogo.compare(spoiled, expected()["dx"], **KERNEL, **GATE, inputs=given())
    assert comparison.hollow
    assert "values are off, in all 32 rows" in comparison.words
    assert "fault" not in comparison.outputs["dx"]


@pytest.mark.parametrize("arithmetic", ["tt-train", None])
def test_a_false_alarm_is_red_and_says_so(arithmetic: str | None) -> None:
    with pytest.raises(AssertionError) as raised:
        compared(rtol=0, atol=1e-6, kernel={"kernel": "layernorm_bw"}, arithmetic=arithmetic)
    words = str(raised.value)
    assert "of 3072 values outside" in words
    assert "verdict fail_by_tolerance" in words
    assert "the tolerance is tighter than the formats allow" in words
    assert "expected values" not in words
    assert "dx: couldn't have seen: " in words
    assert "detection_limits" not in compared().outputs["dx"], "nobody asks of a green one"


@pytest.mark.parametrize("wide", [False, True])
def test_a_right_kernel_beside_a_wrong_expectation_is_told_so(wide: bool) -> None:
    """The expectation divides the variance by N - 1; the kernel doesn't."""
    x = np.random.default_rng(0).normal(size=(16, 64)).astype("f4")
    inputs = {"x": x, "gamma": np.ones(64, "f4"), "beta": np.zeros(64, "f4")}
    y, expected = (
        (x - x.mean(-1, keepdims=True))
        / np.sqrt(x.var(-1, keepdims=True, ddof=ddof) + np.float32(1e-5))
        for ddof in (0, 1)
    )
    fields = {"kernel": "layernorm_fw", "inputs": inputs, "epsilon": 1e-5}
    expected_values = expected.astype("f8" if wide else "f4")
    with pytest.raises(AssertionError) as raised:
        gonogo.compare(y, expected_values, rtol=1e-3, atol=1e-3, **fields)
    message = str(raised.value)
    assert "the values that the test expects are wrong" in message
    assert "y: the expected values are off from float64: variance divides by N - 1" in message
    assert "tolerance turns" not in message, "another tolerance is no remedy"


def rms(x: Any, epsilon: float = 1e-6) -> dict[str, Any]:
    """Return x by its root mean square."""
    square = np.mean(x * x, axis=-1, keepdims=True)
    rstd = 1 / np.sqrt(square + epsilon)
    return {"y": x * rstd}


def test_a_function_judges_a_comparison_like_a_kernel(heard: list[Comparison]) -> None:
    x = np.random.default_rng(0).normal(size=(16, 64)).astype("f4")
    right = (x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(1e-3))).astype("f4")
    exact = rms(x.astype("f8"), 1e-3)["y"]
    fields: dict[str, Any] = {"reference": rms, "inputs": {"x": x}, "parameters": {"epsilon": 1e-3}}
    for factor in (1, 1.001):
        gonogo.compare(right * np.float32(factor), exact, rtol=1e-2, output="y", **fields)
    assert [call.verdict for call in heard] == ["pass", "pass_by_tolerance"]
    assert heard[1].spec is None
    assert "y: rstd has a factor of 1.001" in heard[1].words
    with pytest.raises(AssertionError, match="the expected values are off from float64: rstd"):
        gonogo.compare(right, exact * 1.001, rtol=1e-5, output="y", **fields)


def test_the_formats_are_those_of_the_tensors() -> None:
    gamma = (given()["gamma"] + np.float32(2.0**-20)).astype("f4")
    # beside a bf16 output a float32 input is rather what was drawn than what the kernel was given
    refused = compared(inputs={**given(), "gamma": gamma})
    assert refused.verdict == "not_judged"
    assert "gamma[0]: isn't a bf16 value" in refused.problem
    dx, fields = expected()["dx"], {"kernel": "layernorm_bw", "inputs": {**given(), "gamma": gamma}}
    comparison = gonogo.compare(dx.astype("f4"), dx, **GATE, **fields)
    assert comparison.spec is not None
    assert comparison.spec["numerics"] == {"output": "fp32", "input": {"gamma": "fp32"}}


def test_an_output_in_a_format_without_arithmetic_is_compared_and_not_judged() -> None:
    narrow = outputs()["dx"].astype(ml_dtypes.float8_e4m3fnuz)
    fields = KERNEL | {"rtol": 1.0, "atol": 1.0, "inputs": given()}
    comparison = gonogo.compare(narrow, expected()["dx"], **fields)
    assert (comparison.verdict, comparison.within) == ("not_judged", True)
    assert "dx: is float8_e4m3fnuz, a format that can't be judged" in comparison.problem


def test_several_outputs_are_one_comparison() -> None:
    comparison = gonogo.compare(outputs(), expected(), **KERNEL, **GATE, inputs=given())
    assert (comparison.verdict, set(comparison.outputs)) == ("pass", {"dx", "dgamma", "dbeta"})


def test_who_takes_the_arrays_judges_them() -> None:
    sent_arrays: list[recorded.Arrays] = []
    stop = recorded.take(sent_arrays.append)
    comparison = compared(WRONG, name="n" * 300, arithmetic=None)
    assert comparison.verdict == "not_judged"
    assert comparison.words == "sent to the worker, which judges it"
    with pytest.raises(AssertionError):
        compared(WRONG, rtol=0, atol=1e-6)
    assert gonogo.compare("layernorm_bw", **arrays(WRONG), arithmetic="fused") is None
    stop()
    first, _, third = sent_arrays
    assert (first.fields["kernel"], first.arithmetic) == ("layernorm_bw", None)
    assert first.name == "n" * handover.MAX_NAME
    assert (first.tensors["dx"] == outputs(WRONG)["dx"]).all()
    assert (third.arithmetic, set(third.tensors)) == ("fused", {*given(), "dx"})
    assert compared(WRONG).verdict == "pass_by_tolerance"


def test_what_was_to_be_judged_and_could_not_be_is_recorded_as_a_problem(
    heard: list[Comparison],
) -> None:
    compared(epsilon=-1)
    (comparison,) = heard
    assert (comparison.verdict, comparison.within) == ("not_judged", True)
    assert comparison.problem.startswith("test.epsilon: is too small")
    with pytest.raises(AssertionError):  # the gate stays a gate
        compared(epsilon=-1, atol=0)


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
try:
    x = values[:64].reshape(2, 32)
    gonogo.judge(kernel="rmsnorm_fw", inputs={"x": x, "gamma": x[0]},
                 outputs={"y": x.to(torch.float8_e4m3fnuz)})
except TypeError as problem:
    print(str(problem).split(",")[0])
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
        "y: is torch.float8_e4m3fnuz",
    ]
