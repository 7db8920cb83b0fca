"""The L2 norm over the last axis, and its gradient."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gonogo.kernels.kernel import Kernel
from gonogo.kernels.normalization import Array

Outputs = Mapping[str, Array]


def l2norm(x: Array, epsilon: Array) -> Outputs:
    """Return y = x / max(|x|, epsilon), with the norm |x| of each row."""
    square = x * x
    total = np.sum(square, axis=-1, keepdims=True)
    norm = np.sqrt(total)
    y = x / np.maximum(norm, epsilon)
    return {"y": y}


def _by_reciprocal(x: Array, epsilon: Array) -> Outputs:
    square = x * x
    total = np.sum(square, axis=-1, keepdims=True)
    norm = np.sqrt(total)
    reciprocal = 1.0 / np.maximum(norm, epsilon)
    y = x * reciprocal
    return {"y": y}


def l2norm_backward(x: Array, dy: Array, epsilon: Array) -> Outputs:
    """Return dx = (dy - y sum_j(dy y)) / |x|, with y = x / |x|; norms are above epsilon."""
    square = x * x
    total = np.sum(square, axis=-1, keepdims=True)
    norm = np.maximum(np.sqrt(total), epsilon)
    y = x / norm
    dy_y = dy * y
    projection = np.sum(dy_y, axis=-1, keepdims=True)
    along = y * projection
    across = dy - along
    dx = across / norm
    return {"dx": dx}


def _autograd(x: Array, dy: Array, epsilon: Array) -> Outputs:
    """Return dy / norm - x (sum_j(dy x / norm^2) / norm), as it is derived from the quotient."""
    square = x * x
    total = np.sum(square, axis=-1, keepdims=True)
    norm = np.maximum(np.sqrt(total), epsilon)
    direct = dy / norm
    twice = (x / norm) / norm
    weighted = -dy * twice
    d_norm = np.sum(weighted, axis=-1, keepdims=True)
    through = x * (d_norm / norm)
    dx = direct + through
    return {"dx": dx}


def _scaled_by_norm_squared(x: Array, dy: Array, epsilon: Array) -> Outputs:
    """Return dy r - x r^3 sum_j(dy x), with r = 1 / |x|."""
    square = x * x
    total = np.sum(square, axis=-1, keepdims=True)
    reciprocal = 1.0 / np.maximum(np.sqrt(total), epsilon)
    dy_x = dy * x
    projection = np.sum(dy_x, axis=-1, keepdims=True)
    share = projection * (reciprocal * reciprocal * reciprocal)
    dx = dy * reciprocal - x * share
    return {"dx": dx}


KERNELS = (
    Kernel("l2norm", l2norm, ("y",), ways=(_by_reciprocal,)),
    Kernel("l2norm_bw", l2norm_backward, ("dx",), ways=(_autograd, _scaled_by_norm_squared)),
)
