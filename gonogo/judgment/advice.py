"""Advice on a tolerance: which one the arithmetic of a kernel can meet."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gonogo.arithmetic.formats import Doubles, unit_roundoff
from gonogo.graph.special import log_ndtr
from gonogo.judgment.cells import Cells
from gonogo.judgment.fits import Candidate, Output
from gonogo.judgment.tolerance import Tolerance

HEADROOM = 1.25
"""The factor by which other seeds' outputs may exceed the largest of this one."""
NOISE = 5.0
"""Deviations that the noise of no element is expected to exceed: it does once in two million."""
NEAR_ZERO = 1 / 8
"""The part of the median size below which a value is near 0."""
NEARLY_ALL, HARDLY_ANY = 0.99, 0.001


@dataclass(frozen=True)
class Advice:
    """The tightest tolerance that a kernel's arithmetic can meet, and what today's does.

    Attributes:
        arithmetic: that of which this is said, in words.
        atol: the absolute tolerance that is enough, with rtol 0.
        rtol: the relative tolerance that is enough with the absolute one `floor`.
        floor: the absolute tolerance that goes with rtol, for values near 0.
        magnitude: the power of two up to which outputs are assumed to reach.
        red_rate: the probability that a seed of the right kernel is red under today's tolerance.
    """

    arithmetic: str
    atol: float
    rtol: float
    floor: float
    magnitude: float
    red_rate: float

    @property
    def message(self) -> str:
        """The advice in words."""
        share = f"{100 * self.red_rate:.2g} %"
        if self.red_rate > NEARLY_ALL:
            share = "nearly all"
        elif self.red_rate < HARDLY_ANY:
            share = "hardly any"
        return (
            f"Today's tolerance turns {share} of a right kernel's seeds red, with"
            f" {self.arithmetic}. With outputs up to {self.magnitude:g} take atol {self.atol:.3g},"
            f" or rtol {self.rtol:.3g} with atol {self.floor:.3g}."
        )


def advised(output: Output, candidate: Candidate, today: Tolerance) -> Advice:
    """Return advice for an output that an arithmetic explains.

    A right kernel's last rounding is off by up to half a step. To that come the shift by what the
    arithmetic stores, slack, and noise.

    Args:
        output: the output.
        candidate: the arithmetic.
        today: the test's tolerance.
    """
    cells, exact = output.cells(candidate), output.expected
    size, half, unit = np.abs(exact), cells.half, unit_roundoff(cells.form)
    largest = HEADROOM * float(np.abs(cells.values).max(initial=0.0))
    magnitude = 2.0 ** math.ceil(math.log2(largest)) if 0 < largest < math.inf else 1.0
    shift = np.abs(cells.replay.values - exact) + cells.replay.slack
    deviation = np.sqrt(cells.replay.variance)
    moved = HEADROOM * shift + NOISE * deviation
    worst = half + moved
    floor = float(worst[size < NEAR_ZERO * np.median(size)].max(initial=0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = np.where(size > 0, np.maximum(worst - floor, 0.0) / size, 0.0)
    return Advice(
        arithmetic=candidate.program.label,
        atol=magnitude / 2 * unit + float(moved.max(initial=0.0)),
        rtol=max(float(relative.max(initial=0.0)), unit),
        floor=floor,
        magnitude=magnitude,
        red_rate=red_rate(cells, shift, today.allowed(exact)),
    )


def red_rate(cells: Cells, shift: Doubles, allowed: Doubles) -> float:
    """Return the probability that a value of a right kernel errs by more than is allowed.

    With half a step h, the error of a value is uniform between shift - h and shift + h where noise
    is less than h, so outside of t with probability (max(h + shift - t, 0) + max(h - shift - t, 0))
    / 2h. Else it is normal.

    Args:
        cells: the output beside a replay of the arithmetic that explains it.
        shift: how far the replay may be from the reference, of each value.
        allowed: the largest error of each value that a test allows.
    """
    half, deviation = cells.half, np.sqrt(cells.replay.variance)
    with np.errstate(divide="ignore", invalid="ignore"):
        beyond = np.maximum(half + shift - allowed, 0) + np.maximum(half - shift - allowed, 0)
        spread = np.sqrt(np.square(half) / 3 + np.square(deviation))
        tails = np.exp(log_ndtr((shift - allowed) / spread)) + np.exp(
            log_ndtr((-shift - allowed) / spread)
        )
        outside = np.clip(np.where(deviation < half, beyond / (2 * half), tails), 0.0, 1.0)
        return abs(math.expm1(float(np.log1p(-outside).sum())))
