"""Several seeds together: factors and suspects add up, and their common fault is named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gonogo.judgment import pooled_entries
from gonogo.spec.verdicts import Explanation
from tests.unit.domain.judgment.kernels import inputs, judged, layernorm


def seeds(*scales: float, shape: tuple[int, int] = (16, 64)) -> list[dict[str, Any]]:
    entries = []
    for seed, scale in enumerate(scales):
        given = inputs(shape, seed=seed)
        entries.append(judged(given, layernorm(**given, scale=scale)).entry())
    return entries


@pytest.mark.parametrize(("scale", "is_right"), [(1.0, True), (1 + 6e-7, False)])
def test_seeds_add_up(scale: float, is_right: bool) -> None:
    pooled = pooled_entries(seeds(*[scale] * 4))
    assert (pooled.explanation is Explanation.explained) is is_right
    assert pooled.seeds == 4
    assert ("rstd has a factor of 1 +" in pooled.reason) is not is_right
    with pytest.raises(ValueError, match="there are no seeds to pool"):
        pooled_entries([])


def suspect(*common: tuple[float, float], faults: Any = None) -> dict[str, Any]:
    """Return a suspect entry with factors of y: estimates and deviations."""
    pair = {"source": "y", "is_certain": False, "limit": 2.0**-22}
    pairs = [{**pair, "estimate": size, "deviation": deviation} for size, deviation in common]
    return {"explanation": "suspect", "common": pairs, "faults": faults}


def fault(id: str, share: float, size: float = 1.0) -> dict[str, Any]:
    return {"id": id, "label": f"{id} {share:g}", "size": size, "share": share}


@pytest.mark.parametrize(
    ("entries", "explanation", "reason"),
    [
        ([suspect()], "suspect", ""),
        ([suspect()] * 2, "unexplained", "suspect in 2 of 2 seeds: together that is no chance"),
        ([suspect((1e-6, 3e-7))], "suspect", ""),  # 3.3 deviations
        ([suspect((1e-6, 2e-7))], "unexplained", "y has a factor of 1 +1e-06 over 1 seeds"),
        ([suspect((-1e-6, 2e-7))], "unexplained", "y has a factor of 1 -1e-06 over 1 seeds"),
        ([suspect((2e-7, 1e-9))], "suspect", ""),  # below the limit
        ([suspect((1e-6, 0.0))], "suspect", ""),  # it says nothing
    ],
)
def test_factors_and_suspects_of_seeds_are_pooled(
    entries: list[dict[str, Any]], explanation: str, reason: str
) -> None:
    pooled = pooled_entries(entries)
    assert (pooled.explanation, pooled.reason) == (explanation, reason)


def test_a_pooled_factor_is_weighted_by_precision() -> None:
    (factor,) = pooled_entries([suspect((4e-7, 1e-7)), suspect((1e-7, 2e-7))]).factors
    assert factor.estimate == pytest.approx((4 * 4e-7 + 1e-7) / 5)
    assert factor.deviation == pytest.approx(1 / np.sqrt(1.25e14))
    assert factor.is_certain is False


@pytest.mark.parametrize(
    ("faults", "expected"),
    [
        ([[fault("a", 0.9, 2.0)], [fault("a", 0.6, 4.0)]], ("a", "a 0.9", 3.0, 0.75, 2)),
        ([[fault("a", 0.9)], [fault("b", 0.4)]], None),  # .45 of both
        ([[fault("a", 0.9), fault("b", 0.9)]], ("a", "a 0.9", 1.0, 0.9, 1)),  # named first
        ([[fault("b", 0.69)]], None),
        ([None, [fault("b", 0.7)]], ("b", "b 0.7", 1.0, 0.7, 1)),
        ([[]], None),
    ],
)
def test_the_fault_that_explains_most_of_all_seeds_is_named(
    faults: list[Any], expected: tuple[str, str, float, float, int] | None
) -> None:
    named = pooled_entries([suspect(faults=one) for one in faults]).fault
    if expected is None or named is None:
        assert named is expected
    else:
        assert (named.id, named.label, named.seeds) == (*expected[:2], expected[4])
        assert (named.size, named.share) == pytest.approx(expected[2:4])
