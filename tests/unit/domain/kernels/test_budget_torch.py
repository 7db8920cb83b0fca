"""The budgets of torch's kernels.

They explain right fp32 arithmetic, which comes close to the bound in 16 bits. They show wrong
terms.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gonogo.judging.judging import SeedJudgement, judge
from gonogo.kernels.layernorm.arithmetic.terms import backward_terms, forward_terms
from gonogo.numerics.formats import round_to
from gonogo.spec.builds import torch_builds
from numeric_cases import REGIMES, Case, spec

Array = NDArray[np.float32]
FP32 = {"input": "fp32", "output": "fp32"}


def kernel(
    case: Case,
    *,
    rstd_factor: float = 1.0,
    missing: slice | None = None,
    column_format: str = "fp32",
) -> dict[str, Array]:
    """Run a LayerNorm as torch does: everything inside is fp32, and each output is rounded once.

    missing: columns that a sum leaves out.
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
    xhat, p = (x - mean) * rstd, dy * gamma
    summed = p.copy()
    if missing is not None:
        summed[:, missing] = 0
    s1 = summed.sum(axis=1, keepdims=True, dtype=np.float32) / n
    s2 = (p * xhat).sum(axis=1, keepdims=True, dtype=np.float32) / n
    dx = rstd * np.float32(rstd_factor) * (p - s1 - xhat * s2)
    return {
        "dx": round_to(dx, out),
        "dgamma": round_to(running(dy * xhat, column_format), out),
        "dbeta": round_to(running(dy, column_format), out),
    }


def running(terms: Array, fmt: str) -> Array:
    total = np.zeros(terms.shape[1], np.float32)
    for row in terms:
        total = round_to(total + row, fmt)
    return total


def judged(case: Case, outputs: dict[str, Array], arithmetic: str = "torch") -> SeedJudgement:
    return judge(case.test, case.raw, case.given, outputs, arithmetic=arithmetic)


def case_of(
    name: str, shape: tuple[int, int], regime: str = "uniform", seed: int = 0, **numerics: Any
) -> Case:
    return Case.of(spec(name, shape, numerics=numerics, inputs=dict(REGIMES[regime])), seed)


FORMATS = {"bf16": {}, "fp32": FP32, "fp16": {"input": "fp16", "output": "fp16"}}
# The mean of `small` data is subnormal in fp16, and no budget covers subnormal numbers. `constant`
# data can't tell right from wrong.
REGIMES_OF = [
    (fmt, regime)
    for fmt in FORMATS
    for regime in REGIMES
    if regime != "constant" and (fmt, regime) != ("fp16", "small")
]


@pytest.mark.parametrize("name", ["layernorm_fw", "layernorm_bw"])
@pytest.mark.parametrize(("fmt", "regime"), REGIMES_OF)
def test_right_kernels_are_explained_in_every_regime(name: str, regime: str, fmt: str) -> None:
    for shape in ((40, 100), (5, 33), (64, 512)):
        for statistics in ("given", "own") if name == "layernorm_bw" else ("own",):
            for seed in range(3):
                more = {"statistics": statistics} if name == "layernorm_bw" else {}
                case = case_of(name, shape, regime, seed, **FORMATS[fmt], **more)
                judgement = judged(case, kernel(case))
                assert judgement.verdict == "pass", (
                    shape,
                    statistics,
                    seed,
                    {name: output.to_json() for name, output in judgement.outputs.items()},
                )


def test_in_16_bits_the_budget_is_the_rounding_of_the_result_and_little_more() -> None:
    for name, output in (("layernorm_fw", "y"), ("layernorm_bw", "dx")):
        ratios = [
            judged(case, kernel(case)).outputs[output].statistics["budget_ratio"]
            for case in cases(name, 8)
        ]
        assert min(ratios) > 0.97
        assert max(ratios) <= 1.0


