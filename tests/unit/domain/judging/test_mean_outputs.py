"""Means of 16-bit rows as an output in fp32: their plain sums are exact, other right ones round."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from gonogo.judging.judging import judge
from gonogo.numerics.formats import round_to
from numeric_cases import Case, spec

Array = NDArray[np.float32]
SHAPE = (13, 777)
SEEDS = 4


def plain(x: Array) -> Array:
    return x.sum(axis=1, dtype=np.float32) / np.float32(x.shape[1])


def updated(x: Array, lanes: int) -> Array:
    """Return the mean by Welford's updates of lanes, which are merged in pairs."""
    parts = []
    for lane in range(lanes):
        mean = np.zeros(len(x), np.float32)
        columns = x.T[lane::lanes]
        for index, column in enumerate(columns, 1):
            mean += (column - mean) / np.float32(index)
        parts.append((mean, len(columns)))
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [(a + (b - a) * np.float32(m / (n + m)), n + m) for (a, n), (b, m) in pairs]
    return parts[0][0]


def corrected(x: Array) -> Array:
    mean = plain(x)
    return mean + plain(x - mean[:, None])


def stale(x: Array) -> Array:
    mean = plain(x)
    mean[5] = mean[4]
    return mean


RIGHT: dict[str, Callable[[Array], Array]] = {
    "a plain sum": plain,
    "Welford in 8 lanes": lambda x: updated(x, 8),
    "Welford in 4 lanes": lambda x: updated(x, 4),
    "mean + mean(x - mean)": corrected,
}
WRONG: dict[str, Callable[[Array], Array]] = {
    "over N - 1": lambda x: plain(x) * np.float32(SHAPE[1] / (SHAPE[1] - 1)),
    "without the last 32 columns": lambda x: plain(x[:, :-32]),
    "of the row before": stale,
    "off by 1e-6": lambda x: plain(x) + np.float32(1e-6),
}


def explanations(form: str, offset: float, mean: Callable[[Array], Array]) -> set[str]:
    results = set()
    for seed in range(SEEDS):
        test = spec(
            "layernorm_fw",
            SHAPE,
            numerics={"input": form, "output": "fp32"},
            inputs={"regime": "normal", "mean": offset, "std": 1},
        )
        case = Case.of(test, seed)
        outputs = {"mean": mean(case.given["x"])}
        judged = judge(
            test, case.given, case.given, outputs, arithmetic="fp32-inside", produced=("mean",)
        )
        results.add(str(judged.explanation))
    return results


@pytest.mark.parametrize("form", ["bf16", "fp16"])
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_mean_is_explained(form: str, name: str) -> None:
    assert explanations(form, 0.0, RIGHT[name]) == {"explained"}
    assert explanations(form, 20.0, RIGHT[name]) == {"explained"}


@pytest.mark.parametrize("form", ["bf16", "fp16"])
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_mean_is_not(form: str, name: str) -> None:
    assert "explained" not in explanations(form, 0.0, WRONG[name])


def test_a_mean_that_is_stored_in_16_bits_is_not_one_of_an_fp32_kernel() -> None:
    assert "explained" not in explanations("bf16", 0.0, lambda x: round_to(plain(x), "bf16"))
