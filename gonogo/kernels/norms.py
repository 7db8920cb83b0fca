"""Norms with more: a residual added first, 1 + gamma (Gemma's), a bias; and the L2 norm."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from gonogo.kernels.kernel import Array, Kernel, Outputs, Parameters, Shape
from gonogo.kernels.normalization import USUAL, other_norms
from gonogo.kernels.rmsnorm import rstd_of


def _add_layernorm(
    norm: Callable[..., Outputs],
    x: Array,
    residual: Array,
    gamma: Array,
    beta: Array,
    epsilon: Array,
) -> Outputs:
    total = x + residual
    return {"y": norm(total, gamma, beta, epsilon, -1)["y"], "total": total}


def add_layernorm(x: Array, residual: Array, gamma: Array, beta: Array, epsilon: Array) -> Outputs:
    """Return total = x + residual, and y, its LayerNorm. x, residual: (..., N)."""
    return _add_layernorm(USUAL, x, residual, gamma, beta, epsilon)


def add_rmsnorm(x: Array, residual: Array, gamma: Array, epsilon: Array) -> Outputs:
    """Return total = x + residual, and y, its RMSNorm. x, residual: (..., N)."""
    total = x + residual
    rstd = rstd_of(total, epsilon)
    xhat = total * rstd
    y = xhat * gamma
    return {"y": y, "total": total}


def _add_rmsnorm_by_factor(x: Array, residual: Array, gamma: Array, epsilon: Array) -> Outputs:
    total = x + residual
    factor = rstd_of(total, epsilon) * gamma
    y = total * factor
    return {"y": y, "total": total}


def gemma_rmsnorm(x: Array, gamma: Array, epsilon: Array) -> Outputs:
    """Return y = x rstd (1 + gamma), with rstd = 1 / sqrt(mean(x^2) + epsilon)."""
    rstd = rstd_of(x, epsilon)
    xhat = x * rstd
    weight = 1.0 + gamma
    y = xhat * weight
    return {"y": y}


def _gemma_by_sum(x: Array, gamma: Array, epsilon: Array) -> Outputs:
    """Return x^ + x^ gamma."""
    xhat = x * rstd_of(x, epsilon)
    y = xhat + xhat * gamma
    return {"y": y}


def _gemma_by_factor(x: Array, gamma: Array, epsilon: Array) -> Outputs:
    factor = rstd_of(x, epsilon) * (1.0 + gamma)
    y = x * factor
    return {"y": y}


def rmsnorm_bias(x: Array, gamma: Array, beta: Array, epsilon: Array) -> Outputs:
    """Return y = x rstd gamma + beta, with rstd = 1 / sqrt(mean(x^2) + epsilon)."""
    rstd = rstd_of(x, epsilon)
    xhat = x * rstd
    weighted = xhat * gamma
    y = weighted + beta
    return {"y": y}


def _bias_by_factor(x: Array, gamma: Array, beta: Array, epsilon: Array) -> Outputs:
    factor = rstd_of(x, epsilon) * gamma
    y = x * factor + beta
    return {"y": y}


def _norm_of_x(x: Array, residual: Array, gamma: Array, epsilon: Array) -> Outputs:
    """The statistics are those of x, before the residual is added."""
    total = x + residual
    y = total * rstd_of(x, epsilon) * gamma
    return {"y": y, "total": total}


def _size_of(x: Array) -> Array:
    """Return |x| of each row, (..., 1)."""
    square = x * x
    total = np.sum(square, axis=-1, keepdims=True)
    norm = np.sqrt(total)
    return norm


def l2norm(x: Array, epsilon: Array) -> Outputs:
    """Return y = x / max(|x|, epsilon), with the norm |x| of each row."""
    y = x / np.maximum(_size_of(x), epsilon)
    return {"y": y}


def _l2norm_by_reciprocal(x: Array, epsilon: Array) -> Outputs:
    reciprocal = 1.0 / np.maximum(_size_of(x), epsilon)
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


def _l2norm_autograd(x: Array, dy: Array, epsilon: Array) -> Outputs:
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


def _l2norm_by_cube(x: Array, dy: Array, epsilon: Array) -> Outputs:
    """Return dy r - x r^3 sum_j(dy x), with r = 1 / |x|."""
    square = x * x
    total = np.sum(square, axis=-1, keepdims=True)
    reciprocal = 1.0 / np.maximum(np.sqrt(total), epsilon)
    dy_x = dy * x
    projection = np.sum(dy_x, axis=-1, keepdims=True)
    share = projection * (reciprocal * reciprocal * reciprocal)
    dx = dy * reciprocal - x * share
    return {"dx": dx}


def _shapes(*tensors: str) -> Callable[[Shape, Parameters], dict[str, Shape]]:
    """Return the function of the tensors' shapes: gamma and beta are a row."""
    return lambda shape, parameters: {
        name: shape[-1:] if name in ("gamma", "beta") else shape for name in tensors
    }


KERNELS = (
    Kernel(
        "add_layernorm",
        add_layernorm,
        ("y", "total"),
        shapes=_shapes("x", "residual", "gamma", "beta", "y", "total"),
        ways=tuple(partial(_add_layernorm, norm) for norm in other_norms()),
    ),
    Kernel(
        "add_rmsnorm",
        add_rmsnorm,
        ("y", "total"),
        shapes=_shapes("x", "residual", "gamma", "y", "total"),
        ways=(_add_rmsnorm_by_factor,),
        mistakes={"statistics-of-x": _norm_of_x},
    ),
    Kernel("gemma_rmsnorm", gemma_rmsnorm, ("y",), ways=(_gemma_by_factor, _gemma_by_sum)),
    Kernel("rmsnorm_bias", rmsnorm_bias, ("y",), ways=(_bias_by_factor,)),
    Kernel("l2norm", l2norm, ("y",), ways=(_l2norm_by_reciprocal,)),
    Kernel("l2norm_bw", l2norm_backward, ("dx",), ways=(_l2norm_autograd, _l2norm_by_cube)),
)
