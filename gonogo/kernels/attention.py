"""Attention, with masks and shared heads, forward and backward.

With scale = 1 / sqrt(D): y = softmax(scale q k^T) v over the keys. q: (B, H, S, D). k, v: (B, H /
share, T, D), where `share` heads of q take one of k and v (grouped-query attention). y: (B, H, S,
D).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from gonogo import fields
from gonogo.errors import FieldError
from gonogo.kernels.kernel import Array, Kernel, Outputs, Parameter, Parameters, Shape

Seen = Callable[[Array], Array]
"""A function of scores that changes those of keys that a query doesn't see."""
Way = Callable[[Array, Array, Array, Seen], Outputs]
BLOCK = 64
"""Keys that flash attention takes at once."""


def _transposed(x: Array) -> Array:
    return np.swapaxes(x, -1, -2)


def _for_heads(x: Array, share: int) -> Array:
    """Return keys or values for each head of q."""
    return x if share == 1 else np.repeat(x, share, axis=1)


def attention(q: Array, k: Array, v: Array, causal: bool, share: int) -> Outputs:
    """Return softmax(scale q k^T) v; causal: query i takes keys up to T - S + i alone."""
    k, v = _for_heads(k, share), _for_heads(v, share)
    product = q @ _transposed(k)
    scores = product * (1 / math.sqrt(q.shape[-1]))
    last = k.shape[-2] - q.shape[-2]
    mask = np.tril(np.ones(scores.shape[-2:], bool), last)
    seen = np.where(mask, scores, -np.inf) if causal else scores
    largest = np.max(seen, axis=-1, keepdims=True)
    e = np.exp(scores - largest)
    e = np.tril(e, last) if causal else e
    total = np.sum(e, axis=-1, keepdims=True)
    weights = e / total
    y = weights @ v
    return {"y": y}


def softmax(scores: Array) -> Array:
    """Return exp(scores - max) / sum over the keys."""
    largest = np.max(scores, axis=-1, keepdims=True)
    e = np.exp(scores - largest)
    total = np.sum(e, axis=-1, keepdims=True)
    weights = e / total
    return weights


def _usual(q: Array, k: Array, v: Array, seen: Seen) -> Outputs:
    product = q @ _transposed(k)
    scores = product * (1 / math.sqrt(q.shape[-1]))
    weights = softmax(seen(scores))
    y = weights @ v
    return {"y": y}


def _scaled_query(q: Array, k: Array, v: Array, seen: Seen) -> Outputs:
    """The scale is a factor of q."""
    scaled_q = q * (1 / math.sqrt(q.shape[-1]))
    scores = scaled_q @ _transposed(k)
    weights = softmax(seen(scores))
    y = weights @ v
    return {"y": y}


def _scaled_both(q: Array, k: Array, v: Array, seen: Seen) -> Outputs:
    """The root of the scale is a factor of q and of k, as in ATen's composite and in ONNX."""
    root = math.sqrt(1 / math.sqrt(q.shape[-1]))
    scaled_q, scaled_k = q * root, k * root
    scores = scaled_q @ _transposed(scaled_k)
    weights = softmax(seen(scores))
    y = weights @ v
    return {"y": y}


def _divided_last(q: Array, k: Array, v: Array, seen: Seen) -> Outputs:
    """The product with v is divided by the sum, and e is a power of two."""
    product = q @ _transposed(k)
    scores = seen(product * (1 / math.sqrt(q.shape[-1]))) * math.log2(math.e)
    largest = np.max(scores, axis=-1, keepdims=True)
    e = np.exp2(scores - largest)
    total = np.sum(e, axis=-1, keepdims=True)
    weighted = e @ v
    y = weighted / total
    return {"y": y}


def _online(q: Array, k: Array, v: Array, seen: Seen) -> Outputs:
    """Flash attention: blocks of keys, whose totals are scaled anew where the maximum rises."""
    product = q @ _transposed(k)
    scores = seen(product * (1 / math.sqrt(q.shape[-1])))
    largest = np.max(scores[..., :BLOCK], axis=-1, keepdims=True)
    e = np.exp(scores[..., :BLOCK] - largest)
    total = np.sum(e, axis=-1, keepdims=True)
    weighted = e @ v[..., :BLOCK, :]
    for start in range(BLOCK, scores.shape[-1], BLOCK):
        block = scores[..., start : start + BLOCK]
        risen = np.maximum(largest, np.max(block, axis=-1, keepdims=True))
        e = np.exp(block - risen)
        factor = np.exp(largest - risen)
        total = total * factor + np.sum(e, axis=-1, keepdims=True)
        weighted = weighted * factor + e @ v[..., start : start + BLOCK, :]
        largest = risen
    y = weighted / total
    return {"y": y}


def _causal(way: Way, q: Array, k: Array, v: Array, causal: bool, share: int) -> Outputs:
    """Return attention in a way, with scores of -inf where a query doesn't see a key."""
    visible = np.tril(np.ones((q.shape[-2], k.shape[-2]), bool), k.shape[-2] - q.shape[-2])

    def seen(scores: Array) -> Array:
        return np.where(visible, scores, -np.inf) if causal else scores

    return way(q, _for_heads(k, share), _for_heads(v, share), seen)


def _biased(way: Way, q: Array, k: Array, v: Array, bias: Array) -> Outputs:
    return way(q, k, v, lambda scores: scores + bias)


def attention_biased(q: Array, k: Array, v: Array, bias: Array) -> Outputs:
    """Return softmax(scale q k^T + bias) v. The bias (S, T) is an additive mask, or distances."""
    return _biased(_usual, q, k, v, bias)


