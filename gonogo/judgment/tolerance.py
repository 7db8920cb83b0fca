"""Tolerances of tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gonogo.arithmetic.formats import Doubles
from gonogo.judgment.cells import Mask

if TYPE_CHECKING:
    from gonogo.spec.tolerances import Tolerance as DeclaredTolerance


@dataclass(frozen=True)
class Tolerance:
    """The error that a test allows: abs(y - reference) <= atol + rtol * abs(reference)."""

    rtol: float = 0.0
    atol: float = 0.0

    def allowed(self, exact: Doubles) -> Doubles:
        """Return the largest error of each element."""
        return self.atol + self.rtol * np.abs(exact)

    def failing(self, values: Doubles, exact: Doubles) -> Mask:
        """Return which elements a test with it fails; equal infinities and NaNs pass."""
        with np.errstate(invalid="ignore"):
            is_close = np.isclose(values, exact, self.rtol, self.atol, equal_nan=True)
        return ~is_close


def allclose_of(declared: DeclaredTolerance | None) -> Tolerance | None:
    """Return rtol and atol of a test's tolerance; None where it declares neither."""
    if declared is None or declared.allclose is None:
        return None
    return Tolerance(*declared.allclose)
