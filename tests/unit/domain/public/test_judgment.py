"""`gonogo.judge` and `gonogo.pool` on tensors of several kinds."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import gonogo
from gonogo import emulator
from gonogo.errors import FieldError, JobError
from gonogo.judging.inputs import generate, quantise
from gonogo.spec.test_spec import TestSpec
from torch_interpreter import run_in_torch

EPSILON = np.float32(1e-6)


def case(factor: float = 1.0, seed: int = 0) -> dict[str, Any]:
    """The arguments of judge() for an RMSNorm in float32."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(16, 256)).astype(np.float32)
    gamma = np.ones(256, np.float32) + np.float32(0.1) * generator.normal(size=256).astype("f4")
    scale = 1 / np.sqrt(np.square(x).mean(axis=1, keepdims=True) + EPSILON)
    return {
        "kernel": "rmsnorm_fw",
        "inputs": {"x": x, "gamma": gamma},
        "outputs": {"y": x * scale * gamma * np.float32(factor)},
        "tolerance": {"rtol": 1e-2, "atol": 1e-2},
        "epsilon": 1e-6,
    }


def test_a_right_kernel_passes_with_its_arithmetic_and_the_limits_of_the_verdict() -> None:
    judgment = gonogo.judge(**case())
    assert (judgment.verdict, judgment.explanation) == ("pass", "explained")
    assert judgment.arithmetic == "fp32-inside"
    (limit,) = judgment.detection_limits["y"]
    assert limit.startswith("a common factor below 0.0000")
    assert json.loads(json.dumps(judgment.to_json()))["outputs"]["y"]["verdict"] == "pass"
    first, second = judgment.words.splitlines()
    assert first.startswith("rmsnorm_fw [16, 256]: Pass (arithmetic: fp32-inside). Green and right")
    assert second.startswith("  y: couldn't have seen: a common factor below 0.0000")
    assert repr(judgment) == "<Judgment pass, explained, of y: fp32-inside>"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"inputs": [np.ones((2, 4))]}, "inputs: must map names to values (allowed: such as {"),
        ({"outputs": np.ones((2, 4))}, "outputs: must map names to values (allowed: such as {"),
        ({"tolerance": 1e-2}, """tolerance: must map names to values (allowed: such as {"rtol":"""),
        ({"numerics": "bf16"}, "numerics: must map names to values (allowed: such as {"),
        ({"parameters": []}, "parameters: must map names to values (allowed: such as {"),
        ({"inputs": {1: [[1.0]]}}, "inputs: has a name that is no text (allowed: such as {"),
        (
            {"inputs": {"x": [[1.0]], "weight": [1.0]}},
            "weight: isn't a tensor of rmsnorm_fw",
        ),
        (
            {"outputs": {"out": [[1.0]]}},
            "out: isn't a tensor of rmsnorm_fw (allowed: inputs x",
        ),
    ],
)
def test_an_argument_of_a_wrong_kind_is_told_in_one_line_with_an_example(
    changes: dict[str, Any], words: str
) -> None:
    with pytest.raises((FieldError, TypeError)) as refused:
        gonogo.judge(**{**case(), **changes})
    (line,) = str(refused.value).splitlines()
    assert line.startswith(words)


@pytest.mark.parametrize("judgments", [[1], "x", None])
def test_what_is_no_judgment_is_not_pooled(judgments: Any) -> None:
    with pytest.raises(TypeError, match=r"judgments\[0\]: must be a judgment .*; got "):
        gonogo.pool(judgments)


def test_a_ragged_list_is_no_tensor() -> None:
    with pytest.raises(TypeError, match="y can't be read as an array"):
        gonogo.judge(**{**case(), "outputs": {"y": [[1.0], [1.0, 2.0]]}})


@pytest.mark.parametrize("place", ["inputs", "outputs"])
@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz"])
def test_a_dtype_without_a_format_is_refused_by_name(place: str, dtype: str) -> None:
    arguments = case()
    name = "x" if place == "inputs" else "y"
    narrow = arguments[place][name].astype(getattr(ml_dtypes, dtype))
    with pytest.raises(TypeError) as refused:
        gonogo.judge(**{**arguments, place: {**arguments[place], name: narrow}})
    assert str(refused.value) == (
        f"{name}: is {dtype}, a format that can't be judged"
        " (allowed: bfloat16, float16, float32, float64, bfloat8_b)"
    )


FLOAT8 = """
import torch, gonogo
x = torch.linspace(-3, 3, 64).reshape(2, 32)
try:
    gonogo.judge(kernel="rmsnorm_fw", inputs={"x": x, "gamma": x[0]},
                 outputs={"y": x.to(torch.float8_e4m3fn)})
except TypeError as problem:
    print(str(problem).split(",")[0])
"""


