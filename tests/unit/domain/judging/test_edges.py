"""The analytic lower edge of every tolerance.

No right kernel is beyond it, and it isn't far beyond right kernels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gonogo.judging import edges, expected
from gonogo.judging.judging import judge
from gonogo.kernels import kind
from gonogo.kernels.layernorm import reference
from numeric_cases import REGIMES, Case, spec
from right_arithmetics import RIGHT

RTOLS = (0.0, 1e-3, 1e-1)
ARITHMETIC = "tt-train"


def stored(case: Case) -> dict[str, Any]:
    judged = judge(case.test, case.raw, case.given, case.emulated(), arithmetic=ARITHMETIC)
    return {name: output.statistics for name, output in judged.outputs.items()}


def beyond(case: Case, outputs: dict[str, Any], arithmetic: str) -> list[tuple[str, str]]:
    """Return (output, comparator) for every edge that a kernel's outputs exceed."""
    output_edges = edges.edges(case.test, case.raw, case.given, arithmetic, RTOLS)
    result = []
    for name, judged in judge(
        case.test, case.raw, case.given, outputs, arithmetic=arithmetic
    ).outputs.items():
        numbers = judged.statistics
        pairs = [
            (
                f"rtol {rtol:g}",
                numbers["needed_atol"][f"{rtol:g}"],
                output_edges[name].needed_atol[rtol],
            )
            for rtol in RTOLS
        ]
        pairs += [
            (statistic, numbers[statistic], getattr(output_edges[name], statistic))
            for statistic in ("rel_frobenius", "pcc_deficit", "ulp_max")
        ]
        result += [
            (name, comparator)
            for comparator, value, edge in pairs
            if value is not None and value > edge
        ]
    return result


@pytest.mark.parametrize("kernel", ["layernorm_bw", "layernorm_fw"])
@pytest.mark.parametrize("regime", ["uniform", "normal", "offset", "hot tile", "ramp"])
def test_a_right_kernel_is_within_every_edge(kernel: str, regime: str) -> None:
    for seed in range(3):
        case = Case.of(spec(kernel, (40, 200), regime=regime), seed)
        assert beyond(case, case.emulated(), ARITHMETIC) == [], seed


ARITHMETICS = [
    (name, kernel)
    for name in RIGHT
    for kernel in ("layernorm_bw", "layernorm_fw")
    if kernel[-2:] == "fw" or "Welford" not in name
]
"""Welford's algorithm computes a variance. The backward kernel gets the variance as an input."""


@pytest.mark.parametrize("regime", ["uniform", "offset"])
@pytest.mark.parametrize(("arithmetic", "kernel"), ARITHMETICS)
def test_right_kernels_of_every_arithmetic_are_within_every_edge(
    arithmetic: str, kernel: str, regime: str
) -> None:
    kernel_of, arithmetics = RIGHT[arithmetic]
    for seed in range(2):
        case = Case.of(spec(kernel, (40, 200), regime=regime), seed)
        outputs = kernel_of(case.test, case.given)
        for arithmetic in arithmetics:
            assert beyond(case, outputs, arithmetic) == [], (seed, arithmetic)


def test_the_edge_is_what_the_definition_says_and_less_than_twice_what_a_right_kernel_needs() -> (
    None
):
    case = Case.of(spec("layernorm_bw", (64, 519)))
    dx_edges = edges.edges(case.test, case.raw, case.given, ARITHMETIC, RTOLS)["dx"]
    expectation = expected.expectations(case.test, case.given, ARITHMETIC)["dx"]
    raw = reference.reference(case.test, case.raw)["dx"]
    error = np.minimum(expectation.bound, 7.5 * np.sqrt(expectation.variance)) + np.abs(
        expectation.reference - raw
    )
    for rtol in RTOLS:
        assert dx_edges.needed_atol[rtol] == pytest.approx(
            float((error - rtol * np.abs(raw)).max()), rel=1e-12
        )
    assert dx_edges.needed_atol[0.0] < 2 * stored(case)["dx"]["needed_atol"]["0"]


def test_blocks_of_rows_and_columns_give_what_the_whole_gives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for kernel in ("layernorm_bw", "layernorm_fw"):
        case = Case.of(spec(kernel, (100, 130), tolerance={"rtol": 1e-3, "atol": 1e-3}))
        whole = edges.edges(case.test, case.raw, case.given, ARITHMETIC, RTOLS)
        with monkeypatch.context() as patch:
            patch.setattr(kind, "ELEMENTS_PER_BLOCK", 4096)
            cut = edges.edges(case.test, case.raw, case.given, ARITHMETIC, RTOLS)
        for name in case.test.outputs:
            for rtol in RTOLS:
                assert cut[name].needed_atol[rtol] == pytest.approx(
                    whole[name].needed_atol[rtol], rel=1e-9
                ), name
            assert cut[name].rel_frobenius == pytest.approx(whole[name].rel_frobenius, rel=1e-6), (
                name
            )
            assert cut[name].alarm == pytest.approx(whole[name].alarm, rel=1e-6, abs=1e-12), name


def test_rows_that_say_nothing_bound_nothing() -> None:
    case = Case.of(spec("layernorm_fw", (8, 128), inputs=dict(REGIMES["constant"])))
    y_edges = edges.edges(case.test, case.raw, case.given, ARITHMETIC, RTOLS)["y"]
    assert y_edges.needed_atol[0.0] == np.inf
    assert y_edges.to_json()["needed_atol"]["0.0"] is None
