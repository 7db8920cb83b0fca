"""The forensics of strange data.

Whatever the arrays hold, the answer is defined and plain JSON, without an exception or a warning.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gonogo.kernels.layernorm.forensics import diagnose
from gonogo.kernels.registry import numerics
from gonogo.spec.test_spec import TestSpec
from property_examples import examples

STRANGE = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    1e-38,
    1e-45,
    3e38,
    -3e38,
    float("nan"),
    float("inf"),
    float("-inf"),
    0.5,
    1e20,
]
SHAPES = st.sampled_from(
    [(1, 1), (1, 2), (2, 1), (3, 33), (33, 3), (40, 1), (5, 64), (20, 70), (45, 40)]
)


@st.composite
def arrays(draw: st.DrawFn, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Draw ordinary numbers, one strange number everywhere, a mixture of both, or equal rows."""
    rng = np.random.default_rng(draw(st.integers(0, 2**31)))
    kind = draw(st.sampled_from(["ordinary", "constant", "mixture", "rows alike"]))
    values = rng.uniform(-1, 1, size=shape)
    if kind == "constant":
        values = np.full(shape, draw(st.sampled_from(STRANGE)))
    elif kind == "mixture":
        values = np.where(rng.random(shape) < 0.2, rng.choice(STRANGE, size=shape), values)
    elif kind == "rows alike":
        values = np.broadcast_to(values[:1], shape)
    return np.ascontiguousarray(values, dtype=np.float32)


@settings(max_examples=examples(150), deadline=None)
@drawn(
    data=st.data(),
    shape=SHAPES,
    kernel=st.sampled_from(["layernorm_bw", "layernorm_fw"]),
    own_statistics=st.booleans(),
)
@pytest.mark.filterwarnings("error")
def test_whatever_the_arrays_hold_the_answer_is_defined(
    data: st.DataObject, shape: tuple[int, int], kernel: str, own_statistics: bool
) -> None:
    rows, features = shape
    numerics = {"statistics": "own"} if own_statistics and kernel == "layernorm_bw" else {}
    test = TestSpec.parse({"kernel": kernel, "shape": list(shape), "numerics": numerics})
    shapes = {
        "x": shape,
        "dy": shape,
        "gamma": (features,),
        "beta": (features,),
        "mean": (rows,),
        "rstd": (rows,),
    }
    given = {name: data.draw(arrays(size), label=name) for name, size in shapes.items()}
    results: dict[str, tuple[int, ...]] = {"y": shape, "mean": (rows,), "rstd": (rows,)}
    if kernel == "layernorm_bw":
        results = {"dx": shape, "dgamma": (features,), "dbeta": (features,)}
    outputs = {
        name: data.draw(arrays(size), label=name)
        for name, size in results.items()
        if data.draw(st.booleans())
    }
    diagnosis = diagnose(test, given, outputs)
    assert diagnosis.words
    written = diagnosis.to_json()
    assert json.loads(json.dumps(written, allow_nan=False)) == written
    silent = [
        term
        for term in diagnosis.terms
        if not term.words and (term.wrong or (not term.can_tell and term.name != "scale"))
    ]
    assert not silent


def test_outputs_without_a_finite_value_are_said_to_be_so() -> None:
    test = TestSpec.parse({"kernel": "layernorm_bw", "shape": [40, 40]})
    rng = np.random.default_rng(0)
    shapes = {"x": (40, 40), "dy": (40, 40), "gamma": (40,), "mean": (40,), "rstd": (40,)}
    given = {
        name: rng.uniform(0.1, 1, size=size).astype(np.float32) for name, size in shapes.items()
    }
    diagnosis = diagnose(test, given, {"dx": np.full((40, 40), np.nan, np.float32)})
    assert (
        diagnosis.words
        == "1600 of 1600 values of dx are not finite, in both row tiles, both column tiles"
    )


@pytest.mark.parametrize("kernel", ["layernorm_fw", "rmsnorm_fw", "groupnorm_fw"])
def test_values_that_only_a_missing_epsilon_makes_infinite_are_said_to_be_so(kernel: str) -> None:
    # rows of equal values, and of zeros, have an rstd of 1/0
    shape = [6, 8, 5] if kernel == "groupnorm_fw" else [6, 40]
    fields = {"parameters": {"num_groups": 1}} if kernel == "groupnorm_fw" else {}
    test = TestSpec.parse({"kernel": kernel, "shape": shape, **fields})
    x = np.random.default_rng(0).standard_normal((6, 40)).astype(np.float32)
    x[3] = 0.0
    channels = 8 if kernel == "groupnorm_fw" else 40
    given = {"x": x, "gamma": np.ones(channels, np.float32), "beta": np.ones(channels, np.float32)}
    if kernel == "rmsnorm_fw":
        del given["beta"]
    y = np.where(np.arange(6)[:, None] == 3, np.nan, x)
    words = "40 of 240 values of y are not finite, only in rows of equal values"
    assert numerics(test).diagnose(test, given, {"y": y}).words.startswith(f"{words}, as without")
    y[4, 5] = np.inf
    assert "as without epsilon" not in numerics(test).diagnose(test, given, {"y": y}).words
