"""Edges: the smallest tolerances that a right kernel stays within, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gonogo.arithmetic import Quantity
from gonogo.judging.edges import edges, edges_of, headroom
from gonogo.judging.judging import judge
from gonogo.judgment.cells import Cells
from gonogo.judgment.tolerance import Tolerance
from numeric_cases import Case, perfect, spec

VALUES = np.array([[1.0, 2.0, -4.0], [0.0, 3.0, 7.0]])


def by_hand(noise: float, raw: float, tolerance: Tolerance | None) -> dict[str, object]:
    cells = Cells(VALUES, Quantity(VALUES.copy(), np.full(VALUES.shape, noise)), "bf16")
    return edges_of(cells, VALUES + raw, (0.0, 0.5), tolerance)


def test_without_noise_and_shift_half_a_step_is_enough() -> None:
    result = by_hand(0.0, 0.0, Tolerance(rtol=0.0, atol=1 / 64))
    assert result["needed_atol"] == pytest.approx({"0.0": 1 / 32, "0.5": 0.0}, abs=1e-12)
    assert result["tolerance_ratio"] == pytest.approx(2.0)
    assert result["ulp_max"] == pytest.approx(0.5)
    assert (result["rel_frobenius"], result["pcc_deficit"]) == (0.0, 0.0)
    assert result["alarm"] == pytest.approx(0.0)


def test_noise_and_shift_of_other_seeds_are_allowed_for() -> None:
    result = by_hand(1e-4, 0.01, None)
    moved = 8 * 0.01 + headroom(6) * 0.01
    assert result["needed_atol"]["0.0"] == pytest.approx(1 / 32 + moved)  # type: ignore[index]
    assert (result["tolerance_ratio"], result["alarm"]) == (None, None)
    raw = VALUES + 0.01
    error = math.sqrt(6e-4)  # all errors are alike, and so are those of other seeds
    assert result["rel_frobenius"] == pytest.approx(error / np.linalg.norm(raw))
    share = error / np.linalg.norm(raw - raw.mean())
    assert result["pcc_deficit"] == pytest.approx(1 - math.sqrt(1 - share**2), rel=1e-3)


@pytest.mark.parametrize(("count", "expected"), [(32 * 1024, 1.33), (160, 1.65)])
def test_headroom_is_larger_for_few_elements(count: int, expected: float) -> None:
    assert headroom(count) == pytest.approx(expected, rel=0.01)


def test_the_edges_of_a_seed_hold_its_numbers_and_a_wrong_output_has_none() -> None:
    case = Case.of(spec(shape=(16, 96), tolerance={"rtol": 0, "atol": 0.01}))
    outputs = case.emulated("tt-train-2025")
    arrays = case.test, case.raw, case.given, outputs
    judged = judge(*arrays, arithmetic="tt-train", with_limits=False, with_faults=False)
    by_output = edges(*arrays, judged, (0.0, 0.01), "tt-train")
    assert list(by_output) == ["dgamma", "dbeta"], "dx is wrong"
    for name, edge in by_output.items():
        numbers = judged.outputs[name].statistics
        for rtol in ("0.0", "0.01"):
            assert numbers["needed_atol"][rtol] <= edge["needed_atol"][rtol]
        for metric in ("rel_frobenius", "pcc_deficit", "ulp_max", "tolerance_ratio"):
            assert numbers[metric] <= edge[metric] <= 20 * numbers[metric] + 1e-3
        assert 0 <= edge["alarm"] <= 1


def test_an_output_of_more_axes_than_its_matrix_has_edges() -> None:
    case = Case.of(spec("groupnorm_fw", (2, 8, 16), parameters={"num_groups": 4}))
    arrays = case.test, case.raw, case.given, perfect(case.test, case.given)
    judged = judge(*arrays, arithmetic=None, with_limits=False, with_faults=False)
    by_output = edges(*arrays, judged, (0.0,))
    for name in case.test.outputs:
        needed = judged.outputs[name].statistics["needed_atol"]["0.0"]
        assert needed <= by_output[name]["needed_atol"]["0.0"] <= 20 * needed
