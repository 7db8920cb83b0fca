"""How a stranger computes: its orders of summation, its formulas, what it stores and how it rounds.

One run of it is a Work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.strangers import sums
from benchmarks.strangers.roundings import Rounding, three_passes

Floats = NDArray[np.float32]
Alteration = Callable[[Floats, "Work"], NDArray[Any]]
"""From a stage's value to its faulty value, which is stored as float32."""


@dataclass(frozen=True)
class Arithmetic:
    """One way to compute a LayerNorm; all of them are right (within the formats of the test)."""

    name: str
    order: str = "pairwise"
    """Order of the sums along a row."""
    down: str = "pairwise"
    """Order of the sums down a column."""
    moments: str = "two-pass"
    rsqrt: str = "divide"
    stored: frozenset[str] = frozenset()
    """The stages whose values go through a buffer: see kernels.py for their names."""
    buffer: str = "buffers"
    """Format of the buffers; "buffers": what the test admits (bf16, and TF32 for an fp32 test)."""
    buffering: str = "even"
    """Rounding mode of the buffers."""
    output: str = "even"
    """Rounding mode of the outputs."""
    product: str = "exact"
    """exact (one rounding to fp32) or three-passes."""
    fused: bool = False
    """Whether a multiplication and the addition after it round once."""
    form: str = "textbook"
    """The form of dx and y: see kernels.py."""
    reciprocal: bool = False
    """Whether means are products with a stored 1/N instead of quotients."""
    parts: int = 0
    """Cores whose partial sums are stored in buffers; 0: partial sums are never stored."""


@dataclass
class Work:
    """One run: the arithmetic, the formats of the test, chance, and the fault (if any)."""

    arithmetic: Arithmetic
    buffer: str
    """Format of a buffer."""
    result: str
    """Format of the outputs."""
    chance: np.random.Generator
    run: int = 0
    """How many runs this kernel had before in its process."""
    alterations: Mapping[str, Alteration] = field(default_factory=dict)
    order: sums.Order | None = None
    """The order of all sums that a fault puts in the place of the arithmetic's: a narrow
    accumulator, for instance."""
    memory: dict[str, Any] = field(default_factory=dict)
    """State that stays from run to run."""
    values: dict[str, Floats] = field(default_factory=dict)
    """Each stage's value, after its fault and its rounding."""

    def keep(self, stage: str, value: Any) -> Floats:
        """Return a stage's value as later stages see it: first the fault, then the buffer."""
        stored: Floats = np.asarray(value, np.float32)
        if (alteration := self.alterations.get(stage)) is not None:
            stored = np.asarray(alteration(stored, self), np.float32)
        if stage in self.arithmetic.stored:
            stored = self.buffered(stored)
        self.values[stage] = stored
        return stored

    def give(self, stage: str, value: Any) -> Floats:
        """Return an output: rounded to the output format, then altered as stage + " out".

        Such an alteration is a fault of the writer.
        """
        rounded = Rounding(self.result, self.arithmetic.output)(
            self.keep(stage, value), self.chance
        )
        if (alteration := self.alterations.get(stage + " out")) is not None:
            rounded = np.asarray(alteration(rounded, self), np.float32)
        self.values[stage + " out"] = rounded
        return rounded

    def buffered(self, value: Floats) -> Floats:
        """Through a buffer."""
        return Rounding(self.buffer, self.arithmetic.buffering)(value, self.chance)

    def total(self, terms: Floats, name: str | None = None) -> Floats:
        """Sums along a row, (rows, 1)."""
        order = sums.ORDERS[name or self.arithmetic.order]
        if self.arithmetic.parts:
            order = sums.cores(
                self.arithmetic.parts, order, lambda value, chance: self.buffered(value)
            )
        return (self.order or order)(terms, self.chance)[:, None]

    def down(self, terms: Floats) -> Floats:
        """Sums down a column, (N,)."""
        return self.total(np.ascontiguousarray(terms.T), self.arithmetic.down)[:, 0]

    def mean(self, terms: Floats, count: Floats) -> Floats:
        """Sums along a row over N, (rows, 1)."""
        if self.arithmetic.reciprocal:
            return self.total(terms) * self.buffered(np.float32(1) / count)
        return self.total(terms) / count

    def times(self, a: Floats, b: Floats) -> Floats:
        """A product of two values of the formats."""
        return (
            three_passes(*np.broadcast_arrays(a, b))
            if self.arithmetic.product == "three-passes"
            else a * b
        )

    def minus_product(self, c: Floats, a: Floats, b: Floats) -> Floats:
        """C - a b, with one rounding or two."""
        if self.arithmetic.fused:
            return (c.astype(np.float64) - a.astype(np.float64) * b.astype(np.float64)).astype(
                np.float32
            )
        return c - self.times(a, b)

    def plus_product(self, c: Floats, a: Floats, b: Floats) -> Floats:
        """C + a b, with one rounding or two."""
        return self.minus_product(c, -a, b)
