"""GELU by erf and by tanh, their gradients, and GeGLU.

`cdf` and `pdf` are those of the normal distribution.
"""

from __future__ import annotations

import math

import numpy as np

from gonogo.graph import erf, erfc
from gonogo.kernels.elementwise import alike
from gonogo.kernels.kernel import Array, Kernel, Outputs

CUBIC = 0.044715
"""The coefficient of x^3 in GELU's approximation by tanh (Hendrycks and Gimpel, 2016)."""
SCALE = math.sqrt(2 / math.pi)
ROOT_HALF = math.sqrt(0.5)
WIDE = {"regime": "normal", "std": 2.0}
"""GELU bends within a few units of 0."""


def gelu(x: Array) -> Outputs:
    """Return y = x cdf(x) = x (1 + erf(x / sqrt 2)) / 2."""
    error = erf(x * ROOT_HALF)
    twice_cdf = 1.0 + error
    half = 0.5 * x
    y = half * twice_cdf
    return {"y": y}


def _gelu_by_erfc(x: Array) -> Outputs:
    """Return x erfc(-x / sqrt 2) / 2, as jax does: nothing cancels below 0."""
    twice_cdf = erfc(-x * ROOT_HALF)
    half = 0.5 * x
    y = half * twice_cdf
    return {"y": y}


def gelu_tanh(x: Array) -> Outputs:
    """Return y = x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2."""
    cube = x * x * x
    inner = SCALE * (x + CUBIC * cube)
    t = np.tanh(inner)
    twice_cdf = 1.0 + t
    half = 0.5 * x
    y = half * twice_cdf
    return {"y": y}


def _gelu_by_sigmoid(x: Array) -> Outputs:
    """Return x sigmoid(2 inner), which equals 1 + tanh(inner) and doesn't cancel."""
    inner = x * (SCALE + SCALE * CUBIC * (x * x))
    y = x / (1.0 + np.exp(-2.0 * inner))
    return {"y": y}


def gelu_backward(x: Array, dy: Array) -> Outputs:
    """Return dx = dy (cdf(x) + x pdf(x))."""
    cdf = 0.5 * (1.0 + erf(x * ROOT_HALF))
    bell = np.exp(-0.5 * (x * x))
    pdf = bell * (0.5 * SCALE)
    slope = cdf + x * pdf
    dx = dy * slope
    return {"dx": dx}


def _gelu_backward_by_erfc(x: Array, dy: Array) -> Outputs:
    """Return dy cdf + dy x pdf with the cdf by erfc, as jax derives it."""
    cdf = 0.5 * erfc(-x * ROOT_HALF)
    argument = x * ROOT_HALF
    bell = np.exp(-(argument * argument))
    pdf = bell * (0.5 * SCALE)
    through_cdf = dy * x * pdf
    dx = dy * cdf + through_cdf
    return {"dx": dx}


def gelu_tanh_backward(x: Array, dy: Array) -> Outputs:
    """Return dx = dy (cdf + x cdf'), with the cdf by tanh(inner)."""
    square = x * x
    inner = SCALE * (x + CUBIC * (square * x))
    t = np.tanh(inner)
    cdf = 0.5 * (1.0 + t)
    d_inner = SCALE * (1.0 + 3 * CUBIC * square)
    d_tanh = 1.0 - t * t
    d_cdf = 0.5 * d_tanh * d_inner
    slope = cdf + x * d_cdf
    dx = dy * slope
    return {"dx": dx}


def _gelu_tanh_backward_by_sigmoid(x: Array, dy: Array) -> Outputs:
    """Return dx with the cdf as sigmoid(2 inner), whose derivative is cdf (1 - cdf)."""
    square = x * x
    inner = SCALE * (x + CUBIC * (square * x))
    cdf = 1.0 / (1.0 + np.exp(-2.0 * inner))
    d_inner = 2 * SCALE * (1.0 + 3 * CUBIC * square)
    slope = cdf + x * (cdf * (1.0 - cdf) * d_inner)
    dx = dy * slope
    return {"dx": dx}


def _gelu_tanh_backward_by_parts(x: Array, dy: Array) -> Outputs:
    """Return dy cdf + dy x cdf' in the order of jax, for which 1 - t^2 is (1 - t) (1 + t)."""
    square = x * x
    cube = square * x
    inner = SCALE * (x + CUBIC * cube)
    t = np.tanh(inner)
    cdf = 0.5 * (1.0 + t)
    through_cdf = dy * cdf
    d_t = 0.5 * (x * dy)
    part = d_t * (1.0 - t)
    d_inner = SCALE * (part + part * t)
    d_cube = CUBIC * d_inner
    dx = through_cdf + d_inner + d_cube * (3.0 * square)
    return {"dx": dx}


def geglu(gate: Array, up: Array) -> Outputs:
    """Return y = gate cdf(gate) up."""
    error = erf(gate * ROOT_HALF)
    twice_cdf = 1.0 + error
    half = 0.5 * gate
    gelu = half * twice_cdf
    y = gelu * up
    return {"y": y}


def _geglu_by_erfc(gate: Array, up: Array) -> Outputs:
    gelu = _gelu_by_erfc(gate)["y"]
    y = gelu * up
    return {"y": y}


# mistakes


def _tanh(x: Array) -> Outputs:
    """GELU is approximated by tanh."""
    return gelu_tanh(x)


def _tanh_backward(x: Array, dy: Array) -> Outputs:
    """The gradient is that of the approximation by tanh."""
    return gelu_tanh_backward(x, dy)


def _erf(x: Array) -> Outputs:
    """GELU is that by erf, not the approximation."""
    return gelu(x)


def _erf_backward(x: Array, dy: Array) -> Outputs:
    """The gradient is that of GELU by erf, not of the approximation."""
    return gelu_backward(x, dy)


def _quick_gelu(x: Array) -> Outputs:
    """GELU is x sigmoid(1.702 x), a coarse approximation."""
    y = x / (1.0 + np.exp(-1.702 * x))
    return {"y": y}


def _geglu_by_tanh(gate: Array, up: Array) -> Outputs:
    """GELU is approximated by tanh."""
    gelu = gelu_tanh(gate)["y"]
    y = gelu * up
    return {"y": y}


KERNELS = (
    Kernel(
        "gelu",
        gelu,
        ("y",),
        ways=(_gelu_by_erfc,),
        regimes={"x": WIDE},
        mistakes={"tanh": _tanh, "quick": _quick_gelu},
    ),
    Kernel(
        "gelu_tanh",
        gelu_tanh,
        ("y",),
        ways=(_gelu_by_sigmoid,),
        regimes={"x": WIDE},
        mistakes={"erf": _erf, "quick": _quick_gelu},
    ),
    Kernel(
        "gelu_bw",
        gelu_backward,
        ("dx",),
        ways=(_gelu_backward_by_erfc,),
        regimes={"x": WIDE},
        mistakes={"tanh": _tanh_backward},
    ),
    Kernel(
        "gelu_tanh_bw",
        gelu_tanh_backward,
        ("dx",),
        ways=(_gelu_tanh_backward_by_parts, _gelu_tanh_backward_by_sigmoid),
        regimes={"x": WIDE},
        mistakes={"erf": _erf_backward},
    ),
    Kernel(
        "geglu",
        geglu,
        ("y",),
        ways=(_geglu_by_erfc,),
        shapes=alike("gate", "up", "y"),
        regimes={"gate": WIDE},
        mistakes={"tanh": _geglu_by_tanh},
    ),
)
