"""A reading: the wrong term that explains the sensors best, its tiles and rows, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

GOOD_SHARE = 0.8
"""A reading that explains less of the error is named as a guess only.

A right term leaves the rounding of the wrong statistic, at most a few percent of an error that the
format can show; another term leaves more than half (measured on the edits of the tests)."""

SPECIFIC_SHARE = 0.9
"""A specific reading with so large a share is preferred to any vague one."""

TIE = 0.003
"""Shares that differ by less are equal: then the hypothesis that comes first wins. The sensors
read 1e-6 of x^, so two factors that differ by a tenth leave 1 % of the squares."""

STORED_TIE = 0.05
"""The same where x^ or rstd is stored in 16 bits, which hides a tenth of a factor of 1 %."""


@dataclass(frozen=True)
class Reading:
    """One explanation of a wrong output.

    Attributes:
        term: the wrong term, such as "mean"; "unknown" where no hypothesis explains the error.
        words: a sentence.
        share: the share of the error that it explains, 0 to 1.
        tiles: the tiles that are wrong or left out, from 0; empty: not a matter of tiles.
        factor: the factor that the sensors read, where one explains the error.
        vague: True where it only says where the sensors point, such as "another factor in each
            row": it has a value for each row, so it explains much by construction.
    """

    term: str
    words: str
    share: float
    tiles: tuple[int, ...] = ()
    factor: float | None = None
    vague: bool = False

    def beside(self, where: str) -> Reading:
        """Return the same reading with a place added to its sentence; "" adds nothing."""
        return replace(self, words=f"{self.words}, {where}") if where else self


def best(readings: Sequence[Reading], tie: float = TIE) -> Reading:
    """Return the reading with the largest share; the first of those that are within `tie` of it.

    A vague one wins only where no other has at least SPECIFIC_SHARE.
    """
    specific = [reading for reading in readings if not reading.vague]
    most = max((reading.share for reading in specific), default=0.0)
    if most < SPECIFIC_SHARE:
        specific = list(readings)
        most = max(reading.share for reading in readings)
    return next(reading for reading in specific if reading.share >= most - tie)


def named(tiles: Sequence[int], count: int) -> str:
    """Return tiles in words, counted from 1: "tile 3 of 265", "the last 2 of 265 tiles"."""
    if len(tiles) == count:
        return f"all {count} tiles"
    if len(tiles) == 1:
        return f"tile {tiles[0] + 1} of {count}"
    if list(tiles) == list(range(count - len(tiles), count)):
        return f"the last {len(tiles)} of {count} tiles"
    if list(tiles) == list(range(len(tiles))):
        return f"the first {len(tiles)} of {count} tiles"
    shown = ", ".join(str(tile + 1) for tile in tiles[:4])
    return f"tiles {shown}{', ...' if len(tiles) > 4 else ''} of {count}"


def rows_in_words(rows: Sequence[int], judged: int) -> str:
    """Return wrong rows in words, counted from 1; "" where all judged rows are wrong."""
    if len(rows) == judged:
        return ""
    shown = ", ".join(str(row + 1) for row in rows[:4])
    more = ", ..." if len(rows) > 4 else ""
    plural = "s" * (len(rows) > 1)
    return f"in row{plural} {shown}{more} ({len(rows)} of {judged} exact rows)"


def factor_in_words(factor: float) -> str:
    """Return a factor with the digits that differ from 1."""
    off = abs(factor - 1)
    return (
        f"{factor:.4g}" if off > 0.05 or off == 0 else f"1 {'+' if factor > 1 else '-'} {off:.2g}"
    )


def span_in_words(low: float, high: float) -> tuple[str, float]:
    """Return a factor that lies between two ends: in words, and as the likeliest value.

    Ends on the same side of 1 that differ by more than a quarter of their distance are both named;
    the likeliest value is then in the middle of their logarithms.
    """
    near, far = sorted((low - 1, high - 1), key=abs)
    if near * far <= 0 or far / near < 1.25:
        return factor_in_words((low + high) / 2), (low + high) / 2
    words = f"between {factor_in_words(1 + near)} and {factor_in_words(1 + far)}"
    return words, 1 + (near * far) ** 0.5 * (1 if near > 0 else -1)