def cases(name: str, seeds: int) -> list[Case]:
    return [case_of(name, (96, 1024), seed=seed) for seed in range(seeds)]


def test_an_rstd_off_by_a_thousandth_is_seen_in_bf16() -> None:
    for name, output in (("layernorm_fw", "y"), ("layernorm_bw", "dx")):
        for case in cases(name, 3):
            output_judgement = judged(case, kernel(case, rstd_factor=1.001)).outputs[output]
            assert output_judgement.explanation in ("suspect", "unexplained")
            assert output_judgement.statistics["scale_z"] > 5
            assert (
                name == "layernorm_fw" or output_judgement.statistics["budget_ratio"] < 2
            )  # no element of dx shows it, but zeros of y do


def test_in_fp32_an_rstd_off_by_a_hundred_thousandth_is_seen() -> None:
    for name in ("layernorm_fw", "layernorm_bw"):
        case = case_of(name, (96, 1024), **FP32)
        assert judged(case, kernel(case)).explanation == "explained"
        assert judged(case, kernel(case, rstd_factor=1 + 1e-5)).explanation == "unexplained"


@pytest.mark.parametrize("tile", [0, 17, 31])
def test_one_tile_missing_from_a_sum_is_seen(tile: int) -> None:
    missing = slice(32 * tile, 32 * tile + 32)
    for name, output, direction in (
        ("layernorm_fw", "y", "mean_z"),
        ("layernorm_bw", "dx", "row_z"),
    ):
        for case in cases(name, 2):
            output_judgement = judged(case, kernel(case, missing=missing)).outputs[output]
            assert output_judgement.explanation == "unexplained"
            assert output_judgement.statistics[direction] > 10


def test_a_16_bit_column_sum_is_torch_eagers_and_nobody_elses() -> None:
    for seed in range(4):
        case = case_of("layernorm_bw", (200, 64), seed=seed)
        outputs = kernel(case, column_format="bf16")
        assert judged(case, outputs, "torch-eager").explanation == "explained"
        by_other = judged(case, outputs)
        assert by_other.outputs["dx"].explanation == "explained"
        assert (
            by_other.outputs["dgamma"].explanation
            == by_other.outputs["dbeta"].explanation
            == "unexplained"
        )
        assert judged(case, kernel(case), "torch-eager").explanation == "explained"


def test_even_with_16_bit_column_sums_a_missing_row_tile_is_seen() -> None:
    case = case_of("layernorm_bw", (200, 512))
    outputs = kernel(case, column_format="bf16")
    dy = np.where(np.arange(200)[:, None] // 32 == 5, np.float32(0), case.given["dy"])
    short = Case(case.test, 0, case.raw, {**case.given, "dy": dy})
    outputs["dgamma"] = kernel(short, column_format="bf16")["dgamma"]
    assert judged(case, outputs, "torch-eager").outputs["dgamma"].explanation == "unexplained"


def test_wide_statistics_are_kept_wide() -> None:
    narrow = forward_terms(spec("layernorm_fw", (4, 64)), "torch")
    wide = forward_terms(
        spec("layernorm_fw", (4, 64), numerics={"input": {"gamma": "fp32"}}), "torch"
    )
    assert (narrow.saved, wide.saved) == (2.0**-8, 2.0**-24)
    own_terms = backward_terms(spec(numerics={"statistics": "own"}), "torch")
    assert own_terms.own_statistics is not None
    assert own_terms.own_statistics.saved == 2.0**-8


def test_eager_layer_norm_on_a_cpu_has_a_arithmetic_of_its_own() -> None:
    eager = {name for name, build in torch_builds().items() if build.arithmetic == "torch-eager"}
    assert eager == {"torch-eager", "torch-eager-linear"}
    assert {build.arithmetic for build in torch_builds().values()} == {"torch", "torch-eager"}
    assert [name for name, build in torch_builds().items() if build.outputs] == [
        name for name in torch_builds() if "linear" in name
    ]
