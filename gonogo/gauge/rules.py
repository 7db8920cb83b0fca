"""Rules of public gates: how a suite decides that an output is close enough.

A rule is data. `gonogo.gauge.limits` measures an output with it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

FRACTION_BITS: Mapping[str, int] = {"fp32": 23, "bf16": 7, "fp16": 10}
"""Output formats that public suites have, with the bits below the leading one (a test compares them
with gonogo.numerics.formats: this module loads no NumPy)."""


@dataclass(frozen=True)
class Declared:
    """A tolerance that a test of GoNoGo can declare itself (gonogo.spec.tolerances).

    It is judged from the stored statistics, so against inputs before they were rounded.
    """

    tolerance: Mapping[str, float]

    @property
    def formats(self) -> tuple[str, ...] | None:
        """The output formats that it judges; None: all."""
        return None

    def words(self, output_format: str, outputs: Collection[str]) -> str:
        """Return the limit of these outputs in words."""
        return ", ".join(f"{name} {value:g}" for name, value in self.tolerance.items())


@dataclass(frozen=True)
class Close:
    """|e| <= atol + rtol |expected|, by the output's format: format -> (rtol, atol)."""

    by_format: Mapping[str, tuple[float, float]]

    @property
    def formats(self) -> tuple[str, ...] | None:
        """The output formats that it judges."""
        return tuple(self.by_format)

    def words(self, output_format: str, outputs: Collection[str]) -> str:
        """Return the limit of these outputs in words."""
        rtol, atol = self.by_format[output_format]
        return f"rtol {rtol:g}, atol {atol:g}"


@dataclass(frozen=True)
class Either:
    """An element passes where |e| <= atol, and where |e| <= rtol (|expected| + guard)."""

    rtol: float
    atol: float
    guard: float

    @property
    def formats(self) -> tuple[str, ...] | None:
        """The output formats that it judges."""
        return tuple(FRACTION_BITS)

    def words(self, output_format: str, outputs: Collection[str]) -> str:
        """Return the limit of these outputs in words."""
        return f"atol {self.atol:g} or rtol {self.rtol:g}, whichever is wider"


@dataclass(frozen=True)
class Ulps:
    """At most `limit` units in the last place of the output's format; 0: equal to the bit."""

    limit: float

    @property
    def formats(self) -> tuple[str, ...] | None:
        """The output formats that it judges."""
        return tuple(FRACTION_BITS)

    def words(self, output_format: str, outputs: Collection[str]) -> str:
        """Return the limit of these outputs in words."""
        return f"ulp {self.limit:g}" if self.limit else "equal to the bit"


@dataclass(frozen=True)
class Accumulated:
    """rtol t and atol t max|expected|, with t = 2^-(bits + 1) of a format.

    t is that of the output's format, or that of fp32 times the number of additions, whichever is
    larger. `check_err.hpp` of Composable Kernel defines it so, for fp32 sums.
    """

    @property
    def formats(self) -> tuple[str, ...] | None:
        """The output formats that it judges."""
        return tuple(FRACTION_BITS)

    def threshold(self, output_format: str, additions: int) -> float:
        """Return t."""
        accumulated = 2.0 ** -(FRACTION_BITS["fp32"] + 1) * additions
        return max(accumulated, 2.0 ** -(FRACTION_BITS[output_format] + 1))

    def words(self, output_format: str, outputs: Collection[str]) -> str:
        """Return the limit of these outputs in words."""
        return (
            f"rtol t, atol t max|expected|, t = max({self.threshold(output_format, 0):.2g},"
            f" {self.threshold('fp32', 1):.2g} additions)"
        )


@dataclass(frozen=True)
class WelfordBound:
    """One atol from the length N of a row, max|gamma| and max|beta|, for fp32 computation.

    atol = (growth(2N)/2 + growth(N) + 5u) max|gamma| + u max|beta| + u_out (max|gamma| +
    max|beta|), as `DynamicTolerancesLayerNorm.hpp` of hipDNN defines it. u = 2^-23, u_out is the
    output format's step at 1 (0 for fp32). growth(k) = 2ku/(1 - 2ku) below 2ku = .01, else
    6 sqrt(2k) u.
    """

    @property
    def formats(self) -> tuple[str, ...] | None:
        """The output formats that it judges."""
        return tuple(FRACTION_BITS)

    def atol(self, output_format: str, features: int, gamma: float, beta: float) -> float:
        """Return the limit; gamma and beta are the largest sizes."""
        step = 2.0 ** -FRACTION_BITS["fp32"]
        last = 0.0 if output_format == "fp32" else 2.0 ** -FRACTION_BITS[output_format]
        growth = _growth(2 * features, step) / 2 + _growth(features, step)
        return (growth + 5 * step) * gamma + step * beta + last * (gamma + beta)

    def words(self, output_format: str, outputs: Collection[str]) -> str:
        """Return the limit of these outputs in words."""
        return "an atol from the row's length, max|gamma| and max|beta|"


def _growth(additions: int, step: float) -> float:
    product = 2.0 * additions * step
    if product < 0.01:
        return product / (1.0 - product)
    return float(6.0 * (2.0 * additions) ** 0.5 * step)


@dataclass(frozen=True)
class ScaledThreshold:
    """A relative threshold that grows with the output format's step: thresholds of fp32 times 2^k.

    k is the number of bits that the format has less than fp32. Forward: every element. |e| may
    also be that share of |y - beta| where it is larger than |y|, and sizes up to 1e-5 count as 1.
    Backward: the 2-norm of the error, relative to that of the expected output. `setup_cmp` of
    oneDNN's benchdnn (lnorm.cpp) defines it so.
    """

    by_output: Mapping[str, float]
    """Output -> the threshold for fp32."""

    @property
    def formats(self) -> tuple[str, ...] | None:
        """The output formats that it judges."""
        return tuple(FRACTION_BITS)

    def threshold(self, output: str, output_format: str) -> float:
        """Return the threshold of an output."""
        bits = FRACTION_BITS["fp32"] - FRACTION_BITS[output_format]
        return self.by_output[output] * 2.0**bits

    def words(self, output_format: str, outputs: Collection[str]) -> str:
        """Return the limit of these outputs in words."""
        return "; ".join(
            f"{output}: {self.threshold(output, output_format):.2g}"
            f" {'of each element' if output == 'y' else 'of the 2-norm'}"
            for output in self.by_output
            if output in outputs
        )


Measured = Close | Either | Ulps | Accumulated | WelfordBound | ScaledThreshold
"""Rules that need the arrays: against inputs as the kernel received them."""
Rule = Declared | Measured
