"""What stands out in an error map: a column or a row of tiles that holds most of the error, and
stripes of one sign.
"""

from __future__ import annotations

from collections.abc import Sequence

Cells = Sequence[Sequence[float | None]]

HALF = 0.5
"""Share of the squared error from which a column or row is named alone."""
MAX = 0.9
FEW = 0.1
"""So small a part of the columns (or rows) that holds MAX of the squared error is named."""
STRIPES = 0.3
"""Share of the signed means' variance that goes from column to column (or row to row), beyond what
noise has, from which it is stripes."""


def words(largest: Cells, signed: Cells, narrow: int | None) -> str:
    """Sentences about the cells: (rows, columns) of the largest |error| and of the mean error.

    Shares are of the squares of the cells' largest errors. narrow: the width in values of the last
    column, where it is not a full one.
    """
    squares = [[(value or 0.0) ** 2 for value in line] for line in largest]
    total = sum(map(sum, squares))
    if not total:
        return ""
    columns = [sum(line[column] for line in squares) / total for column in range(len(squares[0]))]
    rows = [sum(line) / total for line in squares]
    said = [_columns(columns, narrow), _few(rows, "row"), _stripes(signed)]
    found = [each for each in said if each]
    return " ".join(found) if found else "It is spread over the tiles without a pattern."


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
    """The few columns (or rows) that hold most, if they are few."""
    order = sorted(range(len(shares)), key=lambda place: -shares[place])
    if len(shares) > 2 and shares[order[0]] >= max(HALF, 2 / len(shares)):
        return f"{noun.capitalize()} {order[0] + 1} of {len(shares)} of tiles holds {shares[order[0]]:.0%} of the error."
    held = 0.0
    for number, place in enumerate(order, 1):
        held += shares[place]
        if held >= MAX:
            return (
                f"{number} of {len(shares)} {noun}s of tiles hold {held:.0%} of the error."
                if number <= FEW * len(shares)
                else ""
            )
    return ""


def _stripes(signed: Cells) -> str:
    """Whether the mean error goes with the column or with the row: shares of its variance beyond
    those that noise would have.
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
    said = []
    if level >= STRIPES:
        said.append(
            f"{level:.0%} of the mean error's variance goes from row to row: level stripes, as of a wrong term that each row has"
        )
    if upright >= STRIPES:
        said.append(
            f"{upright:.0%} of {'it' if said else 'the mean error’s variance'} goes from column to column: upright stripes, as of a "
            "wrong term that follows the features"
        )
    return "; ".join(said) + "." if said else ""


def _beyond(share: float, by_chance: float) -> float:
    return max(0.0, (share - by_chance) / (1 - by_chance)) if by_chance < 1 else 0.0
