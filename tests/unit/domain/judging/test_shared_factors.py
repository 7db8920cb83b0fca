"""The common factor of right fp32 kernels: from the order of their sums, and from stored values."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

from gonogo.judging import flips, inputs
from gonogo.judging.factors import CommonFactor, pooled
from gonogo.judging.judging import judge
from gonogo.judging.pairs import Reference, compare
from gonogo.judging.shared_factors import (
    fp32_factor,
    order_factors,
    shared_factors,
    stored_factor,
)
from gonogo.numerics.formats import round_to
from gonogo.spec.test_spec import TestSpec

ROWS, N = 16, 4096
EPSILON = 1e-6


def make_test(kernel: str, form: str, x: dict[str, Any], rows: int = ROWS, n: int = N) -> TestSpec:
    return TestSpec.parse(
        {
            "kernel": kernel,
            "shape": [rows, n],
            "inputs": {"x": x},
            "numerics": {"input": form, "output": form, "statistics": "own"},
        }
    )


def rmsnorm(given: dict[str, Any], form: str, *, running: bool, factor: float = 1.0) -> Any:
    """Return y of a right RMSNorm in fp32, with the squares in one running total or in pairs."""
    squares = np.square(given["x"].astype(np.float32))
    total = np.add.accumulate(squares, axis=1)[:, -1] if running else squares.sum(axis=1)
    mean = total[:, None] / np.float32(squares.shape[1]) + np.float32(EPSILON)
    return round_to(given["x"] * (factor / np.sqrt(mean)).astype(np.float32) * given["gamma"], form)


def best(test: TestSpec, tested: Any, other: Any, shared: float) -> CommonFactor:
    counts = flips.count(tested, other, test.numerics.output, shared)
    return pooled({"y": [asdict(counts)]})[0].best


@pytest.mark.parametrize("form", ["bf16", "fp16"])
@pytest.mark.parametrize(
    "x", [{"regime": "normal", "mean": 0, "std": 1}, {"regime": "offset", "offset": 100, "std": 1}]
)
def test_a_running_sum_of_16_bit_squares_is_a_factor_and_no_finding(
    form: str, x: dict[str, Any]
) -> None:
    test = make_test("rmsnorm_fw", form, x)
    given = inputs.quantise(test, inputs.generate(test, 0))
    shared = shared_factors(test, given)["y"]
    tested, other = (rmsnorm(given, form, running=running) for running in (True, False))
    # random mantissas would not explain it: this is what the simulated orders are for
    assert shared > 3 * fp32_factor(N)
    assert not best(test, tested, other, shared).seen
    if form == "fp16":
        assert best(test, tested, other, fp32_factor(N)).seen
    # what goes beyond is seen
    moved = rmsnorm(given, form, running=False, factor=1 + 3 * shared)
    assert best(test, moved, other, shared).seen


def test_the_squares_of_16_bit_values_shift_a_running_sum_by_the_quadratic_residues() -> None:
    # 100 + k/2 squared is an integer, or for odd k an integer and a quarter. Below 2^22 the sum's
    # spacing is 1/4 or less. From there to 2^23 it is 1/2: the quarter is a tie, and an integer is
    # even, so that the sum stays an integer. Each odd k loses its quarter from 2^22 on.
    generator = np.random.default_rng(0)
    x = (100 + generator.integers(-4, 5, (64, 1600)) / 2).astype(np.float32)
    errors = order_factors(x, 0.0, False)
    assert errors.shape == (5, 64)
    running = errors[1]
    total = np.square(x.astype(np.float64)).sum(axis=1)
    assert (total < 2.0**24).all()
    odd = 4 / 9
    lost = (total - 2.0**22) / 10_000 * odd / 4
    assert running.mean() == pytest.approx((lost / total / 2).mean(), rel=0.1)
    # more totals stay below the spacing that loses anything
    assert np.abs(errors[4]).max() < running.mean() / 20


def test_centered_rows_have_full_mantissas_and_no_such_factor() -> None:
    generator = np.random.default_rng(1)
    x = round_to(100 + generator.standard_normal((64, 1024)), "bf16")
    centered, plain = (np.abs(order_factors(x, EPSILON, c)[1].mean()) for c in (True, False))
    assert plain > 3e-6
    assert centered < plain / 10


def test_a_stored_rstd_is_shared_where_the_rows_round_it_alike() -> None:
    normal, offset = (
        make_test("rmsnorm_fw", "bf16", x)
        for x in (
            {"regime": "normal", "mean": 0, "std": 1},
            {"regime": "offset", "offset": 100, "std": 1},
        )
    )
    given = [inputs.quantise(test, inputs.generate(test, 0)) for test in (normal, offset)]
    assert stored_factor(normal, given[0]) == 0
    assert stored_factor(offset, given[1]) == 2.0**-6
    # fp32 outputs store nothing in 16 bits
    wide = make_test("rmsnorm_fw", "fp32", {"regime": "offset", "offset": 100, "std": 1})
    assert stored_factor(wide, inputs.generate(wide, 0)) == 0


def test_only_builds_that_may_store_rstd_are_given_the_room_for_it() -> None:
    test = make_test("rmsnorm_fw", "bf16", {"regime": "offset", "offset": 100, "std": 1}, n=1024)
    raw = inputs.generate(test, 0)
    given = inputs.quantise(test, raw)
    rstd = 1 / np.sqrt(np.square(given["x"].astype(np.float64)).mean(1) + EPSILON)

    def flips_of(stored: bool) -> dict[str, Any]:
        right = {"y": rmsnorm(given, "bf16", running=False), "rstd": round_to(rstd, "bf16")}
        tested = dict(right)
        if stored:
            stored_rstd = round_to(rstd, "bf16").astype(np.float64)[:, None]
            tested["y"] = round_to(
                round_to(given["x"] * stored_rstd, "bf16") * given["gamma"], "bf16"
            )
        judged = judge(test, raw, given, tested, arithmetic=None)
        result = compare(test, judged, raw, given, tested, right, Reference("other"))
        return dict(result.outputs["y"].statistics["reference"]["flips"])

    assert flips_of(stored=True)["shared_factor"] == 2.0**-6
    assert flips_of(stored=False)["shared_factor"] < 1e-5


def test_kernels_whose_statistics_are_given_share_no_rstd() -> None:
    test = TestSpec.parse(
        {
            "kernel": "layernorm_bw",
            "shape": [8, 64],
            "numerics": {"input": "bf16", "output": "bf16", "statistics": "given"},
        }
    )
    given = inputs.quantise(test, inputs.generate(test, 0))
    assert stored_factor(test, given) == 0
    assert shared_factors(test, given) == {
        "dx": fp32_factor(64),
        "dgamma": fp32_factor(8),
        "dbeta": fp32_factor(8),
    }


def test_the_columns_of_dgamma_share_the_errors_of_the_rows() -> None:
    test = make_test("rmsnorm_bw", "bf16", {"regime": "offset", "offset": 100, "std": 1})
    given = inputs.quantise(test, inputs.generate(test, 0))
    shared = shared_factors(test, given)
    assert shared["dgamma"] > shared["dx"] > 3 * fp32_factor(N)
