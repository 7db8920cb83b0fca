"""Activations: sigmoid, tanh, SiLU with its gradient, SwiGLU, and the ReLU family."""

from __future__ import annotations

import numpy as np

from gonogo import fields
from gonogo.kernels.elementwise import alike
from gonogo.kernels.kernel import Array, Kernel, Outputs, Parameter

WIDE = {"regime": "normal", "std": 2.0}
"""Activations bend within a few units of 0."""

# sigmoid and tanh


def sigmoid(x: Array) -> Outputs:
    """Return y = 1 / (1 + exp(-x))."""
    e = np.exp(-x)
    denominator = 1.0 + e
    y = 1.0 / denominator
    return {"y": y}


def _sigmoid_by_tanh(x: Array) -> Outputs:
    """Return 1/2 + tanh(x / 2) / 2, whose error is absolute: far below 0 nothing is left of y."""
    half = 0.5 * np.tanh(0.5 * x)
    y = 0.5 + half
    return {"y": y}


def _sigmoid_of_positive(x: Array) -> Outputs:
    """Return e / (1 + e) with e = exp(x), which overflows nowhere below 0."""
    e = np.exp(x)
    y = e / (1.0 + e)
    return {"y": y}


def tanh(x: Array) -> Outputs:
    """Return the hyperbolic tangent, y."""
    y = np.tanh(x)
    return {"y": y}


def _tanh_by_sigmoid(x: Array) -> Outputs:
    """Return 2 sigmoid(2 x) - 1, as Triton kernels do, which cancels near 0."""
    e = np.exp(-2.0 * x)
    twice = 2.0 / (1.0 + e)
    y = twice - 1.0
    return {"y": y}


def _tanh_by_quotient(x: Array) -> Outputs:
    """Return (exp(2 x) - 1) / (exp(2 x) + 1), which cancels near 0."""
    e = np.exp(2.0 * x)
    y = (e - 1.0) / (e + 1.0)
    return {"y": y}


# SiLU


def _sigmoid_of(x: Array) -> Array:
    e = np.exp(-x)
    sigmoid = 1.0 / (1.0 + e)
    return sigmoid


def silu(x: Array) -> Outputs:
    """Return y = x sigmoid(x)."""
    sigmoid = _sigmoid_of(x)
    y = x * sigmoid
    return {"y": y}


def _silu_by_quotient(x: Array) -> Outputs:
    e = np.exp(-x)
    y = x / (1.0 + e)
    return {"y": y}


def _silu_by_tanh(x: Array) -> Outputs:
    """Return x (1/2 + tanh(x / 2) / 2); onnxruntime's sigmoid has as large an absolute error."""
    sigmoid = _sigmoid_by_tanh(x)["y"]
    y = x * sigmoid
    return {"y": y}


def silu_backward(x: Array, dy: Array) -> Outputs:
    """Return dx = dy s (1 + x (1 - s)), with s = sigmoid(x)."""
    sigmoid = _sigmoid_of(x)
    rest = 1.0 - sigmoid
    bend = 1.0 + x * rest
    slope = sigmoid * bend
    dx = dy * slope
    return {"dx": dx}


def _silu_backward_by_parts(x: Array, dy: Array) -> Outputs:
    """Return dy s + dy x (1 - s) s in torch's order, which rounds each operation in fp16."""
    sigmoid = _sigmoid_of(x)
    rest = 1.0 - sigmoid
    d_sigmoid = dy * x
    part = d_sigmoid * rest
    through_sigmoid = part * sigmoid
    direct = dy * sigmoid
    dx = direct + through_sigmoid
    return {"dx": dx}


def _silu_backward_by_slope(x: Array, dy: Array) -> Outputs:
    """Return dy s + dy x (s (1 - s)), as jax derives it."""
    sigmoid = _sigmoid_of(x)
    slope = sigmoid * (1.0 - sigmoid)
    d_sigmoid = dy * x
    through_sigmoid = d_sigmoid * slope
    direct = dy * sigmoid
    dx = direct + through_sigmoid
    return {"dx": dx}


