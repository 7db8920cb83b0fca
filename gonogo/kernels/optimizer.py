"""Adam's update of weights, with an L2 penalty (adam) or decoupled decay (adamw).

All tensors have the shape of the weights. `step` counts updates from 1, this one included. Sources:
Kingma and Ba (2015), algorithm 1; Loshchilov and Hutter (2019), algorithm 2.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from gonogo import fields
from gonogo.kernels.kernel import Array, Kernel, Outputs, Parameter, Parameters, Shape

Moments = tuple[Array, Array, Array]
"""An update in units of the rate, and the new m and v."""
Update = Callable[..., Moments]
"""A function of a gradient, m, v, beta1, beta2, epsilon and step."""


def _usual(
    gradient: Array, m: Array, v: Array, beta1: Array, beta2: Array, epsilon: Array, step: int
) -> Moments:
    """Return m^ / (sqrt(v^) + epsilon), with m^ and v^ corrected for their start at 0."""
    next_m = beta1 * m + (1.0 - beta1) * gradient
    square = gradient * gradient
    next_v = beta2 * v + (1.0 - beta2) * square
    m_hat = next_m / (1.0 - beta1**step)
    v_hat = next_v / (1.0 - beta2**step)
    root = np.sqrt(v_hat)
    denominator = root + epsilon
    update = m_hat / denominator
    return update, next_m, next_v


def _corrected_last(
    gradient: Array, m: Array, v: Array, beta1: Array, beta2: Array, epsilon: Array, step: int
) -> Moments:
    """Return the same with m + (g - m) (1 - beta1), and corrections behind the root, as torch."""
    next_m = m + (gradient - m) * (1.0 - beta1)
    next_v = v * beta2 + gradient * gradient * (1.0 - beta2)
    root = np.sqrt(next_v)
    root_hat = root / np.sqrt(1.0 - beta2**step)
    denominator = root_hat + epsilon
    quotient = next_m / denominator
    update = quotient / (1.0 - beta1**step)
    return update, next_m, next_v


def _uncorrected(
    gradient: Array, m: Array, v: Array, beta1: Array, beta2: Array, epsilon: Array, step: int
) -> Moments:
    """The update leaves out the corrections for the start at 0."""
    next_m = beta1 * m + (1.0 - beta1) * gradient
    next_v = beta2 * v + (1.0 - beta2) * gradient * gradient
    update = next_m / (np.sqrt(next_v) + epsilon)
    return update, next_m, next_v


def _inside_root(
    gradient: Array, m: Array, v: Array, beta1: Array, beta2: Array, epsilon: Array, step: int
) -> Moments:
    """The epsilon is added inside the root."""
    next_m = beta1 * m + (1.0 - beta1) * gradient
    next_v = beta2 * v + (1.0 - beta2) * gradient * gradient
    root = np.sqrt(next_v / (1.0 - beta2**step) + epsilon)
    update = next_m / (1.0 - beta1**step) / root
    return update, next_m, next_v


def _adam(
    update_of: Update, weight: Array, gradient: Array, m: Array, v: Array, rate: Array, **more: Any
) -> Outputs:
    update, next_m, next_v = update_of(gradient, m, v, **more)
    change = rate * update
    next_weight = weight - change
    return {"next_weight": next_weight, "next_m": next_m, "next_v": next_v}


def adam(
    weight: Array,
    gradient: Array,
    m: Array,
    v: Array,
    rate: Array,
    beta1: Array,
    beta2: Array,
    epsilon: Array,
    step: int,
) -> Outputs:
    """Return the weights less rate m^ / (sqrt(v^) + epsilon), and the new m and v."""
    numbers = {"beta1": beta1, "beta2": beta2, "epsilon": epsilon, "step": step}
    return _adam(_usual, weight, gradient, m, v, rate, **numbers)


def _decayed(
    update_of: Update, weight: Array, gradient: Array, m: Array, v: Array, rate: Array,
    decay: Array, **more: Any,
) -> Outputs:  # fmt: skip
    """Return Adam's outputs from weights that are decayed first, as torch does."""
    factor = 1.0 - rate * decay
    decayed = weight * factor
    return _adam(update_of, decayed, gradient, m, v, rate, **more)


