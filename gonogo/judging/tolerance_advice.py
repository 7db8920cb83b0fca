"""Advice on a tolerance, from the arithmetic that a kernel was found to have."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gonogo.numerics.expectation import Array
from gonogo.numerics.formats import FORMATS, half_ulp
from gonogo.numerics.replay.quantity import Quantity

MARGIN = 8.0
"""Standard deviations of the noise that isn't stored for which the advice leaves room."""
HEADROOM = 1.25
"""Other seeds' outputs may exceed the largest of this one by that factor."""


@dataclass(frozen=True)
class ToleranceAdvice:
    """The tightest tolerance that a kernel's arithmetic can meet, and what today's does.

    Attributes:
        atol: the absolute tolerance that is enough, with rtol 0.
        rtol: the relative tolerance that is enough with the absolute one `floor`.
        floor: the absolute tolerance that goes with rtol, for values near 0.
        magnitude: the power of two up to which outputs are assumed to reach.
        red_rate: the probability that a seed of the right kernel is red under today's tolerance.
    """

    atol: float
    rtol: float
    floor: float
    magnitude: float
    red_rate: float

    @property
    def sentence(self) -> str:
        """Return the advice in words."""
        share = "nearly all" if self.red_rate > 0.99 else f"{100 * self.red_rate:.2g} %"
        return (
            f"today's tolerance turns {share} of a right kernel's seeds red: with outputs up to"
            f" {self.magnitude:g} take atol {self.atol:.3g}, or rtol {self.rtol:.3g} with atol"
            f" {self.floor:.3g}"
        )


def advise(
    output: NDArray[np.floating],
    reference: Array,
    replay: Quantity,
    form: str,
    allclose: tuple[float, float],
    count: int,
) -> ToleranceAdvice:
    """Return advice for an output that a program explains.

    Args:
        output: the kernel's values (rows, N), or some rows of them.
        reference: the float64 values that the tolerance compares with, in that shape.
        replay: the program's values before the last rounding, in that shape.
        form: the output's format.
        allclose: today's (rtol, atol).
        count: the number of elements of the whole output.

    A right kernel's last rounding is off by up to half a step h. To that come the shift d by its
    stored quantities and quantized inputs, and the noise. Under uniform rounding an error between
    d - h and d + h is outside a tolerance t with probability
    (max(h + d - t, 0) + max(h - d - t, 0)) / 2h.
    """
    y = np.asarray(output, np.float64)
    size = np.abs(reference)
    unit = FORMATS[form].unit_roundoff
    largest = HEADROOM * float(np.abs(y).max(initial=0.0))
    magnitude = 2.0 ** math.ceil(math.log2(largest)) if largest > 0 else 1.0
    half = half_ulp(y, form)
    moved = np.abs(replay.values - reference) + MARGIN * np.sqrt(replay.variance)
    worst = half + np.broadcast_to(moved, y.shape)
    near_zero = size < np.median(size) / 8
    floor = float(worst[near_zero].max(initial=0.0))
    relative = np.divide(
        np.maximum(worst - floor, 0.0), size, out=np.zeros_like(size), where=size > 0
    )
    allowed = allclose[1] + allclose[0] * size
    shift = np.abs(replay.values - reference)
    beyond = np.maximum(half + shift - allowed, 0.0) + np.maximum(half - shift - allowed, 0.0)
    outside = np.clip(beyond / (2 * half), 0.0, 1.0 - 1e-12)
    logarithm = float(np.log1p(-outside).mean()) * count
    return ToleranceAdvice(
        atol=magnitude / 2 * unit + float(np.max(moved, initial=0.0)),
        rtol=max(float(relative.max(initial=0.0)), unit),
        floor=floor,
        magnitude=magnitude,
        red_rate=-math.expm1(logarithm),
    )
