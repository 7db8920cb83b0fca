"""Terms that inputs don't use: removing them changes nothing, so they acquit of nothing unseen."""

from __future__ import annotations

import numpy as np
import pytest

import gonogo


@pytest.mark.parametrize("number_format", [np.float32, np.float16])
@pytest.mark.parametrize("std", [1.0, 1e-3])  # fp32 rounds an epsilon that the small one shows
def test_a_gamma_of_ones_is_idle_although_beta_cancels_some_elements(
    number_format: type[np.floating], std: float
) -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(scale=std, size=(32, 100)).astype(number_format)
    gamma = np.ones(100, number_format)
    beta = generator.normal(scale=0.3, size=100).astype(number_format)
    centered = x.astype(np.float32) - x.mean(axis=1, keepdims=True, dtype=np.float32)
    variance = (centered**2).mean(axis=1, keepdims=True)
    y = centered / np.sqrt(variance + np.float32(1e-6)) + beta.astype(np.float32)

    judgment = gonogo.judge(
        kernel="layernorm_fw",
        inputs={"x": x, "gamma": gamma, "beta": beta},
        outputs={"y": y.astype(number_format)},
        tolerance={"rtol": 0.0, "atol": 1e-8},
        epsilon=1e-6,
    )

    assert "gamma (these inputs don't use it)" in judgment.detection_limits["y"]
    assert judgment.verdict == "fail_by_tolerance"