def swiglu(gate: Array, up: Array) -> Outputs:
    """Return y = gate sigmoid(gate) up."""
    silu = gate * _sigmoid_of(gate)
    y = silu * up
    return {"y": y}


def _swiglu_by_quotient(gate: Array, up: Array) -> Outputs:
    e = np.exp(-gate)
    silu = gate / (1.0 + e)
    y = silu * up
    return {"y": y}


def _swiglu_by_tanh(gate: Array, up: Array) -> Outputs:
    silu = _silu_by_tanh(gate)["y"]
    y = silu * up
    return {"y": y}


def _swiglu_swapped(gate: Array, up: Array) -> Outputs:
    """Gate and up are exchanged."""
    return swiglu(up, gate)


# the ReLU family


def relu(x: Array) -> Outputs:
    """Return y = max(x, 0)."""
    y = np.maximum(x, 0.0)
    return {"y": y}


def leaky_relu(x: Array, negative_slope: float) -> Outputs:
    """Return x, below 0 times the slope."""
    leak = x * negative_slope
    is_positive = x > 0
    y = np.where(is_positive, x, leak)
    return {"y": y}


def relu6(x: Array) -> Outputs:
    """Return y = min(max(x, 0), 6)."""
    positive = np.maximum(x, 0.0)
    y = np.minimum(positive, 6.0)
    return {"y": y}


def hardswish(x: Array) -> Outputs:
    """Return y = x min(max(x + 3, 0), 6) / 6."""
    positive = np.maximum(x + 3.0, 0.0)
    gate = np.minimum(positive, 6.0)
    product = x * gate
    y = product / 6.0
    return {"y": y}


def _hardswish_by_quotient(x: Array) -> Outputs:
    """Return x (min(max(x + 3, 0), 6) / 6), as jax does."""
    positive = np.maximum(x + 3.0, 0.0)
    gate = np.minimum(positive, 6.0) / 6.0
    y = x * gate
    return {"y": y}


def _hardswish_by_gate(x: Array) -> Outputs:
    """Return x hardsigmoid(x), as ONNX defines it: min(max(x / 6 + 1/2, 0), 1)."""
    gate = np.minimum(np.maximum(x * (1 / 6) + 0.5, 0.0), 1.0)
    y = x * gate
    return {"y": y}


def _negative_slope(value: object, path: str) -> float:
    return fields.number(value, path, least=0.0, most=1.0)


X = {"x": WIDE}
KERNELS = (
    Kernel("sigmoid", sigmoid, ("y",), ways=(_sigmoid_of_positive, _sigmoid_by_tanh), regimes=X),
    Kernel("tanh", tanh, ("y",), ways=(_tanh_by_quotient, _tanh_by_sigmoid), regimes=X),
    Kernel("silu", silu, ("y",), ways=(_silu_by_quotient, _silu_by_tanh), regimes=X),
    Kernel(
        "silu_bw",
        silu_backward,
        ("dx",),
        ways=(_silu_backward_by_parts, _silu_backward_by_slope),
        regimes=X,
    ),
    Kernel(
        "swiglu",
        swiglu,
        ("y",),
        ways=(_swiglu_by_quotient, _swiglu_by_tanh),
        shapes=alike("gate", "up", "y"),
        regimes={"gate": WIDE},
        mistakes={"swapped": _swiglu_swapped},
    ),
    Kernel("relu", relu, ("y",)),
    Kernel(
        "leaky_relu",
        leaky_relu,
        ("y",),
        parameters={
            "negative_slope": Parameter(_negative_slope, 0.01, "the slope below 0"),
        },
    ),
    Kernel("relu6", relu6, ("y",), regimes={"x": {"regime": "normal", "std": 4.0}}),
    Kernel(
        "hardswish",
        hardswish,
        ("y",),
        ways=(_hardswish_by_quotient, _hardswish_by_gate),
        regimes={"x": {"regime": "normal", "std": 4.0}},
    ),
)
