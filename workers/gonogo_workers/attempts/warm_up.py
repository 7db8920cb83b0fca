"""Loads compiled code before the first seed, or compiles it where there is none yet."""

from __future__ import annotations

import numpy as np

from gonogo.judging.inputs import generate, quantise
from gonogo.judging.judging import judge
from gonogo.kernels.registry import numerics
from gonogo.numerics.jit import load_for_all
from gonogo.spec.test_spec import TestSpec

WARM_UP = (
    {"kernel": "layernorm_bw", "shape": [2, 64]},
    {"kernel": "layernorm_fw", "shape": [2, 64]},
    # the compiled comparison of all other kernels
    {"kernel": "rmsnorm_fw", "shape": [2, 64]},
)

ARITHMETICS = ("tt-train", None)
"""A model by its budget, and one that is found by replay: each has compiled code of its own."""


def warm_up() -> None:
    """Run everything that a worker does with a seed, so that the first seed does not wait.

    From then on small tests are judged by compiled code, too: a worker judges thousands of seeds.
    """
    load_for_all()
    for fields in WARM_UP:
        test = TestSpec.parse(fields)
        raw = generate(test, 0)
        given = quantise(test, raw)
        outputs = {
            name: np.asarray(value, np.float32)
            for name, value in numerics(test).reference(test, given).items()
        }
        shaped = {name: outputs[name].reshape(test.shape_of(name)) for name in test.outputs}
        for arithmetic in ARITHMETICS:
            judge(test, raw, given, shaped, arithmetic=arithmetic)
