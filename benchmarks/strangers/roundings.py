"""Rounding as kernels of other machines do it, sharing nothing with gonogo's formats."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

DROPPED = {"bf16": 16, "tf32": 13}
"""Low bits of a float32 that a format lacks."""
MODES = ("even", "away", "zero", "odd", "stochastic")


@dataclass(frozen=True)
class Rounding:
    """How values are stored: a format (fp32, tf32, bf16, fp16) and a mode.

    even, away: to nearest, by ties. zero: truncated. odd: truncated, the last bit set if anything
    was lost (no bias). stochastic: up with the probability of what is cut off.
    """

    fmt: str
    mode: str = "even"

    def __call__(self, values: Floats, chance: np.random.Generator) -> Floats:
        """float32 of the same shape, each value one of the format's."""
        values = np.asarray(values, np.float32)
        if self.fmt == "fp32":
            return values
        if self.fmt == "fp16":  # to nearest even only; beyond 65504 is inf
            with np.errstate(over="ignore"):
                return values.astype(np.float16).astype(np.float32)
        return self._bits(values, DROPPED[self.fmt], chance)

    def _bits(self, values: Floats, dropped: int, chance: np.random.Generator) -> Floats:
        bits = np.array(values, np.float32, order="C").view(np.uint32)
        lost = np.uint32((1 << dropped) - 1)
        if self.mode == "even":
            bits += ((bits >> np.uint32(dropped)) & np.uint32(1)) + np.uint32(
                (1 << (dropped - 1)) - 1
            )
        elif self.mode == "away":
            bits += np.uint32(1 << (dropped - 1))
        elif self.mode == "odd":
            bits |= ((bits & lost) != 0).astype(np.uint32) << np.uint32(dropped)
        elif self.mode == "stochastic":
            bits += chance.integers(0, 1 << dropped, bits.shape, dtype=np.uint32)
        elif self.mode != "zero":
            raise ValueError(f"unknown rounding {self.mode!r}; there are {', '.join(MODES)}")
        rounded: Floats = (bits & ~lost).view(np.float32)
        return np.where(np.isfinite(values), rounded, values)


def three_passes(a: Floats, b: Floats) -> Floats:
    """Multiply bf16 values from three partial products of halves of the significands.

    Low times low is left out, as in HiFi3.
    """
    high_a = Rounding("bf16", "zero")._bits(a, 19, _UNUSED)  # 5 of the 8 significant bits
    high_b = Rounding("bf16", "zero")._bits(b, 19, _UNUSED)
    product: Floats = high_a * high_b + (a - high_a) * high_b + high_a * (b - high_b)
    return product


_UNUSED = np.random.default_rng(0)
