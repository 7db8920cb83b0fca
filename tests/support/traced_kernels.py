"""Small kernels in plain NumPy, with inputs: what the tests of graphs trace and evaluate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from gonogo.graph import OPERATIONS, Graph, erf

Array = NDArray[Any]
_random = np.random.default_rng(39)


def normal(*shape: int) -> Array:
    return _random.normal(size=shape)


def layernorm(x, gamma, beta, epsilon=1e-5):
    mean = np.mean(x, axis=-1, keepdims=True)
    centered = x - mean
    variance = np.mean(centered * centered, axis=-1, keepdims=True)
    rstd = 1 / np.sqrt(variance + epsilon)
    xhat = centered * rstd
    y = xhat * gamma + beta
    return {"y": y, "mean": mean, "rstd": rstd}


def layernorm_backward(x, gamma, mean, rstd, dy):
    xhat = (x - mean) * rstd
    P = dy * gamma
    s1 = np.mean(P, axis=-1, keepdims=True)
    s2 = np.mean(P * xhat, axis=-1, keepdims=True)
    dx = rstd * (P - s1 - xhat * s2)
    return {"dx": dx, "dgamma": np.sum(dy * xhat, axis=0), "dbeta": dy.sum(0, keepdims=True)}


def rmsnorm(x, gamma, epsilon=1e-6):
    rstd = (np.square(x).mean(-1)[..., None] + epsilon) ** -0.5
    return {"y": x * rstd * (1 + gamma), "rstd": np.squeeze(rstd, -1)}


def group_norm(x, gamma, beta, groups=2, epsilon=1e-5):
    n, c, h, w = x.shape
    grouped = x.reshape(n, groups, c // groups * h * w)
    centered = grouped - grouped.mean(axis=-1, keepdims=True)
    variance = np.var(grouped, axis=2, keepdims=True)
    xhat = (centered / np.sqrt(variance + epsilon)).reshape(n, c, h, w)
    return {"y": xhat * gamma[:, None, None] + np.expand_dims(beta, (1, 2))}


def batch_norm(x, gamma, beta, epsilon=1e-5):
    mean, deviation = x.mean(axis=(0, 2), keepdims=True), np.std(x, axis=(0, 2), keepdims=True)
    y = (x - mean) / np.sqrt(deviation**2 + epsilon) * gamma[None, :, None] + beta[:, None]
    return {"y": y, "mean": mean.ravel()}


def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return {"y": e / e.sum(axis=-1, keepdims=True)}


def attention(q, k, v, mask, scale=0.25):
    scores = np.einsum("bhqd,bhkd->bhqk", q, k) * scale
    causal = np.tril(np.ones((q.shape[2], k.shape[2]), bool))
    scores = np.where(mask[:, None, None, :] & causal, scores, -np.inf)
    p = softmax(scores)["y"]
    y = np.moveaxis(p @ v, 1, 2).reshape(q.shape[0], q.shape[2], -1)
    return {"y": y}


def cross_entropy(logits, labels):
    n = logits.shape[0]
    top = logits.max(axis=1, keepdims=True)
    log_sum = np.log(np.exp(logits - top).sum(axis=1, keepdims=True)) + top
    losses = -(logits - log_sum)[np.arange(n), labels]
    one_hot = labels[:, None] == np.arange(logits.shape[1])
    gradient = (np.exp(logits - log_sum) - one_hot) / n
    return {"loss": losses.mean(), "losses": losses, "gradient": gradient}


def top_k(x, k=3):
    order = np.argsort(-x, axis=-1)[:, :k]
    return {
        "values": np.sort(x, axis=-1)[:, ::-1][:, :k],
        "same": np.take_along_axis(x, order, axis=-1),
        "best": np.argmax(x, axis=1),
    }


def rotary(x, cos, sin):
    first, second = np.split(x, 2, axis=-1)
    turned = np.concatenate([-second, first], axis=-1)
    even, odd = x[..., ::2], x[..., 1::2]
    pairs = np.stack([even * cos[:, ::2] - odd * sin[:, ::2], odd], axis=-1).reshape(x.shape)
    return {"y": x * cos + turned * sin, "pairs": pairs}


def convolution(x, weights, bias):
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = sliding_window_view(padded, weights.shape[2:], axis=(2, 3))
    y = np.einsum("nchwij,ocij->nohw", windows, weights) + bias[:, None, None]
    pooled = y[:, :, : y.shape[2] // 2 * 2].reshape(*y.shape[:2], -1, 2, y.shape[3]).max(axis=3)
    return {"y": y, "pooled": np.maximum(pooled, 0)}


def embedding(table, tokens, positions):
    return {"y": table[tokens] + np.take(positions, np.arange(tokens.shape[1]), axis=0)}


def gelu(x, w, b):
    h = np.matmul(x, w.T) + b
    cubic = np.tanh(np.sqrt(2 / np.pi) * (h + 0.044715 * h**3))
    return {"y": 0.5 * h * (1 + erf(h / np.sqrt(2))), "approximate": 0.5 * h * (1 + cubic)}


def adam(p, g, m, v, beta1=0.9, beta2=0.999, rate=1e-3, epsilon=1e-8, step=3):
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g * g
    p = p - rate * (m / (1 - beta1**step)) / (np.sqrt(v / (1 - beta2**step)) + epsilon)
    return {"p": p, "m": m, "v": v}


def quantized(x, scale=0.1):
    codes = np.clip(np.rint(x / scale), -127, 127).astype(np.int32)
    return {"codes": codes, "y": codes.astype(np.float64) * scale, "total": np.cumsum(codes, 0)}


def gram(x):
    return {"product": x @ x.T, "columns": x.T @ x, "sum": np.einsum("ij,ij", x, x)}


KERNELS: list[tuple[Callable[..., Any], dict[str, Array]]] = [
    (layernorm, {"x": normal(4, 6), "gamma": normal(6), "beta": normal(1, 6)}),
    (
        layernorm_backward,
        {"x": normal(4, 6), "gamma": normal(6), "mean": normal(4, 1), "rstd": normal(4, 1)}
        | {"dy": normal(4, 6)},
    ),
    (rmsnorm, {"x": normal(2, 4, 6), "gamma": normal(6)}),
    (group_norm, {"x": normal(4, 6, 3, 2), "gamma": normal(6), "beta": normal(6)}),
    (batch_norm, {"x": normal(4, 6, 5), "gamma": normal(6), "beta": normal(6)}),
    (softmax, {"x": normal(2, 3, 8)}),
    (
        attention,
        {name: normal(2, 4, 6, 8) for name in "qkv"}
        | {"mask": np.arange(12).reshape(2, 6) % 5 < 3},
    ),
    (cross_entropy, {"logits": normal(6, 5), "labels": np.array([0, 4, 2, 2, 1, 3])}),
    (top_k, {"x": normal(4, 7)}),
    (rotary, {"x": normal(2, 6, 8), "cos": normal(6, 8), "sin": normal(6, 8)}),
    (convolution, {"x": normal(2, 3, 5, 6), "weights": normal(4, 3, 3, 3), "bias": normal(4)}),
    (
        embedding,
        {"table": normal(9, 4), "tokens": np.arange(6).reshape(2, 3), "positions": normal(3, 4)},
    ),
    (gelu, {"x": normal(4, 6), "w": normal(8, 6), "b": normal(8)}),
    (adam, {name: np.abs(normal(4, 6)) for name in "pgmv"}),
    (quantized, {"x": normal(4, 6)}),
    (gram, {"x": normal(4, 6)}),
]
"""Each kernel with its inputs."""


def evaluate(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return the outputs of a graph, evaluated node by node; each has the shape it promises."""
    values: dict[int, Array] = {}
    for node in graph.needed():
        args = [values[arg.id] for arg in node.args]
        if node.operation == "input":
            value = inputs[node.key]
        else:
            value = np.asarray(OPERATIONS[node.operation].value(*args, **node.attributes))
        assert value.shape == node.shape, node
        assert value.dtype.kind == node.kind[0], node
        values[node.id] = value
    return {name: values[node.id] for name, node in graph.outputs.items()}
