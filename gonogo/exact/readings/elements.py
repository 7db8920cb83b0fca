"""Some elements of an output, and the share of the wrong ones that a hypothesis explains."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gonogo.exact import cells

Doubles = NDArray[np.float64]
Floats = NDArray[np.float32]

CHANGED = 2.0**-7
"""The room for a wrong value, relative to the change: it is rounded where the exact one is not."""


@dataclass(frozen=True)
class Elements:
    """Some rows of a forward output; all (rows, N), the index (rows, N) or (1, N)."""

    output: Floats
    xhat: Doubles
    index: NDArray[np.intp]
    exact: Doubles
    allowance: Doubles
    fmt: str

    @cached_property
    def wrong(self) -> NDArray[np.bool_]:
        """The elements whose cell doesn't hold the exact value."""
        return cells.distance(self.output, self.exact, self.fmt) > self.allowance

    def share(self, value: Doubles) -> float:
        """Return the share of the wrong elements that `value` explains, at least 0.

        Right elements that it would make wrong count against it. NaN predicts nothing.
        """
        defined = np.isfinite(value)
        before = int((self.wrong & defined).sum())
        if before == 0:
            return 0.0
        value = np.where(defined, value, self.exact)
        room = self.allowance + CHANGED * np.abs(value - self.exact)
        still = (cells.distance(self.output, value, self.fmt) > room) & defined
        return max(0.0, 1 - int(still.sum()) / before)
