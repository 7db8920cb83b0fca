"""Small kernels in float32, right and wrong, for the tests of judgments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo.arithmetic.formats import round_to
from gonogo.graph import Graph, trace
from gonogo.judgment import OutputJudgment, judge
from gonogo.kernels.registry import KERNELS

Array = NDArray[Any]
F = np.float32


def stored(values: Any, form: str) -> Array:
    """Return values rounded to a format, as float32."""
    return np.asarray(round_to(np.asarray(values, np.float64), form), F)


def layernorm(
    x: Array,
    gamma: Array,
    beta: Array,
    *,
    scale: float = 1.0,
    mean_of: Callable[[Array], Array] = lambda a: a.mean(-1, keepdims=True),
) -> Array:
    """Return LayerNorm in float32; scale: the factor by which rstd is wrong."""
    x, gamma, beta = (np.asarray(a, F) for a in (x, gamma, beta))
    centered = x - mean_of(x)
    variance = np.square(centered).mean(-1, keepdims=True)
    return centered * (F(scale) / np.sqrt(variance + F(1e-5))) * gamma + beta


def inputs(
    shape: tuple[int, ...] = (32, 256), form: str = "fp32", seed: int = 0
) -> dict[str, Array]:
    """Return x, gamma and beta of a LayerNorm in a format."""
    random = np.random.default_rng(seed)
    raw = {
        "x": random.normal(size=shape),
        "gamma": random.normal(1, 0.2, shape[-1]),
        "beta": random.uniform(-1, 1, shape[-1]),
    }
    return {name: round_to(array, form) for name, array in raw.items()}


_GRAPHS: dict[Any, list[Graph]] = {}


def graphs(name: str, given: Mapping[str, Array], ways: int = 4, **parameters: Any) -> list[Graph]:
    """Return the graphs of a kernel's reference and its first ways."""
    shapes = tuple((key, array.shape) for key, array in given.items())
    key = name, shapes, ways, tuple(parameters.items())
    if key not in _GRAPHS:
        kernel = KERNELS[name]
        functions = (kernel.reference, *kernel.ways[:ways])
        _GRAPHS[key] = [trace(function, given, **parameters) for function in functions]
    return _GRAPHS[key]


def judged(given: Mapping[str, Array], y: Array, form: str = "fp32") -> OutputJudgment:
    """Judge y of a LayerNorm."""
    ways = graphs("layernorm_fw", given, epsilon=1e-5)
    narrow = () if form == "fp32" else (form,)
    return judge(ways, given, {"y": stored(y, form)}, {"y": form}, narrow).outputs["y"]


ROWS, COLUMNS = 64, 200
EPSILON = {"epsilon": 1e-5}


@cache
def tensors() -> Mapping[str, Array]:
    r = np.random.default_rng(7)
    x, dy = r.normal(0.3, 1.2, (ROWS, COLUMNS)), r.normal(size=(ROWS, COLUMNS))
    mean, rstd = x.mean(-1, keepdims=True), 1 / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    vectors = {"gamma": r.normal(size=COLUMNS), "beta": r.normal(size=COLUMNS)}
    products = {"a": r.normal(size=(24, 96)), "b": r.normal(size=(96, 20))}
    products |= {name: r.normal(size=(1, 2, 24, 16)) for name in "qkv"}
    products |= {"row": r.normal(size=(1, 60)), "table": r.normal(size=(20, 64))}
    products |= {
        "image": r.normal(size=(4, 8, 20)),
        "weight": r.normal(size=8),
        "bias": r.normal(size=8),
    }
    return {"x": x, "far": x + 30, "mean": mean, "rstd": rstd, "dy": dy, **vectors, **products}


SMALL: dict[str, tuple[str, tuple[str, ...], dict[str, Any]]] = {
    "forward": ("layernorm_fw", ("x", "gamma", "beta"), EPSILON),
    "offset": ("layernorm_fw", ("far", "gamma", "beta"), EPSILON),
    "backward": ("layernorm_bw", ("x", "gamma", "mean", "rstd", "dy"), {}),
    "rmsnorm": ("rmsnorm_fw", ("x", "gamma"), EPSILON),
    "softmax": ("softmax", ("x",), {}),
    "matmul": ("matmul", ("a", "b"), {}),
    "cumsum": ("cumsum", ("x",), {}),
    "sum": ("sum", ("row",), {}),
    "attention": ("attention", ("q", "k", "v"), {"causal": False, "share": 1}),
    "groupnorm": ("groupnorm_fw", ("image", "weight", "bias"), {**EPSILON, "num_groups": 2}),
}


@cache
def small_kernel(name: str, form: str = "fp32") -> tuple[list[Graph], dict[str, Array]]:
    """Return the graphs of a reference and of a way or two, and inputs in a format."""
    title, names, parameters = SMALL[name]
    given = zip(KERNELS[title].inputs, names, strict=False)
    inputs = {at: round_to(tensors()[name], form) for at, name in given}
    ways = KERNELS[title].ways
    functions = [KERNELS[title].reference, *ways[:1], *ways[9:10]]  # of a LayerNorm: in one pass
    return [trace(function, inputs, **parameters) for function in functions], inputs
