"""Softmax and the L2 norm over the last axis."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gonogo.kernels.kernel import Kernel
from gonogo.kernels.normalization import Array

Outputs = Mapping[str, Array]


def softmax(x: Array) -> Outputs:
    """Return y = exp(x - max) / sum exp(x - max)."""
    largest = np.max(x, axis=-1, keepdims=True)
    shifted = x - largest
    e = np.exp(shifted)
    total = np.sum(e, axis=-1, keepdims=True)
    y = e / total
    return {"y": y}


def _by_reciprocal(x: Array) -> Outputs:
    largest = np.max(x, axis=-1, keepdims=True)
    shifted = x - largest
    e = np.exp(shifted)
    total = np.sum(e, axis=-1, keepdims=True)
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


def l2norm(x: Array, epsilon: Array) -> Outputs:
    """Return y = x / max(|x|, epsilon), with the norm of each row."""
    square = x * x
    total = np.sum(square, axis=-1, keepdims=True)
    norm = np.sqrt(total)
    y = x / np.maximum(norm, epsilon)
    return {"y": y}


def _normalized_by_reciprocal(x: Array, epsilon: Array) -> Outputs:
    square = x * x
    total = np.sum(square, axis=-1, keepdims=True)
    norm = np.sqrt(total)
    reciprocal = 1.0 / np.maximum(norm, epsilon)
    y = x * reciprocal
    return {"y": y}


KERNELS = (
    Kernel("softmax", softmax, ("y",), ways=(_by_reciprocal, _by_logarithm)),
    Kernel("l2norm", l2norm, ("y",), ways=(_normalized_by_reciprocal,)),
)
