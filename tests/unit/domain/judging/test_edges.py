"""The analytic lower edge of every tolerance: no right kernel is beyond it, and it isn't far beyond
them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.arithmetics import RIGHT
from gonogo.judging import edges, expected
from gonogo.judging.judging import judge
from gonogo.kernels.layernorm import pieces, reference
from numeric_cases import REGIMES, Case, spec

RTOLS = (0.0, 1e-3, 1e-1)
ARITHMETIC = "tt-train"


def stored(case: Case) -> dict[str, Any]:
    judged = judge(case.test, case.raw, case.given, case.emulated(), arithmetic=ARITHMETIC)
    return {name: each.statistics for name, each in judged.outputs.items()}


def beyond(case: Case, outputs: dict[str, Any], arithmetic: str) -> list[tuple[str, str]]:
    """(output, comparator) of every edge that a kernel's outputs exceed."""
    found = edges.edges(case.test, case.raw, case.given, arithmetic, RTOLS)
    result = []
    for name, judged in judge(
        case.test, case.raw, case.given, outputs, arithmetic=arithmetic
    ).outputs.items():
        numbers = judged.statistics
        pairs = [
            (f"rtol {rtol:g}", numbers["needed_atol"][f"{rtol:g}"], found[name].needed_atol[rtol])
            for rtol in RTOLS
        ]
        pairs += [
            (each, numbers[each], getattr(found[name], each))
            for each in ("rel_frobenius", "pcc_deficit", "ulp_max")
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
"""Welford's is a way to make a variance: the backward kernel is given its own."""


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
    found = edges.edges(case.test, case.raw, case.given, ARITHMETIC, RTOLS)["dx"]
    wanted = expected.expectations(case.test, case.given, ARITHMETIC)["dx"]
    raw = reference.reference(case.test, case.raw)["dx"]
    error = np.minimum(wanted.bound, 7.5 * np.sqrt(wanted.variance)) + np.abs(
        wanted.reference - raw
    )
    for rtol in RTOLS:
        assert found.needed_atol[rtol] == pytest.approx(
            float((error - rtol * np.abs(raw)).max()), rel=1e-12
        )
    assert found.needed_atol[0.0] < 2 * stored(case)["dx"]["needed_atol"]["0"]


def test_blocks_of_rows_and_columns_give_what_the_whole_gives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for kernel in ("layernorm_bw", "layernorm_fw"):
        case = Case.of(spec(kernel, (100, 130), tolerance={"rtol": 1e-3, "atol": 1e-3}))
        whole = edges.edges(case.test, case.raw, case.given, ARITHMETIC, RTOLS)
        with monkeypatch.context() as patch:
            patch.setattr(pieces, "BLOCK", 4096)
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
    found = edges.edges(case.test, case.raw, case.given, ARITHMETIC, RTOLS)["y"]
    assert found.needed_atol[0.0] == np.inf
    assert found.to_json()["needed_atol"]["0.0"] is None
