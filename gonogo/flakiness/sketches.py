"""Quantile sketches: the quantiles of any number of values, from a few hundred counters.

Sketches can be added. They depend neither on the order of the values nor on the machine.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

PER_OCTAVE = 32
"""Buckets between a number and its double: a bucket's middle is at most 1.083% from each of its
numbers, (g-1)/(g+1) of g = 2^(1/32)."""
MAX_BUCKETS = 512
"""Above this, neighboring buckets are joined in pairs until they fit: 16 octaves (4.8 decades)
at the full accuracy, all finite numbers at level 8."""


def _edges() -> tuple[float, ...]:
    """Return 2^(j/32) for j = 0..31, rounded up to a double, in exact integers.

    So no two machines' libm disagree about a value at an edge.
    """
    edges = []
    for j in range(PER_OCTAVE):
        guess = round(math.ldexp(2.0 ** (j / PER_OCTAVE), 52))
        while guess**PER_OCTAVE >= 1 << (52 * PER_OCTAVE + j):
            guess -= 1
        while guess**PER_OCTAVE < 1 << (52 * PER_OCTAVE + j):
            guess += 1
        edges.append(math.ldexp(float(guess), -52))
    return tuple(edges)


_EDGES = _edges()
_FIRST = PER_OCTAVE + 1
"""frexp's mantissa is in [1/2, 1), and bisect counts the edges at or below it, always including
the first."""


@dataclass(frozen=True)
class Sketch:
    """Counts of |value| in logarithmic buckets.

    After DDSketch (Masson, Rim and Lee, VLDB 2019), with joining in pairs from UDDSketch (2020).
    Bucket i of level L holds the numbers of [2^(i w), 2^((i+1) w)), w = 2^L / 32. The level is the
    smallest at which MAX_BUCKETS are enough: it depends on the set of values only, so a sum of
    sketches is the sketch of all their values, in any order and grouping. Values are magnitudes: a
    sign is dropped. Zeros and infinities are counted separately and take part in quantiles; NaN and
    missing values (None) are counted and take part in nothing.
    """

    buckets: Mapping[int, int] = field(default_factory=dict)
    level: int = 0
    zero: int = 0
    inf: int = 0
    nan: int = 0
    missing: int = 0
    least: float | None = None
    """The smallest and the largest finite magnitude above zero, exact; None if there are none."""
    most: float | None = None

    @classmethod
    def of(cls, values: Iterable[float | None], *, missing: int = 0) -> Sketch:
        """Return the sketch of values. missing: how many more there are without a number."""
        sizes = [None if value is None else abs(float(value)) for value in values]
        finite = [size for size in sizes if size is not None and 0.0 < size < math.inf]
        buckets: dict[int, int] = {}
        for size in finite:
            part, exponent = math.frexp(size)
            index = PER_OCTAVE * exponent + bisect_right(_EDGES, 2 * part) - _FIRST
            buckets[index] = buckets.get(index, 0) + 1
        none, zero, inf = (sizes.count(value) for value in (None, 0.0, math.inf))
        nan = len(sizes) - len(finite) - none - zero - inf
        return cls(
            *_fitted(buckets, 0),
            zero,
            inf,
            nan,
            none + missing,
            min(finite, default=None),
            max(finite, default=None),
        )

    def __add__(self, other: Sketch) -> Sketch:
        """Return the sketch of the values of both."""
        return total((self, other))

    @property
    def count(self) -> int:
        """The number of values that take part in quantiles: finite or infinite."""
        return self.zero + sum(self.buckets.values()) + self.inf

    @property
    def largest(self) -> float | None:
        """The largest finite value, exact; None if there are none."""
        return 0.0 if self.most is None and self.zero else self.most

    @property
    def error(self) -> float:
        """The largest relative error of a quantile, except for the smallest subnormal numbers.

        There it is half of the smallest one.
        """
        return (self._ratio - 1) / (self._ratio + 1)

    @property
    def _ratio(self) -> float:
        """The ratio of the upper to the lower edge of a bucket."""
        return math.pow(2.0, 2**self.level / PER_OCTAVE)

    def quantile(self, share: float) -> float | None:
        """Return the smallest value that at least `share` of the values don't exceed.

        It is within a relative `error`; shares 0 and 1 give the exact ends. None without values;
        Inf where the quantile is infinite. Raises ValueError for a share outside 0 to 1.
        """
        if not 0 <= share <= 1:
            raise ValueError(f"a share is between 0 and 1, not {share}")
        if not self.count:
            return None
        rank = max(1, math.ceil(round(share * self.count, 9)))
        passed = self.zero
        if rank <= passed:
            return 0.0
        if share == 1 and not self.inf:
            return self.most
        for index, count in self.buckets.items():
            passed += count
            if rank <= passed:
                return self.least if rank == self.zero + 1 else self._middle(index)
        return math.inf

    def bins(self) -> list[tuple[float, float, int]]:
        """Return (from, below, values) of each bucket with values, ascending, for a histogram.

        Zeros, infinities and NaN are not included.
        """
        return [
            (_edge(index << self.level), _edge((index + 1) << self.level), count)
            for index, count in self.buckets.items()
        ]

    def _middle(self, index: int) -> float:
        """Return the number with the smallest relative distance to all numbers of a bucket.

        It is never outside the smallest and the largest value.
        """
        low = _edge(index << self.level)
        middle = low * (2 * self._ratio / (1 + self._ratio))
        return min(max(middle, self.least or 0.0), math.inf if self.most is None else self.most)

    def to_json(self) -> dict[str, Any]:
        """Return it in plain JSON types without zeros; equal sketches give equal JSON."""
        content: dict[str, Any] = {}
        if self.buckets:
            content = {
                "at": list(self.buckets),
                "n": list(self.buckets.values()),
                "least": self.least,
                "most": self.most,
            }
        counts = {
            "level": self.level,
            "zero": self.zero,
            "inf": self.inf,
            "nan": self.nan,
            "missing": self.missing,
        }
        return content | {name: value for name, value in counts.items() if value}

    @classmethod
    def parse(cls, data: Mapping[str, Any]) -> Sketch:
        """Parse the object that `to_json` makes."""
        buckets = dict(zip(data.get("at", ()), data.get("n", ()), strict=True))
        level, zero, inf, nan, missing = (
            int(data.get(name, 0)) for name in ("level", "zero", "inf", "nan", "missing")
        )
        least, most = (
            None if data.get(name) is None else float(data[name]) for name in ("least", "most")
        )
        return cls(buckets, level, zero, inf, nan, missing, least, most)


def total(sketches: Iterable[Sketch]) -> Sketch:
    """Return the sketch of the values of all; an empty one if there are none."""
    parts = list(sketches)
    level = max((part.level for part in parts), default=0)
    buckets: dict[int, int] = {}
    for part in parts:
        for index, count in part.buckets.items():
            place = index >> (level - part.level)
            buckets[place] = buckets.get(place, 0) + count
    return Sketch(
        *_fitted(buckets, level),
        sum(part.zero for part in parts),
        sum(part.inf for part in parts),
        sum(part.nan for part in parts),
        sum(part.missing for part in parts),
        min((part.least for part in parts if part.least is not None), default=None),
        max((part.most for part in parts if part.most is not None), default=None),
    )


def _fitted(buckets: Mapping[int, int], level: int) -> tuple[dict[int, int], int]:
    """Return the buckets in order, joined in pairs until there are few enough, and their level.

    Shifts round down, so the edges at powers of two remain.
    """
    while len(buckets) > MAX_BUCKETS:
        joined: dict[int, int] = {}
        for index, count in buckets.items():
            joined[index >> 1] = joined.get(index >> 1, 0) + count
        buckets, level = joined, level + 1
    return dict(sorted(buckets.items())), level


def _edge(index: int) -> float:
    """Return 2^(index/32), Inf beyond the largest number."""
    octave, step = divmod(index, PER_OCTAVE)
    return math.inf if octave >= 1024 else math.ldexp(_EDGES[step], octave)
