"""Arithmetic and functions of single elements: add, sub, mul, div, exp, log, rsqrt, reciprocal."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from gonogo.kernels.kernel import Array, Kernel, Outputs, Parameters, Shape

AWAY_FROM_0 = {"regime": "uniform", "low": 0.25, "high": 4.0}


def alike(*tensors: str) -> Callable[[Shape, Parameters], dict[str, Shape]]:
    """Return the function of the shapes of tensors that all have the first one's."""
    return lambda shape, parameters: dict.fromkeys(tensors, shape)


def add(a: Array, b: Array) -> Outputs:
    """Return y = a + b."""
    y = a + b
    return {"y": y}


def sub(a: Array, b: Array) -> Outputs:
    """Return y = a - b."""
    y = a - b
    return {"y": y}


def mul(a: Array, b: Array) -> Outputs:
    """Return y = a b."""
    y = a * b
    return {"y": y}


def div(a: Array, b: Array) -> Outputs:
    """Return y = a / b."""
    y = a / b
    return {"y": y}


def _div_by_reciprocal(a: Array, b: Array) -> Outputs:
    """Return a (1 / b), as devices without a division do."""
    reciprocal = 1.0 / b
    y = a * reciprocal
    return {"y": y}


def exp(x: Array) -> Outputs:
    """Return y = e^x."""
    y = np.exp(x)
    return {"y": y}


def _exp_by_power_of_2(x: Array) -> Outputs:
    """Return 2^(x log2 e), as GPUs and flash kernels do: its error grows with abs(x)."""
    exponent = x * (1 / math.log(2))
    y = np.exp2(exponent)
    return {"y": y}


def log(x: Array) -> Outputs:
    """Return y = ln x."""
    y = np.log(x)
    return {"y": y}


def _log_by_power_of_2(x: Array) -> Outputs:
    """Return log2(x) ln 2, as GPUs do."""
    exponent = np.log2(x)
    y = exponent * math.log(2)
    return {"y": y}


def rsqrt(x: Array) -> Outputs:
    """Return y = 1 / sqrt(x)."""
    root = np.sqrt(x)
    y = 1.0 / root
    return {"y": y}


def reciprocal(x: Array) -> Outputs:
    """Return y = 1 / x."""
    y = 1.0 / x
    return {"y": y}


def _base_2(x: Array) -> Outputs:
    """It is 2^x."""
    y = np.exp2(x)
    return {"y": y}


def _logarithm_to_base_2(x: Array) -> Outputs:
    """It is the logarithm to base 2."""
    y = np.log2(x)
    return {"y": y}


KERNELS = (
    Kernel("add", add, ("y",), shapes=alike("a", "b", "y")),
    Kernel("sub", sub, ("y",), shapes=alike("a", "b", "y")),
    Kernel("mul", mul, ("y",), shapes=alike("a", "b", "y")),
    Kernel(
        "div",
        div,
        ("y",),
        ways=(_div_by_reciprocal,),
        shapes=alike("a", "b", "y"),
        regimes={"b": AWAY_FROM_0},
    ),
    Kernel("exp", exp, ("y",), ways=(_exp_by_power_of_2,), mistakes={"base-2": _base_2}),
    Kernel(
        "log",
        log,
        ("y",),
        ways=(_log_by_power_of_2,),
        regimes={"x": AWAY_FROM_0},
        mistakes={"base-2": _logarithm_to_base_2},
    ),
    Kernel("rsqrt", rsqrt, ("y",), regimes={"x": AWAY_FROM_0}),
    Kernel("reciprocal", reciprocal, ("y",), regimes={"x": AWAY_FROM_0}),
)
