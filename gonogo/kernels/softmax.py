"""Softmax, log-softmax and cross entropy over the last axis, with their gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from gonogo.kernels.kernel import Array, Kernel, Outputs, Parameters, Shape

NORMAL: Mapping[str, Any] = {"regime": "normal", "std": 2.0}
PROBABILITIES: Mapping[str, Any] = {"regime": "uniform", "low": 0.0, "high": 2.0**-9}
"""Values whose sum over a row of 1,024 is about 1."""


def _exponentials(x: Array) -> tuple[Array, Array, Array]:
    """Return x - max, exp of it, and its sum along each row."""
    largest = np.max(x, axis=-1, keepdims=True)
    shifted = x - largest
    e = np.exp(shifted)
    total = np.sum(e, axis=-1, keepdims=True)
    return shifted, e, total


def softmax(x: Array) -> Outputs:
    """Return y = exp(x - max) / sum exp(x - max)."""
    _, e, total = _exponentials(x)
    y = e / total
    return {"y": y}


def _by_reciprocal(x: Array) -> Outputs:
    _, e, total = _exponentials(x)
    reciprocal = 1.0 / total
    y = e * reciprocal
    return {"y": y}


def _by_logarithm(x: Array) -> Outputs:
    """Return exp(x - logsumexp(x))."""
    largest = np.max(x, axis=-1, keepdims=True)
    shifted = x - largest
    total = np.sum(np.exp(shifted), axis=-1, keepdims=True)
    y = np.exp(shifted - np.log(total))
    return {"y": y}


def softmax_backward(y: Array, dy: Array) -> Outputs:
    """Return dx = y (dy - sum_j(y dy)), given the y of the forward pass."""
    y_dy = y * dy
    projection = np.sum(y_dy, axis=-1, keepdims=True)
    inner = dy - projection
    dx = y * inner
    return {"dx": dx}


def _two_products(y: Array, dy: Array) -> Outputs:
    """Return y dy - y sum_j(y dy), as torch does on a CPU."""
    y_dy = y * dy
    projection = np.sum(y_dy, axis=-1, keepdims=True)
    dx = y_dy - y * projection
    return {"dx": dx}


def log_softmax(x: Array) -> Outputs:
    """Return y = x - max - ln(sum exp(x - max))."""
    shifted, _, total = _exponentials(x)
    logarithm = np.log(total)
    y = shifted - logarithm
    return {"y": y}


def _log_sum_exp(x: Array) -> Array:
    """Return max + ln(sum exp(x - max)), (..., 1)."""
    largest = np.max(x, axis=-1, keepdims=True)
    e = np.exp(x - largest)
    total = np.sum(e, axis=-1, keepdims=True)
    log_sum_exp = largest + np.log(total)
    return log_sum_exp


def _minus_log_sum_exp(x: Array) -> Outputs:
    """Return x - (max + ln(sum)), which rounds the logarithm to the size of max."""
    y = x - _log_sum_exp(x)
    return {"y": y}


def log_softmax_backward(y: Array, dy: Array) -> Outputs:
    """Return dx = dy - exp(y) sum_j(dy), given the y of the forward pass."""
    probability = np.exp(y)
    total = np.sum(dy, axis=-1, keepdims=True)
    share = probability * total
    dx = dy - share
    return {"dx": dx}


def cross_entropy(x: Array, labels: Array) -> Outputs:
    """Return loss = ln(sum exp(x)) - x[label] of each row. labels: (...), whole. loss: (...)."""
    shifted, _, total = _exponentials(x)
    logarithm = np.log(total)
    at_label = np.take_along_axis(shifted, labels[..., None], -1)
    loss = logarithm - at_label
    return {"loss": loss[..., 0]}


def _loss_of_log_sum_exp(x: Array, labels: Array) -> Outputs:
    """Return logsumexp(x) - x[label]."""
    at_label = np.take_along_axis(x, labels[..., None], -1)
    loss = _log_sum_exp(x) - at_label
    return {"loss": loss[..., 0]}


def _loss_of_log_softmax(x: Array, labels: Array) -> Outputs:
    """Return minus the log-softmax at the label, by one of its ways."""
    at_label = np.take_along_axis(_minus_log_sum_exp(x)["y"], labels[..., None], -1)
    loss = -at_label
    return {"loss": loss[..., 0]}


def cross_entropy_backward(x: Array, labels: Array, dloss: Array) -> Outputs:
    """Return dx = dloss (softmax(x) - 1 at the label). dloss: (...)."""
    return _cross_entropy_backward(softmax, x, labels, dloss)


def _cross_entropy_backward(
    probabilities: Callable[[Array], Outputs], x: Array, labels: Array, dloss: Array
) -> Outputs:
    y = probabilities(x)["y"]
    is_label = labels[..., None] == np.arange(x.shape[-1])
    hit = np.where(is_label, 1.0, 0.0)
    difference = y - hit
    dx = difference * dloss[..., None]
    return {"dx": dx}


def _of_labels(shape: Shape, parameters: Parameters) -> dict[str, Shape]:
    return {"x": shape, "labels": shape[:-1], "loss": shape[:-1]}


def _of_labels_backward(shape: Shape, parameters: Parameters) -> dict[str, Shape]:
    return {"x": shape, "labels": shape[:-1], "dloss": shape[:-1], "dx": shape}


def _classes(shape: Shape, parameters: Parameters) -> int:
    return shape[-1]


KERNELS = (
    Kernel("softmax", softmax, ("y",), ways=(_by_reciprocal, _by_logarithm), regimes={"x": NORMAL}),
    Kernel(
        "softmax_bw",
        softmax_backward,
        ("dx",),
        ways=(_two_products,),
        regimes={"y": PROBABILITIES},
    ),
    Kernel("log_softmax", log_softmax, ("y",), ways=(_minus_log_sum_exp,), regimes={"x": NORMAL}),
    Kernel(
        "log_softmax_bw",
        log_softmax_backward,
        ("dx",),
        regimes={"y": {"regime": "uniform", "low": -12.0, "high": -4.0}},
    ),
    Kernel(
        "cross_entropy",
        cross_entropy,
        ("loss",),
        shapes=_of_labels,
        ways=(_loss_of_log_sum_exp, _loss_of_log_softmax),
        regimes={"x": NORMAL},
        whole={"labels": _classes},
    ),
    Kernel(
        "cross_entropy_bw",
        cross_entropy_backward,
        ("dx",),
        shapes=_of_labels_backward,
        ways=tuple(
            partial(_cross_entropy_backward, way) for way in (_by_reciprocal, _by_logarithm)
        ),
        regimes={"x": NORMAL},
        whole={"labels": _classes},
    ),
)
