"""Kernels whose arithmetic is named: no other program may explain their outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gonogo.judging.judging import SeedJudgement, judge
from gonogo.numerics.formats import round_to
from gonogo.spec.test_spec import TestSpec
from numeric_cases import REGIMES, Case, spec

Array = NDArray[np.float32]
LOOSE = {"rtol": 2e-2, "atol": 2e-2}
FORMATS: dict[str, dict[str, Any]] = {
    "bf16": {},
    "fp32": {"input": "fp32", "output": "fp32"},
    "fp16": {"input": "fp16", "output": "fp16"},
}
ROWS = "column sums: rows in order"


def torch_kernel(
    case: Case, *, rstd_factor: float = 1.0, missing: slice | None = None, column: str = "fp32"
) -> dict[str, Array]:
    """Run a LayerNorm as torch does: everything inside is fp32, and each output is rounded once.

    missing: columns that a sum leaves out. column: the format of the sums down the columns.
    """
    out = case.test.numerics.output
    x, gamma = case.given["x"], case.given["gamma"]
    n = np.float32(x.shape[1])
    mean = x.mean(axis=1, keepdims=True, dtype=np.float32)
    variance = np.square(x - mean).sum(axis=1, keepdims=True, dtype=np.float32) / n
    rstd = 1 / np.sqrt(variance + np.float32(case.test.epsilon))
    if case.test.kernel == "layernorm_fw":
        used = x.copy()
        if missing is not None:
            used[:, missing] = 0
            mean = used.sum(axis=1, keepdims=True, dtype=np.float32) / n
        y = (x - mean) * (rstd * np.float32(rstd_factor)) * gamma + case.given["beta"]
        return {
            "y": round_to(y, out),
            "mean": round_to(mean[:, 0], out),
            "rstd": round_to(rstd[:, 0], out),
        }
    if "mean" in case.given:
        mean, rstd = case.given["mean"][:, None], case.given["rstd"][:, None]
    else:  # autograd on a CPU keeps them in gamma's format
        mean, rstd = (
            round_to(statistic, case.test.numerics.format_of("gamma")) for statistic in (mean, rstd)
        )
    dy = case.given["dy"]
    normalized, p = (x - mean) * rstd, dy * gamma
    summed = p.copy()
    if missing is not None:
        summed[:, missing] = 0
    s1 = summed.sum(axis=1, keepdims=True, dtype=np.float32) / n
    s2 = (p * normalized).sum(axis=1, keepdims=True, dtype=np.float32) / n
    dx = rstd * np.float32(rstd_factor) * (p - s1 - normalized * s2)
    return {
        "dx": round_to(dx, out),
        "dgamma": round_to(running(dy * normalized, column), out),
        "dbeta": round_to(running(dy, column), out),
    }


def running(terms: Array, form: str) -> Array:
    """Add up the rows in order, in a format."""
    total = np.zeros(terms.shape[1], np.float32)
    for row in terms:
        total = round_to(total + row, form)
    return total


def judged(case: Case, outputs: dict[str, Array], arithmetic: str | None) -> SeedJudgement:
    return judge(
        case.test,
        case.raw,
        case.given,
        outputs,
        arithmetic=arithmetic,
        produced=tuple(outputs),
    )


def case_of(
    name: str, shape: tuple[int, int], regime: str = "uniform", seed: int = 0, **numerics: Any
) -> Case:
    return Case.of(spec(name, shape, numerics=numerics, inputs=dict(REGIMES[regime])), seed)


def storing(case: Case, form: str, *, last: bool = True) -> dict[str, Array]:
    """Run a forward kernel that stores x^, and gamma x^ unless `last` is False."""
    x, gamma, beta = (case.given[name] for name in ("x", "gamma", "beta"))
    centered = x - x.mean(axis=1, keepdims=True, dtype=np.float32)
    variance = np.square(centered).mean(axis=1, keepdims=True, dtype=np.float32)
    normalized = round_to(centered / np.sqrt(variance + np.float32(case.test.epsilon)), form)
    scaled = normalized * gamma
    return {"y": round_to((round_to(scaled, form) if last else scaled) + beta, form)}


# `small` data are subnormal in fp16, and `constant` data can't tell right from wrong. The rows of a
# ramp and their roundings are equal: fp32 sums err more than the replay allows, named or not.
REGIMES_OF = [
    (form, regime)
    for form in FORMATS
    for regime in REGIMES
    if regime != "constant" and (form, regime) not in (("fp16", "small"), ("fp32", "ramp"))
]


@pytest.mark.parametrize("kernel", ["layernorm_fw", "layernorm_bw"])
@pytest.mark.parametrize(("form", "regime"), REGIMES_OF)
def test_torch_s_right_kernels_are_explained_by_its_name(
    kernel: str, regime: str, form: str
) -> None:
    # a regime has two of the four: over all of them, each format has each
    turn = list(REGIMES).index(regime) % 2
    for shape, name, statistics in (
        (
            ((40, 100), "torch", "given"),
            ((5, 33), "torch-eager", "given"),
        ),
        (
            ((40, 100), "torch-eager", "own"),
            ((5, 33), "torch", "own"),
        ),
    )[turn]:
        more = {"statistics": statistics} if kernel == "layernorm_bw" else {}
        case = case_of(kernel, shape, regime, **FORMATS[form], **more)
        column = case.test.numerics.output if name == "torch-eager" else "fp32"
        judgement = judged(case, torch_kernel(case, column=column), name)
        assert judgement.verdict == "pass", (shape, statistics, name, judgement.to_json())


@pytest.mark.parametrize("form", FORMATS)
def test_torch_s_name_shows_a_factor_of_a_thousandth_and_a_missing_tile(form: str) -> None:
    for kernel, output in (("layernorm_fw", "y"), ("layernorm_bw", "dx")):
        case = case_of(kernel, (96, 1024), **FORMATS[form])
        for wrong in (
            torch_kernel(case, rstd_factor=1.001),
            torch_kernel(case, missing=slice(544, 576)),
        ):
            output_judgement = judged(case, {output: wrong[output]}, "torch").outputs[output]
            assert output_judgement.explanation == "unexplained"


def test_a_16_bit_column_sum_is_torch_eagers_and_not_torchs() -> None:
    case = case_of("layernorm_bw", (200, 64))
    outputs = torch_kernel(case, column="bf16")
    assert judged(case, outputs, "torch-eager").explanation == "explained"
    by_other = judged(case, outputs, "torch").outputs
    assert by_other["dx"].explanation == "explained"
    assert by_other["dgamma"].explanation == by_other["dbeta"].explanation == "unexplained"
    assert by_other["dbeta"].statistics["reproduced_by"] == f"bf16: column sum stored, {ROWS}"
    assert judged(case, torch_kernel(case), "torch-eager").explanation == "explained"
    # and a missing row tile shows in them
    dy = np.where(np.arange(200)[:, None] // 32 == 5, np.float32(0), case.given["dy"])
    short = Case(case.test, 0, case.raw, {**case.given, "dy": dy})
    outputs["dgamma"] = torch_kernel(short, column="bf16")["dgamma"]
    assert judged(case, outputs, "torch-eager").outputs["dgamma"].explanation == "unexplained"


@pytest.mark.parametrize("form", ["bf16", "fp16"])
def test_only_the_named_program_explains_an_output(form: str) -> None:
    case = case_of("layernorm_fw", (32, 512), **FORMATS[form])
    stored = f"{form}: x^, gamma x^ stored"
    for name, by_both, by_one in (
        (None, "explained", "explained"),
        (stored, "explained", "unexplained"),
        ("16-bit: gamma x^, x^ stored", "explained", "unexplained"),
        (f"{form}: x^ stored", "unexplained", "explained"),
        (f"fp32-inside; y: {form}: x^ stored", "unexplained", "explained"),
        ("fp32-inside", "unexplained", "unexplained"),
        ("dx: fp32-inside", "explained", "explained"),
    ):
        judgement = judged(case, storing(case, form), name)
        assert judgement.explanation == by_both, name
        statistics = judgement.outputs["y"].statistics
        # whatever the name, the program that reproduces the output is known
        assert judgement.arithmetic == stored
        assert statistics.get("reproduced_by") == (None if by_both == "explained" else stored)
        assert statistics["arithmetic"] == (stored if by_both == "explained" else None)
        assert judged(case, storing(case, form, last=False), name).explanation == by_one, name


def test_an_output_ignores_what_it_doesn_t_have() -> None:
    forward = case_of("layernorm_fw", (32, 512))
    right = {name: value for name, value in torch_kernel(forward).items() if name == "y"}
    name = f"bf16: column sum stored, {ROWS}"
    judgement = judged(forward, right, name)
    assert (judgement.explanation, judgement.arithmetic) == ("explained", "fp32-inside")
    backward = case_of("layernorm_bw", (40, 64))
    outputs = torch_kernel(backward, column="bf16")
    assert judged(backward, outputs, name).arithmetic == f"{name}; fp32-inside"
    # an fp32 test has no 16-bit format, so that nothing is stored in one
    wide = case_of("layernorm_fw", (32, 512), **FORMATS["fp32"])
    y = {"y": torch_kernel(wide)["y"]}
    assert judged(wide, y, "16-bit: x^ stored").arithmetic == "fp32-inside"
    assert judged(wide, y, "bf16: x^ stored").explanation == "unexplained"


def test_the_order_of_sums_is_part_of_a_name_and_the_form_is_not() -> None:
    case = case_of("layernorm_fw", (8, 8192), "offset", **FORMATS["fp32"])
    x, gamma, beta = (case.given[name] for name in ("x", "gamma", "beta"))
    n = np.float32(x.shape[1])
    mean = np.add.accumulate(x, axis=1, dtype=np.float32)[:, -1:] / n
    squares = np.square(x - mean)
    variance = np.add.accumulate(squares, axis=1, dtype=np.float32)[:, -1:] / n
    factor = gamma / np.sqrt(variance + np.float32(case.test.epsilon))
    y = {"y": np.asarray((x - mean) * factor + beta, np.float32)}
    assert judged(case, y, "fp32-inside, running sums").explanation == "explained"
    by_other = judged(case, y, "fp32-inside")
    assert by_other.explanation == "unexplained"
    assert by_other.outputs["y"].statistics["reproduced_by"] == "fp32-inside, running sums"


def test_what_can_t_be_replayed_is_judged_by_the_budget_of_the_name() -> None:
    case = case_of("layernorm_fw", (32, 64), output="bfp8_b")
    outputs = {"y": case.emulated()["y"]}
    judgement = judged(case, outputs, "fp32-inside")
    assert judgement.arithmetic == "fp32-inside"
    assert "nearest_arithmetic" not in judgement.outputs["y"].statistics


def test_a_program_that_overflows_has_a_distance_that_json_has() -> None:
    test = TestSpec.parse(
        {
            "kernel": "rmsnorm_fw",
            "shape": [8, 64],
            "numerics": {"input": "fp16", "output": "fp16"},
            "tolerance": LOOSE,
        }
    )
    x = round_to(300 + np.random.default_rng(1).standard_normal((8, 64)), "fp16")
    given = {"x": x, "gamma": np.ones(64, np.float32)}
    y = x / np.sqrt(np.square(x).mean(axis=1, keepdims=True) + np.float32(1e-6))
    outputs = {"y": round_to(y, "fp16")}
    result = judge(
        test, given, given, outputs, arithmetic="fp16: square stored", produced=("y",)
    ).outputs["y"]
    assert result.explanation == "unexplained"
    assert np.isfinite(result.statistics["cell_max"])
    assert result.statistics["reproduced_by"] == "fp32-inside"


def running_mean(x: Array, lanes: int = 16) -> Array:
    """Return the mean of each row as ATen has it: running means of lanes, merged at the end."""
    mean, count = np.zeros(len(x), np.float32), 0
    for lane in range(lanes):
        columns = x.T[lane::lanes]
        part = np.zeros(len(x), np.float32)
        for index, column in enumerate(columns, 1):
            part += (column - part) / np.float32(index)
        count += len(columns)
        mean += (part - mean) * np.float32(len(columns) / count)
    return mean


def test_a_mean_of_terms_that_cancel_may_err_by_roundings_of_their_size() -> None:
    """In a symmetric ramp, and of 16-bit terms, every simulated order of sums is exact."""
    wide = {"gamma": "fp32", "beta": "fp32"}
    for case in (
        case_of("layernorm_fw", (10, 33), "ramp", **FORMATS["fp32"]),
        case_of("layernorm_fw", (64, 128), input=wide),
    ):
        mean = running_mean(case.given["x"])
        assert judged(case, {"mean": mean}, "fp32-inside").explanation == "explained"
        wrong = {"mean": mean + np.float32(1e-6)}
        assert judged(case, wrong, "fp32-inside").explanation == "unexplained"


def test_a_dgamma_whose_mean_is_subtracted_late_is_explained_far_from_zero() -> None:
    far = {"regime": "offset", "offset": 10}
    case = Case.of(spec("layernorm_bw", (64, 128), numerics=FORMATS["fp32"], inputs=far))
    x, dy = case.given["x"], case.given["dy"]
    mean, rstd = (case.given[name][:, None] for name in ("mean", "rstd"))
    late = {"dgamma": ((dy * x - dy * mean) * rstd).sum(axis=0, dtype=np.float32)}
    assert judged(case, late, "fp32-inside").explanation == "explained"
    wrong = {"dgamma": late["dgamma"] * np.float32(1.0001)}
    assert judged(case, wrong, "fp32-inside").explanation == "unexplained"
