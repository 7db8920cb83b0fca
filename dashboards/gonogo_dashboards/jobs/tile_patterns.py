"""Patterns in an error map: rows or columns of tiles with most of the error, and stripes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

Cells = Sequence[Sequence[float | None]]

HALF = 0.5
"""Share of the squared error from which one column or row is named alone."""
BULK = 0.9
FEW = 0.1
"""Largest fraction of the columns or rows that is named when it has BULK of the squared error."""
STRIPES = 0.3
"""Share of the signed means' variance between columns or rows, beyond noise, that makes stripes."""


def words(largest: Cells, signed: Cells, narrow: int | None) -> str:
    """Return sentences about the cells: (rows, columns) of the largest |error| and the mean error.

    Shares are of the squares of the cells' largest errors. narrow: the width in values of the last
    column, where it is not full.
    """
    squares = [[(value or 0.0) ** 2 for value in line] for line in largest]
    total = sum(map(sum, squares))
    if not total:
        return ""
    columns = [sum(line[column] for line in squares) / total for column in range(len(squares[0]))]
    rows = [sum(line) / total for line in squares]
    candidates = [_columns(columns, narrow), _few(rows, "row"), _stripes(signed)]
    sentences = [sentence for sentence in candidates if sentence]
    return " ".join(sentences) if sentences else "It is spread over the tiles without a pattern."


def _columns(shares: Sequence[float], narrow: int | None) -> str:
    if len(shares) == 1 or shares[-1] < max(HALF, 2 / len(shares)):
        return _few(shares, "column")
    mask = f"; it is only {narrow} wide, so a mask at the end of the row may be missing"
    return f"The last column of tiles holds {shares[-1]:.0%} of the error{mask if narrow else ''}."


def _few(shares: Sequence[float], noun: str) -> str:
    """Return a sentence about the few columns or rows with most of the error; else ""."""
    order, count = sorted(range(len(shares)), key=lambda place: -shares[place]), len(shares)
    first = shares[order[0]]
    if count > 2 and first >= max(HALF, 2 / count):
        name = f"{noun.capitalize()} {order[0] + 1} of {count}"
        return f"{name} of tiles holds {first:.0%} of the error."
    sums = list(accumulate(shares[place] for place in order))
    needed = next((number for number, share in enumerate(sums, 1) if share >= BULK), count)
    if needed > FEW * count:
        return ""
    return f"{needed} of {count} {noun}s of tiles hold {sums[needed - 1]:.0%} of the error."


def _stripes(signed: Cells) -> str:
    """Return a sentence about stripes of the mean error: more than noise has between lines."""
    rows = [[value or 0.0 for value in line] for line in signed]
    level, upright = _between(rows), _between(list(zip(*rows, strict=True)))
    parts = []
    if level >= STRIPES:
        parts.append(
            f"{level:.0%} of the mean error's variance goes from row to row: horizontal stripes,"
            " as of a wrong term of each row"
        )
    if upright >= STRIPES:
        parts.append(
            f"{upright:.0%} of {'it' if parts else 'the mean error’s variance'} goes from column to"
            " column: vertical stripes, as of a wrong term that follows the features"
        )
    return "; ".join(parts) + "." if parts else ""


def _between(lines: Sequence[Sequence[float]]) -> float:
    """Return the share of the variance that is between the lines, beyond that of noise."""
    down, across = len(lines), len(lines[0])
    if down < 2 or across < 2:
        return 0.0
    mean = sum(map(sum, lines)) / (down * across)
    spread = sum((value - mean) ** 2 for line in lines for value in line)
    if not spread:
        return 0.0
    share = sum(across * (sum(line) / across - mean) ** 2 for line in lines) / spread
    by_chance = (down - 1) / (down * across - 1)
    return max(0.0, (share - by_chance) / (1 - by_chance))
