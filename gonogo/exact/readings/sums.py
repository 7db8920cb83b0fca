"""Wrong sums of a gradient: hypotheses about s1, s2 and the factor of dx = r (P - s1 - x^ s2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gonogo.arithmetic.wormhole import stored
from gonogo.exact.expected_backward import Backward
from gonogo.exact.readings import lags, tiles
from gonogo.exact.readings.elements import Elements
from gonogo.exact.readings.reading import factor_in_words
from gonogo.exact.sensors import Readings
from gonogo.numerics.formats import round_to
from gonogo.spec.regimes import TILE

Doubles = NDArray[np.float64]
Flags = NDArray[np.bool_]
Others = Mapping[int, tuple[Backward, Flags]]
"""By lag: the parts of the rows so many rows before, and whether they exist, (rows,)."""


@dataclass(frozen=True)
class WrongSums:
    """A kernel that makes r (scale P - s1 - x^ s2), with its own scale, s1 and s2: all (rows,).

    Attributes:
        factor: the factor that the sensors read, where one explains the error.
        tiles, vague: as in a Reading.
    """

    term: str
    words: str
    scale: Doubles
    s1: Doubles
    s2: Doubles
    tiles: tuple[int, ...] = ()
    factor: float | None = None
    vague: bool = False

    def line(self, parts: Backward) -> tuple[Doubles, Doubles]:
        """Return d1 and d2, (rows,): where P = s1 + s2 x^, the output is r (d1 + d2 x^)."""
        with np.errstate(invalid="ignore"):
            return self.scale * parts.s1 - self.s1, self.scale * parts.s2 - self.s2

    def gradient(self, parts: Backward) -> Doubles:
        """Return dx, (some, N), in the first rows, whose parts are given."""
        some = slice(len(parts.s1))
        rest = self.scale[some, None] * parts.product - self.s1[some, None]
        result: Doubles = parts.rstd[:, None] * (rest - parts.xhat * self.s2[some, None])
        return result

    def stored(self, fmt: str) -> WrongSums:
        """Return the same kernel where it rounds s1 and s2 to `fmt`."""
        s1, s2 = (round_to(value, fmt).astype(np.float64) for value in (self.s1, self.s2))
        return replace(self, s1=s1, s2=s2)

    def read_as_tf32(self) -> WrongSums:
        """Return the same kernel where s1 and s2 lose all but 10 bits, as a Wormhole reads them."""
        s1, s2 = (stored(value.astype(np.float32), "tf32/zero") for value in (self.s1, self.s2))
        return replace(self, s1=s1.astype(np.float64), s2=s2.astype(np.float64))


def specific(parts: Backward, others: Others) -> Iterator[WrongSums]:
    """Yield the wrong s1 and s2 that have a name. RMSNorm has no s1, but may subtract one."""
    one = np.ones_like(parts.s2)
    s1, s2 = parts.s1, parts.s2
    weighted = parts.product * parts.xhat
    stale = {lag: np.where(exists, other.s2, np.nan) for lag, (other, exists) in others.items()}
    for line in _wrong_values("s2", s2, weighted, stale):
        yield WrongSums(line.term, line.words, one, s1, line.value, line.tiles)
    if not parts.is_centered:
        words = "s1, the mean of P, is subtracted, as LayerNorm does"
        yield WrongSums("s1", words, one, parts.product.mean(axis=1), s2)
        return
    stale = {lag: np.where(exists, other.s1, np.nan) for lag, (other, exists) in others.items()}
    for line in _wrong_values("s1", s1, parts.product, stale):
        yield WrongSums(line.term, line.words, one, line.value, s2, line.tiles)
    yield WrongSums("s1 and s2", "neither s1 nor s2 is subtracted", one, 0 * s1, 0 * s2)
    count = parts.xhat.shape[1]
    lost = [tiles.left_out(terms) for terms in (parts.product, weighted)]
    for first, second in zip(*lost, strict=True):
        words = f"s1 and s2 {first.words}".replace("leaves", "leave").replace("sums", "sum")
        pair = s1 - first.lost / count, s2 - second.lost / count
        yield WrongSums("s1 and s2", words, one, *pair, first.tiles)
    raw = parts.mean * parts.rstd  # x^ without the mean: x^ + raw, and s2 + raw s1
    yield WrongSums("mean", "the mean is not subtracted in s2 alone", one, s1, s2 + raw * s1)


@dataclass(frozen=True)
class _WrongValue:
    """A wrong value of one sum, (rows,)."""

    term: str
    words: str
    value: Doubles
    tiles: tuple[int, ...] = ()


def _wrong_values(
    name: str, value: Doubles, terms: Doubles, stale: Mapping[int, Doubles]
) -> Iterator[_WrongValue]:
    """Yield the wrong values of a sum of terms (rows, N); stale: by lag, that of another row."""
    count = terms.shape[1]
    padded = -(-count // TILE) * TILE
    # first: after a vernier row, whose s2 is about 0, an old s2 looks like none
    for lag, old in stale.items():
        yield _WrongValue("stale row", f"{name} is that of {lags.named(lag)}", old)
    yield _WrongValue(name, f"{name} is not subtracted", 0 * value)
    yield _WrongValue(name, f"{name} is subtracted twice", 2 * value)
    yield _WrongValue(name, f"{name} is added", -value)
    for line in tiles.left_out(terms):
        yield _WrongValue(name, f"{name} {line.words}", value - line.lost / count, line.tiles)
    if count > 1:
        yield _WrongValue(name, f"{name} divides by N - 1", value * count / (count - 1))
    if padded != count:
        words = f"{name} divides by {padded} instead of {count}"
        yield _WrongValue(name, words, value * count / padded)


def general(
    parts: Backward, seen: Readings, signals: tuple[Backward, Elements] | None
) -> Iterator[WrongSums]:
    """Yield what the sensors read: a factor on rstd or on a sum, or another error in each row.

    signals: the vernier rows and their elements other than zero sensors. In 16 bits only these tell
    a wrong rstd from a wrong s2; None where the test has none.
    """
    one = np.ones_like(parts.s2)
    s1, s2 = parts.s1, parts.s2
    if (some := s2 != 0).any():
        part = 1 - float(np.median(seen.factor.middle[some] / s2[some]))
        words = f"s2 has a factor of {factor_in_words(part)}"
        lines = [WrongSums("s2", words, one, s1, part * s2, factor=part)]
        if (rstd := _cube_root(part)) is not None:
            words = f"rstd has a factor of {factor_in_words(rstd)}, in x^ and outside"
            whole = WrongSums("rstd", words, one * rstd, rstd * s1, rstd**3 * s2, factor=rstd)
            lines.append(whole)
            if signals is not None and _has_rstd(*signals, rstd, part):
                lines.reverse()
        yield from lines
    if (some := s1 != 0).any():
        part = 1 - float(np.median(seen.offset.middle[some] / s1[some]))
        words = f"s1 has a factor of {factor_in_words(part)}"
        yield WrongSums("s1", words, one, part * s1, s2, factor=part)
    offset, factor = s1 - seen.offset.middle, s2 - seen.factor.middle
    amount = "wrong, by another amount in each row"
    if parts.is_centered:
        yield WrongSums("s1", f"s1 is {amount}", one, offset, s2, vague=True)
    yield WrongSums("s2", f"s2 is {amount}", one, s1, factor, vague=True)
    yield WrongSums("s1 and s2", f"s1 and s2 are {amount}", one, offset, factor, vague=True)


def _cube_root(part: float) -> float | None:
    """Return the factor f of rstd that leaves `part` of s2 in zero sensors; None without one.

    There, P = s1 + s2 x^, and dx = r (f - f^3) s2 x^ reads as 1 - part of s2. The root near 1.
    """
    roots = np.roots([1.0, 0.0, -1.0, 1.0 - part])
    real = [float(root.real) for root in roots if abs(root.imag) < 1e-12 and root.real > 0]
    return min(real, key=lambda root: abs(root - 1), default=None)


def _has_rstd(parts: Backward, elements: Elements, rstd: float, part: float) -> bool:
    """Return whether a factor on rstd explains more of the vernier rows than one on s2."""
    r, s1, s2 = (value[:, None] for value in (parts.rstd, parts.s1, parts.s2))
    signal = parts.dx.exact != 0
    by_rstd = rstd * r * (parts.product - s1 - rstd**2 * s2 * parts.xhat)
    by_s2 = r * (parts.product - s1 - part * s2 * parts.xhat)
    return elements.share(by_rstd[signal]) > elements.share(by_s2[signal])
