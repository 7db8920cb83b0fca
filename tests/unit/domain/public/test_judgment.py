"""`gonogo.judge` and `gonogo.pool` on tensors of several kinds."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import gonogo
from gonogo.arithmetic import Program
from gonogo.errors import FieldError, JobError


def drawn(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=shape).astype("f4")


def case(factor: float = 1.0, seed: int = 0) -> dict[str, Any]:
    """The arguments of judge() for an RMSNorm in float32."""
    generator = np.random.default_rng(seed)
    x, gamma = drawn(16, 256, seed=seed), generator.normal(1, 0.1, 256).astype("f4")
    scale = 1 / np.sqrt(np.square(x).mean(axis=1, keepdims=True) + np.float32(1e-6))
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
    assert judgment.arithmetic == "blocked sums"
    *faults, factor = judgment.detection_limits["y"]
    assert "epsilon is left out" in faults
    assert re.fullmatch(r"a common factor below 9\.5e-05 %", factor)  # of y, not of epsilon
    stored = json.loads(json.dumps(judgment.to_json()))
    assert stored["outputs"]["y"]["verdict"] == "pass"
    assert stored["detection_limits"]["y"] == [*faults, factor]
    assert judgment.message == (
        "rmsnorm_fw [16, 256]: Pass (arithmetic: blocked sums). Green and right: within the"
        " tolerance, and rounding explains the error."
    )
    assert repr(judgment) == "<Judgment pass, explained, of y: blocked sums>"


MAPPING = "must map names to values (allowed: such as {"
NO_FORMAT = (
    "a format that can't be judged"
    " (allowed: bfloat16, float16, float32, float64, bfloat8_b, float8_e4m3fn, float8_e5m2)"
)
X, FNUZ, B11 = case()["inputs"]["x"], "float8_e4m3fnuz", "float8_e4m3b11fnuz"
GIVEN = case()["inputs"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"inputs": [np.ones((2, 4))]}, f"inputs: {MAPPING}"),
        ({"outputs": np.ones((2, 4))}, f"outputs: {MAPPING}"),
        ({"tolerance": 1e-2}, f'tolerance: {MAPPING}"rtol":'),
        ({"numerics": "bf16"}, f"numerics: {MAPPING}"),
        ({"parameters": []}, f"parameters: {MAPPING}"),
        ({"inputs": {1: [[1.0]]}}, "inputs: has a name that is no text (allowed: such as {"),
        ({"inputs": {"x": [[1.0]], "weight": [1.0]}}, "weight: isn't a tensor of rmsnorm_fw"),
        ({"inputs": {"x": X, "gamma": np.ones(5)}}, "gamma: has a wrong shape (allowed: [256])"),
        ({"outputs": {"out": [[1.0]]}}, "out: isn't a tensor of rmsnorm_fw (allowed: inputs x"),
        ({"outputs": {"y": [[1.0], [1.0, 2.0]]}}, "y can't be read as an array"),
        ({"outputs": {}}, "there is no output to judge"),
        ({"outputs": {"y": X.astype(getattr(ml_dtypes, B11))}}, f"y: is {B11}, {NO_FORMAT}"),
        (
            {"inputs": {**GIVEN, "x": X.astype(ml_dtypes.float8_e4m3fnuz)}},
            f"x: is {FNUZ}, {NO_FORMAT}",
        ),
        ({"program": "fp33"}, "arithmetic: "),
        ({"ways": [np.exp]}, "ways, program: functions and programs need a reference"),
    ],
)
def test_an_impossible_argument_is_told_in_one_line(changes: dict[str, Any], words: str) -> None:
    with pytest.raises((FieldError, JobError, TypeError)) as refused:
        gonogo.judge(**{**case(), **changes})
    (line,) = str(refused.value).splitlines()
    assert line.startswith(words)


@pytest.mark.parametrize(
    ("indices", "words"),
    [
        ([[0.5, 1.0]], "indices: must be whole numbers (allowed: 0 to 2)"),
        ([[0, 3]], "indices: must be whole numbers (allowed: 0 to 2)"),
        ([[-1, 2]], "indices: must be whole numbers (allowed: 0 to 2)"),
        ([[0, 2]], ""),
        ([[[0, 2]], [[1, 0]]], ""),
        ([[0.0, 2.0]], ""),  # of any dtype
    ],
)
def test_indices_are_whole_numbers_below_their_bound(indices: Any, words: str) -> None:
    table, parameters = drawn(3, 64), {"rows": 3, "width": 64}
    inputs = {"indices": np.array(indices), "table": table}
    outputs = {"y": table[np.array(indices, int) % 3]}
    given = {"kernel": "embedding", "inputs": inputs, "outputs": outputs, "parameters": parameters}
    if not words:
        assert gonogo.judge(**given).verdict == "pass"
        return
    with pytest.raises((FieldError, TypeError)) as refused:
        gonogo.judge(**given)
    assert str(refused.value).startswith(words)


@pytest.mark.parametrize("judgments", [[1], "x", None])
def test_what_is_no_judgment_is_not_pooled(judgments: Any) -> None:
    with pytest.raises(TypeError, match=r"judgments\[0\]: must be a judgment .*; got "):
        gonogo.pool(judgments)
    with pytest.raises(ValueError, match="judgments is empty"):
        gonogo.pool([])


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
    assert wrong.verdict == "pass_by_tolerance"
    assert "y: rstd has a factor of 1.001: explains" in wrong.message
    pooled = gonogo.pool([right, wrong, right])
    assert (pooled.verdict, pooled.explanation) == ("pass_by_tolerance", "unexplained")
    assert pooled.seeds == 3
    assert pooled.message.startswith("3 seeds: 1 pass_by_tolerance, 2 pass")
    assert "rstd has a factor of 1.001" in pooled.message
    assert gonogo.pool([right]).detection_limits == right.detection_limits


def suspect(judgment: gonogo.Judgment) -> gonogo.Judgment:
    """The same, at the edge of what rounding explains."""
    answer: dict[str, Any] = {"verdict": "suspect", "explanation": "suspect"}
    entry = {**judgment.outputs["y"], **answer, "reason": "9.1 deviations from blocked sums"}
    title = judgment.message.partition(":")[0]
    message = f"{title}: Suspect. More.\n  y: more seeds decide; so far 9.1 deviations from it"
    return dataclasses.replace(judgment, **answer, message=message, outputs={"y": entry})


def test_two_suspect_seeds_of_one_output_are_no_chance() -> None:
    right = gonogo.judge(**case())
    one = suspect(right)
    assert gonogo.pool([one, right]).verdict == "suspect"
    assert gonogo.pool([one]).message.endswith(one.message), "one seed may be chance"
    together = gonogo.pool([one, one, right])
    assert (together.verdict, together.explanation) == ("pass_by_tolerance", "unexplained")
    assert together.outputs["y"]["verdict"] == "pass_by_tolerance"
    head, first, *lines = together.message.splitlines()
    assert head == "3 seeds: 3 pass_by_tolerance"
    assert first.startswith("rmsnorm_fw [16, 256]: Hollow pass. Green and wrong")
    assert lines == [
        "  y: 9.1 deviations from it",
        "  y: suspect in 2 of 3 seeds: together that is no chance",
    ]


def test_a_factor_that_only_many_seeds_show_is_no_rounding() -> None:
    """Each seed alone is explained; the mean of their estimates is beyond the limit."""
    right = gonogo.judge(**case())
    factor = {"source": "rstd", "is_certain": False, "limit": 2.0**-22}
    common = [{**factor, "estimate": 1e-6, "deviation": 3e-7}]
    seed = dataclasses.replace(right, outputs={"y": {**right.outputs["y"], "common": common}})
    assert gonogo.pool([seed] * 2).verdict == "pass"
    pooled = gonogo.pool([seed] * 4)
    assert pooled.verdict == "pass_by_tolerance"
    assert "y: rstd has a factor of 1 +1e-06 over 4 seeds" in pooled.message


def softmax(x: Any, scale: float = 1.0) -> dict[str, Any]:
    """Return exp(x scale) by its sum, and the sum."""
    scaled = x * scale
    largest = np.max(scaled, axis=-1, keepdims=True)
    e = np.exp(scaled - largest)
    total = np.sum(e, axis=-1, keepdims=True)
    return {"y": e / total, "total": total[..., 0]}


def computed(x: Any, tiles: slice = slice(None), scale: float = 1.0) -> NDArray[np.float32]:
    """Return the softmax of x in float32; tiles: the columns that the sum counts."""
    scaled = (x * np.float32(scale)).astype("f4")
    e = np.exp(scaled - scaled.max(-1, keepdims=True))
    return np.asarray(e / e[..., tiles].sum(-1, keepdims=True), np.float32)


@pytest.mark.parametrize(
    ("tiles", "verdict", "words"),
    [
        (slice(None), "pass", "softmax [4, 16, 96]: Pass"),
        (slice(-32), "pass_by_tolerance", "total leaves out tile 2 of 3"),
    ],
)
def test_any_kernel_is_judged_by_its_function(tiles: slice, verdict: str, words: str) -> None:
    x = drawn(4, 16, 96)
    fields = {"parameters": {"scale": 0.5}, "tolerance": {"y": {"rtol": 1.0}}}
    outputs = {"y": computed(x, tiles, 0.5)}
    judgment = gonogo.judge(reference=softmax, inputs={"x": x}, outputs=outputs, **fields)
    assert judgment.verdict == verdict
    assert words in judgment.message
    assert bool(judgment.detection_limits) is (verdict == "pass")


def test_the_outputs_of_a_function_have_formats_of_their_own() -> None:
    x = drawn(16, 96)
    e = np.exp(x - x.max(-1, keepdims=True))
    total = np.asarray(e.sum(-1), "f4")
    outputs = {"y": (e / total[:, None]).astype(ml_dtypes.bfloat16), "total": total}
    given: dict[str, Any] = {"reference": softmax, "inputs": {"x": x}, "outputs": outputs}
    assert gonogo.judge(**given).verdict == "pass"
    wrong = gonogo.judge(**given, numerics={"output": "fp32"})
    assert wrong.outputs["y"]["explanation"] != "explained"
    assert wrong.outputs["total"]["explanation"] == "explained"


def by_difference(x: Any) -> dict[str, Any]:
    """Return the variance as E[x^2] - mean^2."""
    mean = np.mean(x, axis=-1)
    return {"variance": np.mean(x * x, axis=-1) - mean * mean}


def variance(x: Any) -> dict[str, Any]:
    """Return the variance of each row."""
    centered = x - np.mean(x, axis=-1, keepdims=True)
    return {"variance": np.mean(centered * centered, axis=-1)}


def test_other_ways_explain_what_the_reference_does_not() -> None:
    x = np.random.default_rng(0).normal(30, 1, size=(64, 256)).astype("f4")
    mean = x.mean(-1)
    outputs = {"variance": (x * x).mean(-1) - mean * mean}
    given: dict[str, Any] = {"inputs": {"x": x}, "outputs": outputs, "tolerance": {"rtol": 0.1}}
    assert gonogo.judge(reference=variance, **given).verdict == "pass_by_tolerance"
    judgment = gonogo.judge(reference=variance, ways=[by_difference], **given)
    assert judgment.explanation in ("explained", "inconclusive")


def test_a_declared_program_alone_may_explain_a_function() -> None:
    x = np.random.default_rng(0).normal(size=(16, 64)).astype(ml_dtypes.bfloat16)

    def centered(x: Any) -> dict[str, Any]:
        mean = np.mean(x, axis=-1, keepdims=True)
        return {"y": x - mean}

    wide = np.asarray(x, "f4")
    stored = wide.mean(-1, keepdims=True).astype(ml_dtypes.bfloat16).astype("f4")
    y = (wide - stored).astype(ml_dtypes.bfloat16)
    given: dict[str, Any] = {"reference": centered, "inputs": {"x": x}, "outputs": {"y": y}}
    assert gonogo.judge(**given, program="eager").verdict == "pass"
    assert gonogo.judge(**given, program=Program(stored={"mean": "bf16"})).verdict == "pass"
    assert gonogo.judge(**given, program="fused").verdict == "pass_by_tolerance"


def untraceable(x: Any) -> dict[str, Any]:
    """Return what no graph has."""
    return {"y": np.fft.fft(x)}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"reference": untraceable}, "np.fft can't be traced; write it with sums, products, exp"),
        ({"reference": lambda x, y: {"y": x}}, "missing a required argument: 'y'"),
        ({"outputs": {"z": [[1.0]]}}, "the reference has no output 'z'; it has y, total"),
        ({"outputs": {"y": [1.0]}}, "output 'y' has shape [1], that of the reference [2, 4]"),
        ({"outputs": {"y": np.ones((2, 4), int)}}, "y: has no format (allowed: floats, or a form"),
        ({"numerics": {"output": "fp9"}}, "numerics.output.y: format 'fp9' is not one of fp32"),
        ({"numerics": {"buffers": "bf16"}}, "numerics.buffers: unknown"),
        ({"program": "tt-trein"}, "program: is not a program of a function"),
        ({"tolerance": {"rtool": 1}}, "tolerance.rtool: unknown"),
        ({"epsilon": 1e-5}, 'of the parameters of a reference (parameters={"epsilon": 1e-05})'),
        ({"kernel": "rmsnorm_fw"}, "kernel, reference: exactly one of the two is required"),
        ({"reference": None}, "kernel, reference: exactly one of the two is required"),
    ],
)
def test_what_can_t_be_asked_of_a_function_is_told_in_one_line(
    changes: dict[str, Any], words: str
) -> None:
    x = np.arange(8.0).reshape(2, 4) / 7
    given = {"reference": softmax, "inputs": {"x": x}, "outputs": {"y": computed(x)}}
    with pytest.raises((JobError, TypeError)) as refused:
        gonogo.judge(**{**given, **changes})
    (line,) = str(refused.value).splitlines()
    assert words in line


def test_whole_numbers_and_masks_are_inputs() -> None:
    random = np.random.default_rng(0)
    table, index, mask = drawn(20, 64), random.integers(0, 20, 16), random.random(16) < 0.5

    def rows(table: Any, index: Any, mask: Any) -> dict[str, Any]:
        return {"y": np.where(mask[:, None], table[index] * 3.0, 0.0)}

    inputs = {"table": table, "index": index, "mask": mask}
    right = rows(**inputs)["y"].astype("f4")
    wrong = np.where(mask[:, None], table[(index + 1) % 20] * np.float32(3), np.float32(0))
    answers = [
        gonogo.judge(reference=rows, inputs=inputs, outputs={"y": y}) for y in (right, wrong)
    ]
    assert [answer.verdict for answer in answers] == ["pass", "pass_by_tolerance"]
    assert "is off by +1" in answers[1].message