def test_a_dtype_of_torch_without_a_format_is_refused_by_name() -> None:
    assert run_in_torch(FLOAT8).splitlines() == ["y: is torch.float8_e4m3fn"]


def test_a_rms_norm_that_is_a_thousandth_off_is_a_hollow_pass_without_any_argument() -> None:
    judgment = gonogo.judge(**case(1.001))
    assert judgment.verdict == "pass_by_tolerance"
    assert judgment.arithmetic == "unknown"
    assert "a common factor of 1.001: explains 99." in judgment.words


class Exporting:
    """A tensor of a library that offers nothing but DLPack."""

    def __init__(self, values: NDArray[Any]) -> None:
        self._values = values
        self.shape = values.shape

    def __dlpack__(self, **options: Any) -> Any:
        return self._values.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._values.__dlpack_device__()


def test_tensors_may_come_by_dlpack() -> None:
    arguments = case()
    exported = {name: Exporting(values) for name, values in arguments["inputs"].items()}
    judgment = gonogo.judge(**{**arguments, "inputs": exported})
    assert judgment == gonogo.judge(**arguments)


def test_pooled_seeds_have_the_worst_verdict_and_the_limits_that_all_share() -> None:
    right, wrong = gonogo.judge(**case()), gonogo.judge(**case(1.001, seed=1))
    pooled = gonogo.pool([right, wrong, right])
    assert (pooled.verdict, pooled.explanation) == ("pass_by_tolerance", "unexplained")
    assert pooled.seeds == 3
    assert pooled.words.startswith("3 seeds: 1 pass_by_tolerance, 2 pass")
    assert pooled.detection_limits["y"] == ()
    assert gonogo.pool([right]).detection_limits == right.detection_limits
    with pytest.raises(ValueError, match="judgments is empty"):
        gonogo.pool([])


def merged_statistics(seed: int) -> gonogo.Judgment:
    """A wrong kernel that is suspect on every seed: the variance is divided by N - 1."""
    test = TestSpec.parse({"kernel": "layernorm_fw", "shape": [4, 64]})
    given = quantise(test, generate(test, seed))
    return gonogo.judge(
        kernel=test.kernel,
        inputs=given,
        outputs=emulator.run(test, given, "unbiased-variance"),
        tolerance={"rtol": 0.01, "atol": 0.5},
        arithmetic="tt-train",
    )


def test_the_words_of_pooled_suspect_seeds_agree_with_their_verdict() -> None:
    one, *others = map(merged_statistics, range(3))
    assert (one.verdict, "more seeds decide" in one.words) == ("suspect", True)
    together = gonogo.pool([one, *others])
    assert (together.verdict, together.explanation) == ("pass_by_tolerance", "unexplained")
    assert "uspect (" not in together.words
    assert "more seeds decide" not in together.words
    assert together.words.startswith(
        "3 seeds: 3 pass_by_tolerance\nlayernorm_fw [4, 64]: Hollow pass (arithmetic: tt-train)."
    )
    assert "rstd: suspect in 3 of 3 seeds: rounding doesn't explain them" in together.words
    rstd = together.outputs["rstd"]
    assert (rstd["verdict"], rstd["explanation"]) == ("pass_by_tolerance", "unexplained")
    assert gonogo.pool([one]).words.endswith(one.words), "one seed may be chance"


def test_a_seed_fails_only_where_an_output_does() -> None:
    """A backward pass that computes x^ again from the bf16 y: dx is suspect, dgamma is right."""
    generator = np.random.default_rng(0)

    def bf16(values: Any) -> Any:
        return np.asarray(values, "f4").astype(ml_dtypes.bfloat16).astype("f4")

    x, dy = (bf16(generator.normal(size=(16, 256))) for _ in range(2))
    beta, gamma = bf16(generator.normal(size=256) / 10), np.ones(256, "f4")
    mean, rstd = x.mean(-1), 1 / np.sqrt(x.var(-1) + np.float32(1e-5))
    y = bf16((x - mean[:, None]) * rstd[:, None] * gamma + beta)
    xhat = (y - beta) / gamma
    s1, s2 = dy.mean(-1, keepdims=True), (dy * xhat).mean(-1, keepdims=True)
    judgment = gonogo.judge(
        kernel="layernorm_bw",
        inputs={"x": x, "gamma": gamma, "mean": mean, "rstd": rstd, "dy": dy},
        outputs={
            "dx": bf16(rstd[:, None] * (dy - s1 - xhat * s2)),
            "dgamma": bf16((dy * xhat).sum(0)),
            "dbeta": bf16(dy.sum(0)),
        },
        tolerance={"dgamma": {"rtol": 0.01, "atol": 0.005}},
        epsilon=1e-5,
    )
    verdicts = {name: output["verdict"] for name, output in judgment.outputs.items()}
    assert verdicts == {"dx": "suspect", "dgamma": "fail_by_tolerance", "dbeta": "pass"}
    assert (judgment.verdict, judgment.explanation) == ("fail_by_tolerance", "suspect")
    assert "Red and" not in judgment.words
    again = dataclasses.replace(judgment)
    assert gonogo.pool([judgment, again]).verdict == "fail", "red, and no chance in dx"


