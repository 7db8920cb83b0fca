"""Matrix products: matmul, linear layers with and without an activation, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from gonogo import fields
from gonogo.errors import FieldError
from gonogo.graph import erf, erfc
from gonogo.kernels.kernel import Array, Kernel, Outputs, Parameter, Parameters, Shape

SQRT_HALF = math.sqrt(0.5)


def matmul(a: Array, b: Array) -> Outputs:
    """Return y = a b. a: (..., M, K). b: (K, N)."""
    y = a @ b
    return {"y": y}


def _split_k(a: Array, b: Array) -> Outputs:
    """Return the sum of the products of both halves of K, as split-K kernels compute it."""
    half = a.shape[-1] // 2
    first = a[..., :half] @ b[:half]
    second = a[..., half:] @ b[half:]
    y = first + second
    return {"y": y}


def matmul_backward(a: Array, b: Array, dy: Array) -> Outputs:
    """Return the gradients da = dy b^T and db = sum a^T dy over the batch."""
    da = dy @ b.T
    rows = a.reshape(-1, a.shape[-1])
    db = rows.T @ dy.reshape(-1, dy.shape[-1])
    return {"da": da, "db": db}


def _batched_backward(a: Array, b: Array, dy: Array) -> Outputs:
    """Return db as the sum of the products of each element of the batch, as autograd does."""
    da = dy @ b.T
    products = np.swapaxes(a, -1, -2) @ dy
    db = np.sum(products, axis=tuple(range(len(a.shape) - 2)))
    return {"da": da, "db": db}


def linear(x: Array, weight: Array, bias: Array) -> Outputs:
    """Return y = x weight^T + bias. x: (..., K). weight: (N, K). bias: (N,)."""
    product = x @ weight.T
    y = product + bias
    return {"y": y}


def linear_backward(x: Array, weight: Array, dy: Array) -> Outputs:
    """Return the gradients dx = dy weight, dweight = dy^T x and dbias = sum dy over the rows."""
    dx = dy @ weight
    rows = dy.reshape(-1, dy.shape[-1])
    dweight = rows.T @ x.reshape(-1, x.shape[-1])
    dbias = np.sum(rows, axis=0)
    return {"dx": dx, "dweight": dweight, "dbias": dbias}


def relu(z: Array) -> Array:
    """Return max(z, 0)."""
    return np.maximum(z, 0.0)


def gelu(z: Array) -> Array:
    """Return z Phi(z), with the normal distribution's Phi(z) = (1 + erf(z / sqrt(2))) / 2."""
    e = erf(z * SQRT_HALF)
    return 0.5 * z * (1.0 + e)


def _gelu_by_erfc(z: Array) -> Array:
    """Return z erfc(-z / sqrt(2)) / 2, as jax does: it doesn't cancel where z is very negative."""
    return 0.5 * z * erfc(-z * SQRT_HALF)


def gelu_tanh(z: Array) -> Array:
    """Return GELU's approximation by tanh."""
    inner = math.sqrt(2 / math.pi) * (z + 0.044715 * z * z * z)
    t = np.tanh(inner)
    return 0.5 * z * (1.0 + t)


def silu(z: Array) -> Array:
    """Return z / (1 + exp(-z))."""
    return z / (1.0 + np.exp(-z))


def _silu_by_sigmoid(z: Array) -> Array:
    sigmoid = 1.0 / (1.0 + np.exp(-z))
    return z * sigmoid


USUAL = {"relu": relu, "gelu": gelu, "gelu_tanh": gelu_tanh, "silu": silu}
OTHER = {**USUAL, "gelu": _gelu_by_erfc, "silu": _silu_by_sigmoid}


def _activated(
    forms: Mapping[str, Callable[[Array], Array]],
    x: Array,
    weight: Array,
    bias: Array,
    activation: str,
) -> Outputs:
    product = x @ weight.T
    z = product + bias
    y = forms[activation](z)
    return {"y": y}


def linear_activation(x: Array, weight: Array, bias: Array, activation: str) -> Outputs:
    """Return y = activation(x weight^T + bias)."""
    return _activated(USUAL, x, weight, bias, activation)


def _activated_before_bias(x: Array, weight: Array, bias: Array, activation: str) -> Outputs:
    """The bias is added behind the activation."""
    product = x @ weight.T
    y = USUAL[activation](product) + bias
    return {"y": y}


def _product_shapes(shape: Shape, parameters: Parameters) -> dict[str, Shape]:
    if len(shape) < 2:
        raise FieldError("shape", list(shape), "is no matrix's", limit="[..., M, K]")
    width = parameters["columns"] or shape[-1]
    return {"a": shape, "b": (shape[-1], width), "y": (*shape[:-1], width)}


def _product_gradient_shapes(shape: Shape, parameters: Parameters) -> dict[str, Shape]:
    a, b, y = _product_shapes(shape, parameters).values()
    return {"a": a, "b": b, "dy": y, "da": a, "db": b}


def _linear_shapes(shape: Shape, parameters: Parameters) -> dict[str, Shape]:
    width = parameters["features"] or shape[-1]
    weight, y = (width, shape[-1]), (*shape[:-1], width)
    return {"x": shape, "weight": weight, "bias": (width,), "y": y}


def _linear_gradient_shapes(shape: Shape, parameters: Parameters) -> dict[str, Shape]:
    x, weight, bias, y = _linear_shapes(shape, parameters).values()
    return {"x": x, "weight": weight, "dy": y, "dx": x, "dweight": weight, "dbias": bias}


_size = partial(fields.integer, least=0)
COLUMNS = {"columns": Parameter(_size, 0, "columns of b; 0: as many as a has")}
FEATURES = {"features": Parameter(_size, 0, "features of the output; 0: as many as of x")}
ACTIVATION = {
    "activation": Parameter(
        lambda value, path: fields.choice(value, USUAL, path),
        "gelu",
        "relu, gelu, gelu_tanh or silu",
    )
}
REGIMES = {"weight": {"regime": "normal", "mean": 0.0, "std": 0.1}}
"""Weights of a layer are small, so that its outputs are about as large as its inputs."""
KERNELS = (
    Kernel(
        "matmul",
        matmul,
        ("y",),
        _product_shapes,
        ways=(_split_k,),
        parameters=COLUMNS,
        example=(64, 128),
    ),
    Kernel(
        "matmul_bw",
        matmul_backward,
        ("da", "db"),
        _product_gradient_shapes,
        ways=(_batched_backward,),
        parameters=COLUMNS,
        example=(64, 128),
    ),
    Kernel(
        "linear",
        linear,
        ("y",),
        _linear_shapes,
        parameters=FEATURES,
        regimes=REGIMES,
        example=(64, 128),
    ),
    Kernel(
        "linear_bw",
        linear_backward,
        ("dx", "dweight", "dbias"),
        _linear_gradient_shapes,
        parameters=FEATURES,
        regimes=REGIMES,
        example=(64, 128),
    ),
    Kernel(
        "linear_activation",
        linear_activation,
        ("y",),
        _linear_shapes,
        ways=(partial(_activated, OTHER),),
        parameters=FEATURES | ACTIVATION,
        regimes=REGIMES,
        example=(64, 128),
        mistakes={"bias-behind-activation": _activated_before_bias},
    ),
)
