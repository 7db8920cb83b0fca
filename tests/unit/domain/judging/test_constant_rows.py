"""Tests whose x is constant in every row: a green there says nothing about the kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import gonogo
from gonogo.spec import unseen_terms
from gonogo.spec.verdicts import Explanation

ROWS, FEATURES, EPSILON = 8, 48, 1e-5
LIMIT = "x (it is constant in every row)"
RNG = np.random.default_rng(1)
GAMMA, BETA = 1 + RNG.random(FEATURES, np.float32), RNG.random(FEATURES, np.float32)
DY = RNG.standard_normal((ROWS, FEATURES), np.float32)
LOOSE = {"rtol": 1e-2, "atol": 1e-2}

Floats = NDArray[np.float32]


def constants(value: float, varied: int = 0) -> Floats:
    """Return x (rows, N): the first `varied` rows are random, the others hold a value."""
    x = np.full((ROWS, FEATURES), value, np.float32)
    x[:varied] = RNG.standard_normal((varied, FEATURES), np.float32)
    return x


def normalized(x: Floats, *, centered: bool = True) -> tuple[Floats, Floats]:
    """Return x^ and rstd."""
    apart = x - x.mean(axis=1, keepdims=True) if centered else x
    rstd = 1 / np.sqrt((apart**2).mean(axis=1, keepdims=True) + np.float32(EPSILON))
    return apart * rstd, rstd


def forward(x: Floats, gamma: Floats | float = GAMMA, **fields: Any) -> gonogo.Judgment:
    """Judge a LayerNorm that uses a gamma."""
    return gonogo.judge(
        kernel="layernorm_fw",
        inputs={"x": x, "gamma": GAMMA, "beta": BETA},
        outputs={"y": normalized(x)[0] * gamma + BETA},
        epsilon=EPSILON,
        **{"tolerance": LOOSE} | fields,
    )


@pytest.mark.parametrize("arithmetic", [None, "generic", "fp32"])
@pytest.mark.parametrize("value", [0.0, 0.1, 3.0])
@pytest.mark.parametrize("gamma", [GAMMA, 1.0], ids=["right", "gamma missing"])
def test_a_green_on_constants_is_inconclusive_and_says_why(
    arithmetic: str | None, value: float, gamma: Floats | float
) -> None:
    judged = forward(constants(value), gamma, arithmetic=arithmetic)
    assert judged.verdict == judged.explanation == "inconclusive"
    assert f"y: couldn't have seen: {LIMIT}" in judged.words or "y: every row was" in judged.words


def test_without_a_tolerance_a_wrong_output_on_constants_is_still_wrong() -> None:
    x = constants(0.1)
    inputs = {"x": x, "gamma": GAMMA, "beta": BETA}
    outputs = {"y": np.zeros_like(x)}
    judged = gonogo.judge(kernel="layernorm_fw", inputs=inputs, outputs=outputs, epsilon=EPSILON)
    assert judged.explanation == "unexplained"


@pytest.mark.parametrize("gamma", [GAMMA, 1.0], ids=["right", "gamma missing"])
def test_one_row_that_varies_is_judged(gamma: Floats | float) -> None:
    judged = forward(constants(3.0, varied=1), gamma, tolerance={"rtol": 1, "atol": 10})
    assert judged.verdict == ("pass" if gamma is GAMMA else "pass_by_tolerance")


def test_the_gradients_of_a_kernel_that_computes_its_statistics_say_nothing_on_constants() -> None:
    x = constants(0.1)
    x_hat, rstd = normalized(x)
    product = DY * GAMMA
    s1, s2 = (term.mean(axis=1, keepdims=True) for term in (product, product * x_hat))
    judged = gonogo.judge(
        kernel="layernorm_bw",
        inputs={"x": x, "gamma": GAMMA, "dy": DY},
        outputs={
            "dx": rstd * (product - s1 - x_hat * s2),
            "dgamma": (DY * x_hat).sum(axis=0),
            "dbeta": DY.sum(axis=0),
        },
        epsilon=EPSILON,
        numerics={"statistics": "own"},
        tolerance=LOOSE,
    )
    assert judged.verdict == "inconclusive"
    explanations = {name: output["explanation"] for name, output in judged.outputs.items()}
    assert explanations == {"dx": "inconclusive", "dgamma": "inconclusive", "dbeta": "explained"}


@pytest.mark.parametrize(("value", "verdict"), [(0.0, "inconclusive"), (3.0, "pass")])
def test_only_zeros_say_nothing_to_rmsnorm(value: float, verdict: str) -> None:
    x = constants(value)
    judged = gonogo.judge(
        kernel="rmsnorm_fw",
        inputs={"x": x, "gamma": GAMMA},
        outputs={"y": normalized(x, centered=False)[0] * GAMMA},
        epsilon=EPSILON,
        tolerance=LOOSE,
    )
    assert judged.verdict == verdict


def test_the_groups_of_group_norm_are_its_rows() -> None:
    x = np.repeat(np.float32([1, 5, 2, 9]), 24).reshape(2, 4, 12)
    gamma, beta = GAMMA[:4], BETA[:4]
    judged = gonogo.judge(
        kernel="groupnorm_fw",
        inputs={"x": x, "gamma": gamma, "beta": beta},
        outputs={"y": np.broadcast_to(beta[None, :, None], x.shape).copy()},
        epsilon=EPSILON,
        parameters={"num_groups": 2},
        tolerance=LOOSE,
    )
    assert judged.verdict == "inconclusive"


def test_other_seeds_do_not_make_a_green_on_constants_a_false_alarm() -> None:
    entry = {"explanation": Explanation.inconclusive, "unseen_terms": ["gamma"]}
    assert unseen_terms.is_cause(entry)
    assert not unseen_terms.is_cause(entry | {"unseen_terms": ["x", "gamma"]})
