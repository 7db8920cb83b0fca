"""A program that loses a term, since what it stores underflows, acquits no kernel without it."""

from __future__ import annotations

import numpy as np

from gonogo.judging.judging import judge
from gonogo.numerics.formats import round_to
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.verdicts import Explanation, Verdict

EPSILON = 1e-5


def test_a_gradient_without_s2_is_no_false_alarm_where_a_stored_b_underflows() -> None:
    # ATen's form is rstd P + b x + c; with x about 1000, b = -s2 rstd^2 is below fp16's numbers
    draw = np.random.default_rng(3).standard_normal
    x, dy, gamma = 1000.0 * draw((4, 64)), 0.01 * draw((4, 64)), np.ones(64)
    given = {name: round_to(a, "fp16") for name, a in (("x", x), ("dy", dy), ("gamma", gamma))}
    wide = {name: a.astype(np.float64) for name, a in given.items()}
    mean = wide["x"].mean(axis=1, keepdims=True)
    rstd = 1.0 / np.sqrt(wide["x"].var(axis=1, keepdims=True) + EPSILON)
    given |= {"mean": mean[:, 0].astype(np.float32), "rstd": rstd[:, 0].astype(np.float32)}
    product = wide["dy"] * wide["gamma"]
    dx = rstd * (product - product.mean(axis=1, keepdims=True))
    test = TestSpec.parse(
        {
            "kernel": "layernorm_bw",
            "shape": [4, 64],
            "epsilon": EPSILON,
            "numerics": {
                "input": {
                    "x": "fp16",
                    "dy": "fp16",
                    "gamma": "fp16",
                    "mean": "fp32",
                    "rstd": "fp32",
                },
                "output": "fp16",
            },
            "tolerance": {"rtol": 0.0, "atol": 1e-7},
        }
    )
    judged = judge(
        test, given, given, {"dx": round_to(dx, "fp16")}, arithmetic=None, produced=("dx",)
    )
    assert judged.verdict is Verdict.inconclusive
    assert judged.explanation is Explanation.inconclusive
    assert "s2" in judged.outputs["dx"].statistics["unseen_terms"]