def test_two_suspect_seeds_of_one_output_are_no_chance() -> None:
    right = gonogo.judge(**case())
    entry = {**right.outputs["y"], "verdict": "suspect", "explanation": "suspect"}
    suspect = dataclasses.replace(
        right, verdict="suspect", explanation="suspect", outputs={"y": entry}
    )
    assert gonogo.pool([suspect, right]).verdict == "suspect"
    assert gonogo.pool([suspect, suspect]).verdict == "pass_by_tolerance"


def seed_of(
    verdict: str, explanation: str, unseen: tuple[str, ...] | None, factor: float = 0.3
) -> gonogo.Judgment:
    """A judgment of y; unseen: None where no program explains it."""
    entry: dict[str, Any] = {"verdict": verdict, "explanation": explanation}
    limits: dict[str, tuple[str, ...]] = {}
    if unseen is not None:
        limits["y"] = (*unseen, f"a common factor below {factor} %")
        entry |= {"unseen_terms": list(unseen), "detection_limits": list(limits["y"])}
    return gonogo.Judgment(
        verdict, explanation, "fp32-inside", limits, words=f"a {verdict}", outputs={"y": entry}
    )


def green(*unseen: str) -> gonogo.Judgment:
    return seed_of("pass", "explained", unseen)


def red(*unseen: str) -> gonogo.Judgment:
    if unseen:
        return seed_of("inconclusive", "inconclusive", unseen)
    return seed_of("fail_by_tolerance", "explained", unseen)


@pytest.mark.parametrize(
    ("seeds", "verdict", "unseen"),
    [
        ([red("gamma"), red("gamma")], "inconclusive", ["gamma"]),
        ([red("gamma", "beta"), green("beta")], "inconclusive", ["beta"]),
        ([green("gamma"), green("gamma")], "pass", ["gamma"]),
        ([red("gamma"), green()], "fail_by_tolerance", []),
        ([red("gamma"), red()], "fail_by_tolerance", []),
        ([red("gamma"), red("beta")], "fail_by_tolerance", []),
    ],
    ids=["no seed", "one term left", "green", "a green seed", "a red seed", "each other's"],
)
def test_what_any_seed_could_have_seen_is_seen(
    seeds: list[gonogo.Judgment], verdict: str, unseen: list[str]
) -> None:
    pooled = gonogo.pool(seeds)
    assert pooled.verdict == verdict
    assert pooled.explanation == ("inconclusive" if verdict == "inconclusive" else "explained")
    assert pooled.outputs["y"]["unseen_terms"] == unseen
    assert pooled.detection_limits["y"] == (*unseen, "a common factor below 0.3 %")
    assert pooled.outputs["y"]["detection_limits"] == list(pooled.detection_limits["y"])


def test_a_term_that_other_seeds_have_seen_is_named() -> None:
    pooled = gonogo.pool([red("gamma"), green()])
    assert pooled.words == (
        "2 seeds: 1 fail_by_tolerance, 1 pass\n"
        "y: other seeds could have seen gamma, so the kernel is right"
    )
    assert pooled.outputs["y"]["verdict"] == "fail_by_tolerance"


def test_a_seed_about_which_nothing_is_known_stays_inconclusive() -> None:
    silent = seed_of("inconclusive", "inconclusive", None)
    assert gonogo.pool([silent, green()]).verdict == "inconclusive"
    assert gonogo.pool([silent, red("gamma"), green()]).verdict == "fail_by_tolerance"
    assert gonogo.pool([silent, green("gamma")]).outputs["y"] == silent.outputs["y"]


def test_of_a_factor_the_smallest_that_a_seed_could_have_seen_counts() -> None:
    seeds = [seed_of("pass", "explained", (), factor) for factor in (0.3, 0.1, 1.0)]
    assert gonogo.pool(seeds).detection_limits["y"] == ("a common factor below 0.1 %",)


def test_impossible_arguments_are_refused_by_name() -> None:
    arguments = case()
    inputs = arguments["inputs"]
    with pytest.raises(FieldError, match=r"gamma.*\[256\]"):
        gonogo.judge(**{**arguments, "inputs": {**inputs, "gamma": inputs["gamma"][:5]}})
    with pytest.raises(JobError, match="there is no output to judge"):
        gonogo.judge(**{**arguments, "outputs": {}})
    with pytest.raises(FieldError, match="arithmetic"):
        gonogo.judge(**arguments, arithmetic="fp33")
