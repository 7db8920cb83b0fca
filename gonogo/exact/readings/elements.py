"""Some elements of an output, and the share of the wrong ones that a hypothesis explains."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gonogo.exact import cells
from gonogo.exact.expected import Expected

Doubles = NDArray[np.float64]
Floats = NDArray[np.float32]

CHANGED = 2.0**-7
"""The room for a wrong value, relative to the change: it is rounded where the exact one is not."""


@dataclass(frozen=True)
class Elements:
    """Some elements of an output; all have one shape, such as (rows, N)."""

    output: Floats
    exact: Doubles
    allowance: Doubles
    fmt: str

    @classmethod
    def of(cls, output: Floats, expectation: Expected, fmt: str) -> Elements:
        """Return the elements of an output in format `fmt`, beside what is expected of them."""
        return cls(output, expectation.exact, expectation.allowance, fmt)

    @cached_property
    def wrong(self) -> NDArray[np.bool_]:
        """The elements whose cell doesn't hold the exact value."""
        return self.distance(self.exact) > self.allowance

    def distance(self, value: Doubles) -> Doubles:
        """Return how far `value` lies outside of the cells."""
        return cells.distance(self.output, value, self.fmt)

    def share(self, value: Doubles) -> float:
        """Return the share of the wrong elements that `value` explains, at least 0.

        Right elements that it would make wrong count against it. NaN predicts nothing, and an
        output that isn't finite confirms nothing.
        """
        defined = np.isfinite(value) & np.isfinite(self.output)
        before = int((self.wrong & defined).sum())
        if before == 0:
            return 0.0
        value = np.where(defined, value, self.exact)
        room = self.allowance + CHANGED * np.abs(value - self.exact)
        still = (self.distance(value) > room) & defined
        return max(0.0, 1 - int(still.sum()) / before)
