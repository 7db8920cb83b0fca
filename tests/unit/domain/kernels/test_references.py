"""Norms by hand: their formulas, their slopes, and the names of their ways."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from gonogo.arithmetic import exact
from gonogo.graph import trace
from gonogo.kernels.kernel import Function, Kernel
from gonogo.kernels.registry import KERNELS, kernel_of

SHAPES = {
    "x": (4, 6),
    "gamma": (6,),
    "beta": (6,),
    "dy": (4, 6),
    "mean": (4, 1),
    "rstd": (4, 1),
}
PARAMETERS = {"epsilon": 1e-3}


def evaluated(kernel: Kernel, function: Function) -> dict[str, np.ndarray]:
    """Return the outputs of a function's graph on the kernel's inputs."""
    names = list(inspect.signature(function).parameters)
    inputs = {
        name: np.random.default_rng(place).normal(size=shape)
        for place, (name, shape) in enumerate(SHAPES.items())
        if name in names
    }
    parameters = {name: value for name, value in PARAMETERS.items() if name in names}
    graph = trace(function, inputs, **parameters)
    values = exact(graph, inputs)
    return {name: values[node.id] for name, node in graph.outputs.items()}


def test_a_way_says_how_it_differs() -> None:
    x, ones = np.ones((2, 4)), np.ones(4)
    given = {"x": x, "gamma": ones, "beta": ones}
    kernel = KERNELS["layernorm_fw"]
    names = [trace(way, given, epsilon=1e-3).name for way in (kernel.reference, *kernel.ways)]
    assert len(set(names)) == len(names)
    assert {"layernorm", "two pass, divided", "one pass, scaled"} <= set(names)


def test_rmsnorm_is_its_formula() -> None:
    outputs = evaluated(KERNELS["rmsnorm_fw"], KERNELS["rmsnorm_fw"].reference)
    x, gamma = (
        np.random.default_rng(n).normal(size=SHAPES[name]) for n, name in enumerate(("x", "gamma"))
    )
    rstd = 1 / np.sqrt((x * x).mean(1, keepdims=True) + 1e-3)
    np.testing.assert_allclose(outputs["y"], gamma * x * rstd, rtol=1e-12)


@pytest.mark.parametrize("kind", ["layernorm", "rmsnorm"])
def test_gradients_are_the_slopes_of_the_forward_pass(kind: str) -> None:
    random = np.random.default_rng(1)
    given = {name: random.normal(size=SHAPES[name]) for name in ("x", "gamma", "beta", "dy")}
    direction = random.normal(size=SHAPES["x"])
    forward, backward = (kernel_of(f"{kind}_{way}").reference for way in ("fw", "bw_own"))

    def total(step: float) -> float:
        beta = {"beta": given["beta"]} if kind == "layernorm" else {}
        x = given["x"] + step * direction
        y = forward(x=x, gamma=given["gamma"], epsilon=1e-3, **beta)["y"]
        return float((y * given["dy"]).sum())

    gradients = backward(x=given["x"], gamma=given["gamma"], dy=given["dy"], epsilon=1e-3)
    slope = (total(1e-5) - total(-1e-5)) / 2e-5
    np.testing.assert_allclose(slope, (gradients["dx"] * direction).sum(), rtol=1e-7)


def test_group_norm_of_one_group_is_layernorm_of_each_sample() -> None:
    x = np.random.default_rng(1).normal(size=(2, 6, 5))
    y = KERNELS["groupnorm_fw"].reference(x, np.ones(6), np.zeros(6), 1e-3, 1)["y"]
    rows = x.reshape(2, 30)
    right = KERNELS["layernorm_fw"].reference(rows, np.ones(30), np.zeros(30), 1e-3)["y"]
    np.testing.assert_allclose(y.reshape(2, 30), right, rtol=1e-12)


def test_layernorm_is_its_formula() -> None:
    outputs = evaluated(KERNELS["layernorm_fw"], KERNELS["layernorm_fw"].reference)
    x, gamma, beta = (
        np.random.default_rng(place).normal(size=SHAPES[name])
        for place, name in enumerate(("x", "gamma", "beta"))
    )
    xhat = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-3)
    np.testing.assert_allclose(outputs["y"], gamma * xhat + beta, rtol=1e-12)
