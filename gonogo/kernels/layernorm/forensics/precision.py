"""The errors that right arithmetic may make in a test's numerics.

They are the rounding of outputs and the systematic parts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gonogo.kernels.layernorm.forensics.words import Noun

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

HALF_ULP = {
    "fp32": 2.0**-24,
    "tf32": 2.0**-11,
    "fp16": 2.0**-11,
    "bf16": 2.0**-8,
    "bfp8_b": 2.0**-7,
}
"""Unit roundoff, relative to a value at the start of its binade.

bfp8_b: relative to the largest of its 16 values.
"""
RMS = 0.42
"""rms of a rounding error over half an ulp's bound.

It is 1/sqrt(3), with values on average .72 up their binade.
"""
REPEATS = {"bfp8_b": 1.5}
"""A format of few values (measured on right kernels)."""
STORED = RMS * 2.0**-8
"""Relative standard deviation of a sum that is stored as bf16: right kernels may do so."""
ALIGNMENT = 2.0**-11 / 3.0**0.5
"""rms that a sum or difference loses, relative to its larger operand, on the FPU's 2^-10 grid.

That is ELWADD and ELWSUB. All values of one binade lose the same, so it does not average out along
a row.
"""
PRODUCT_LOSS = {"lofi": 2.15e-2, "hifi2": 2.7e-3, "hifi3": 5.1e-5, "hifi4": 0.0}
"""Mean relative loss of a product, toward zero, by fidelity (measured)."""
SCALE = 6e-4
"""Deviation of a whole output's factor that fp32 arithmetic on bf16 buffers may have.

rstd off by 1e-3 is beyond it.
"""
NARROW_SCALE = 2.0**-6
"""The same where everything passes through a 16-bit Dst (measured on right kernels: 8e-3)."""
TF32_SCALE = 2.0**-9
"""The same for fp32 inputs, of which the FPU sees 11 bits, truncated (measured: 1.4e-3)."""
OWN_SCALE = 2.0**-7
"""The same where the kernel computes its own rstd and stores it as bf16; per row half of that."""
OWN_MEAN = 2.0**-7
"""Deviation of a mean that a backward kernel computes itself.

1/N is truncated to bf16, and the mean is stored.
"""
NARROW_SUM = 2.0**-8
"""Deviation of a sum in a 16-bit Dst, per square root of its tiles."""
SUM_LOSSES = 2.5
"""Product losses in a sum's coefficient.

They are those of its terms, and of the product with 1/N, which may lose more than the mean.
"""
COARSE_BUFFERS = {"bfp8_b": 2.0**-5}
"""Relative error of sums and factors where every intermediate is packed into few bits."""
BLOCK = 2.0
"""rms rounding of a block format over that of its largest value: most values are smaller."""


@dataclass(frozen=True)
class Precision:
    """Errors that right arithmetic may make in a test's numerics; everything is relative."""

    rounding: float
    """The rms rounding of an output element."""
    scale: float
    """The deviation of the factor of a whole output."""
    loss: float
    """The mean loss of an FPU product."""
    own_mean: float
    """The deviation of the mean that a backward kernel computes itself; 0 where it is given."""
    repeats: float
    """The factor by which the errors of a row's sums exceed those of unrelated roundings.

    Equal values are rounded alike.
    """
    column: float
    """The rounding that may be alike down a column."""
    wide: bool
    """True where sums are fp32."""
    stores_bf16: bool
    """True where intermediates are stored as bf16, and only they are rounded so."""
    block: bool
    """True where the output is in a block format."""
    coarse: float
    """The error of sums and factors that a format of few bits makes.

    0 where the formats are finer.
    """

    @classmethod
    def of(cls, test: TestSpec) -> Precision:
        """Derive it from the test's numerics. Unknown words count as bf16 and HiFi4."""
        numerics = test.numerics
        inputs = [numerics.input] if isinstance(numerics.input, str) else numerics.input.values()
        truncated = any(name in ("fp32", "tf32") for name in inputs)
        unit = HALF_ULP.get(numerics.output, 2.0**-8)
        block = numerics.output.startswith("bfp")
        loss = PRODUCT_LOSS.get(numerics.fidelity, 0.0)
        wide = numerics.accumulate != "bf16"
        scale = (
            SCALE
            + 2 * loss
            + TF32_SCALE * truncated
            + unit / 2 * block
            + (0.0 if wide else NARROW_SCALE)
        )
        coarse = COARSE_BUFFERS.get(numerics.buffers, 0.0)
        own_statistics = "dy" in test.drawn_names and numerics.statistics == "own"
        column = 2 * loss + 2.0**-10 * truncated + (0.0 if wide else 2.0**-9)
        return cls(
            rounding=RMS * unit * (BLOCK if block else 1.0),
            scale=scale + OWN_SCALE * own_statistics + coarse,
            loss=loss,
            own_mean=OWN_MEAN * own_statistics,
            repeats=max(REPEATS.get(name, 1.0) for name in (*inputs, "bf16")),
            column=column,
            wide=wide,
            stores_bf16=numerics.buffers == "bf16" and wide,
            block=block,
            coarse=coarse,
        )

    def noun(self, noun: Noun, tiles: int) -> Noun:
        """Return the noun of a sum over this many tiles.

        It has the deviation that the sum's coefficients may have in these numerics.
        """
        narrow = 0.0 if self.wide else NARROW_SUM * tiles**0.5
        # a loss of y's factor counts twice in the variance that it implies, and vice versa
        twice = 2 if noun.name == "variance" else 1
        loss, coarse = twice * SUM_LOSSES * self.loss, twice * self.coarse
        above = noun.above + narrow + (loss if noun.name == "variance" else self.loss) + coarse
        # equal values lose alike: in a single row's sum it does not average out
        allowed = self.repeats * loss + narrow + coarse
        return replace(
            noun, below=noun.below + loss + narrow + coarse, above=above, allowed=allowed
        )

    def element(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the standard deviation of the rounding of each output value (N,).

        Values of a block format share their block's exponent.
        """
        size = np.abs(values)
        if self.block:
            starts = np.arange(0, len(size), 16)
            size = np.repeat(np.maximum.reduceat(size, starts), 16)[: len(size)]
        return np.asarray(self.rounding * size)

    def stored(self, tiles: int) -> float:
        """Return the rms of a stored sum of this many tiles.

        It is that of its storage as bf16 and, in a 16-bit Dst, of every partial sum.
        """
        return STORED * (1.0 if self.wide else 1.0 + 1.5 * tiles**0.5)


def bf16_grid(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the nearest bf16 value (8 significant bits) of each."""
    mantissa, exponent = np.frexp(values)
    return np.asarray(np.ldexp(np.round(mantissa * 256.0) / 256.0, exponent))