def _decay_in_update(
    update_of: Update, weight: Array, gradient: Array, m: Array, v: Array, rate: Array,
    decay: Array, **more: Any,
) -> Outputs:  # fmt: skip
    """Return the weights less rate (update + decay weight), as optax does."""
    update, next_m, next_v = update_of(gradient, m, v, **more)
    with_decay = update + decay * weight
    change = rate * with_decay
    next_weight = weight - change
    return {"next_weight": next_weight, "next_m": next_m, "next_v": next_v}


def _adamw(
    way: Callable[..., Outputs], update_of: Update, weight: Array, gradient: Array, m: Array,
    v: Array, rate: Array, decay: Array, **more: Any,
) -> Outputs:  # fmt: skip
    return way(update_of, weight, gradient, m, v, rate, decay, **more)


def _penalty(
    weight: Array, gradient: Array, m: Array, v: Array, rate: Array, decay: Array, **more: Any
) -> Outputs:
    """The decay is a penalty's gradient, as in Adam, not decoupled."""
    return _adam(_usual, weight, gradient + decay * weight, m, v, rate, **more)


def adamw(
    weight: Array,
    gradient: Array,
    m: Array,
    v: Array,
    rate: Array,
    decay: Array,
    beta1: Array,
    beta2: Array,
    epsilon: Array,
    step: int,
) -> Outputs:
    """Return weight (1 - rate decay) less Adam's update, and the new m and v."""
    numbers = {"beta1": beta1, "beta2": beta2, "epsilon": epsilon, "step": step}
    return _decayed(_usual, weight, gradient, m, v, rate, decay, **numbers)


def _shapes(shape: Shape, parameters: Parameters) -> dict[str, Shape]:
    inputs = dict.fromkeys(("weight", "gradient", "m", "v"), shape)
    return {**inputs, **dict.fromkeys(OUTPUTS, shape)}


_positive = partial(fields.number, above=0.0, most=1.0)
_beta = partial(fields.number, least=0.0, below=1.0)
PARAMETERS = {
    "rate": Parameter(_positive, 1e-3, "learning rate"),
    "beta1": Parameter(_beta, 0.9, "share of m that stays"),
    "beta2": Parameter(_beta, 0.999, "share of v that stays"),
    "step": Parameter(partial(fields.integer, least=1), 10, "number of this update, from 1"),
}
DECAY = {"decay": Parameter(partial(fields.number, least=0.0, most=1.0), 0.01, "weight decay")}
OUTPUTS = ("next_weight", "next_m", "next_v")
REGIMES = {"v": {"regime": "uniform", "low": 0.0, "high": 1.0}}
"""v is a mean of squares."""
WRONG = {"uncorrected": _uncorrected, "inside-root": _inside_root}
KERNELS = (
    Kernel(
        "adam",
        adam,
        OUTPUTS,
        _shapes,
        ways=(partial(_adam, _corrected_last),),
        parameters=PARAMETERS,
        regimes=REGIMES,
        mistakes={name: partial(_adam, update) for name, update in WRONG.items()},
    ),
    Kernel(
        "adamw",
        adamw,
        OUTPUTS,
        _shapes,
        ways=(
            partial(_adamw, _decayed, _corrected_last),
            partial(_adamw, _decay_in_update, _usual),
            partial(_adamw, _decay_in_update, _corrected_last),
        ),
        parameters=PARAMETERS | DECAY,
        regimes=REGIMES,
        mistakes={
            **{name: partial(_decayed, update) for name, update in WRONG.items()},
            "penalty": _penalty,
        },
    ),
)
