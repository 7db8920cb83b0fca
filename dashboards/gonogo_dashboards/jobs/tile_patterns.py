"""Patterns in an error map: rows or columns of tiles with most of the error, and stripes."""

from __future__ import annotations

from collections.abc import Sequence

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
    last = shares[-1]
    if len(shares) > 1 and last >= max(HALF, 2 / len(shares)):
        mask = (
            f"; it is only {narrow} wide, so a mask at the end of the row may be missing"
            if narrow is not None
            else ""
        )
        return f"The last column of tiles holds {last:.0%} of the error{mask}."
    return _few(shares, "column")


def _few(shares: Sequence[float], noun: str) -> str:
    """Return a sentence about the few columns or rows with most of the error.

    "" where they are many.
    """
    order = sorted(range(len(shares)), key=lambda place: -shares[place])
    if len(shares) > 2 and shares[order[0]] >= max(HALF, 2 / len(shares)):
        place, share = order[0] + 1, shares[order[0]]
        return (
            f"{noun.capitalize()} {place} of {len(shares)} of tiles holds {share:.0%} of the error."
        )
    running_share = 0.0
    for number, place in enumerate(order, 1):
        running_share += shares[place]
        if running_share >= BULK:
            return (
                f"{number} of {len(shares)} {noun}s of tiles hold {running_share:.0%} of the error."
                if number <= FEW * len(shares)
                else ""
            )
    return ""


def _stripes(signed: Cells) -> str:
    """Return a sentence about stripes of the mean error.

    It compares shares of the variance with those that noise has.
    """
    cells = [[value or 0.0 for value in line] for line in signed]
    down, across = len(cells), len(cells[0])
    if down < 2 or across < 2:
        return ""
    mean = sum(map(sum, cells)) / (down * across)
    spread = sum((value - mean) ** 2 for line in cells for value in line)
    if not spread:
        return ""
    by_row = sum(across * (sum(line) / across - mean) ** 2 for line in cells) / spread
    by_column = (
        sum(
            down * (sum(line[column] for line in cells) / down - mean) ** 2
            for column in range(across)
        )
        / spread
    )
    whole = down * across - 1
    upright, level = (_beyond(by_column, (across - 1) / whole), _beyond(by_row, (down - 1) / whole))
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


def _beyond(share: float, by_chance: float) -> float:
    return max(0.0, (share - by_chance) / (1 - by_chance)) if by_chance < 1 else 0.0