def _scaled_bias(q: Array, k: Array, v: Array, bias: Array) -> Outputs:
    """The bias is scaled, too."""
    return _biased(_usual, q, k, v, bias * (1 / math.sqrt(q.shape[-1])))


def _masked(way: Way, q: Array, k: Array, v: Array, mask: Array) -> Outputs:
    return way(q, k, v, lambda scores: np.where(mask != 0, scores, -np.inf))


def attention_masked(q: Array, k: Array, v: Array, mask: Array) -> Outputs:
    """Return softmax(scale q k^T) v over the keys whose mask (S, T) isn't 0."""
    return _masked(_usual, q, k, v, mask)


def attention_backward(q: Array, k: Array, v: Array, dy: Array) -> Outputs:
    """Return the gradients of attention without a mask, whose weights are computed again.

    With weights P: dv = P^T dy, dP = dy v^T, dS = P (dP - sum(P dP)), dq = scale dS k and dk =
    scale dS^T q.
    """
    scale = 1 / math.sqrt(q.shape[-1])
    product = q @ _transposed(k)
    scores = product * scale
    weights = softmax(scores)
    dv = _transposed(weights) @ dy
    d_weights = dy @ _transposed(v)
    term = weights * d_weights
    delta = np.sum(term, axis=-1, keepdims=True)
    d_scores = weights * (d_weights - delta)
    scaled = d_scores * scale
    dq = scaled @ k
    dk = _transposed(scaled) @ q
    return {"dq": dq, "dk": dk, "dv": dv}


def _flash_backward(q: Array, k: Array, v: Array, dy: Array) -> Outputs:
    """Return the gradients from exp(scores - logsumexp) and sum(y dy), with the scale last."""
    scale = 1 / math.sqrt(q.shape[-1])
    product = q @ _transposed(k)
    scores = product * scale
    largest = np.max(scores, axis=-1, keepdims=True)
    e = np.exp(scores - largest)
    total = np.sum(e, axis=-1, keepdims=True)
    y = (e @ v) / total
    logsumexp = largest + np.log(total)
    weights = np.exp(scores - logsumexp)
    delta = np.sum(y * dy, axis=-1, keepdims=True)
    dv = _transposed(weights) @ dy
    d_weights = dy @ _transposed(v)
    d_scores = weights * (d_weights - delta)
    dq = (d_scores @ k) * scale
    dk = (_transposed(d_scores) @ q) * scale
    return {"dq": dq, "dk": dk, "dv": dv}


def _shapes(shape: Shape, parameters: Parameters) -> dict[str, Shape]:
    if len(shape) != 4:
        raise FieldError("shape", list(shape), "is no attention's", limit="[B, H, S, D]")
    batch, heads, queries, width = shape
    share, keys = parameters.get("share", 1), parameters["keys"] or queries
    if heads % share:
        raise FieldError("parameters.share", share, f"doesn't divide the {heads} heads of q")
    if parameters.get("causal") and keys < queries:
        reason = "are fewer than the queries: the first ones see none"
        raise FieldError("parameters.keys", keys, reason, limit=f">= {queries}")
    others = (batch, heads // share, keys, width)
    return {"q": shape, "k": others, "v": others, "y": shape}


def _masked_shapes(shape: Shape, parameters: Parameters, *, mask: str) -> dict[str, Shape]:
    q, k, v, y = _shapes(shape, parameters).values()
    return {"q": q, "k": k, "v": v, mask: (q[-2], k[-2]), "y": y}


def _backward_shapes(shape: Shape, parameters: Parameters) -> dict[str, Shape]:
    q, k, v, y = _shapes(shape, parameters).values()
    return {"q": q, "k": k, "v": v, "dy": y, "dq": q, "dk": k, "dv": v}


def _two(shape: Shape, parameters: Parameters) -> int:
    return 2


def _flag(value: object, path: str) -> bool:
    if not isinstance(value, bool):
        raise FieldError(path, value, "must be true or false")
    return value


KEYS = {"keys": Parameter(partial(fields.integer, least=0), 0, "keys T; 0: as many as queries")}
CAUSAL = {
    "causal": Parameter(_flag, False, "whether query i takes keys up to T - S + i alone"),
    "share": Parameter(partial(fields.integer, least=1), 1, "heads of q that share one of k and v"),
}
WAYS = (_divided_last, _scaled_query, _scaled_both, _online)
EXAMPLE = (2, 4, 128, 64)
KERNELS = (
    Kernel(
        "attention",
        attention,
        ("y",),
        _shapes,
        ways=tuple(partial(_causal, way) for way in WAYS),
        parameters=KEYS | CAUSAL,
        example=EXAMPLE,
    ),
    Kernel(
        "attention_biased",
        attention_biased,
        ("y",),
        partial(_masked_shapes, mask="bias"),
        ways=tuple(partial(_biased, way) for way in WAYS),
        parameters=KEYS,
        example=EXAMPLE,
        mistakes={"scaled-bias": _scaled_bias},
    ),
    Kernel(
        "attention_masked",
        attention_masked,
        ("y",),
        partial(_masked_shapes, mask="mask"),
        ways=tuple(partial(_masked, way) for way in WAYS),
        parameters=KEYS,
        whole={"mask": _two},
        example=EXAMPLE,
    ),
    Kernel(
        "attention_bw",
        attention_backward,
        ("dq", "dk", "dv"),
        _backward_shapes,
        ways=(_flash_backward,),
        parameters=KEYS,
        example=EXAMPLE,
    ),
)
