"""Places: where the wrong values of an output lie, and what stands there.

Rows are the elements along all axes but the last, columns those along the last; both are counted
from 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gonogo.faults.changes import TILE, Array
from gonogo.judgment.cells import Mask

Indices = NDArray[np.intp]
FULL = 0.9
"""The share of the values of rows, columns or blocks from which they are said to be wrong."""
FEW = 6
"""Ranges that a sentence lists; more of them are counted."""
ISOLATED = 0.01
"""The share of all values up to which scattered ones are called isolated."""
SAME = 0.95
"""The share of wrong values from which what stands there is said of all."""
PROBES = 8
"""Columns by which rows are recognized."""


@dataclass(frozen=True)
class Places:
    """Where values are wrong.

    Attributes:
        count: how many are.
        total: how many there are.
        rows: the rows that have wrong values.
        columns: the columns that have.
        content: what stands in their places: "0", "NaN", "rows 0 to 7", ...; empty if unknown.
        where: the rows and columns for people.
        sentence: all of this for people.
    """

    count: int
    total: int
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    content: str
    where: str
    sentence: str


def places_of(outside: Mask, values: Array, right: Array) -> Places:
    """Return where an output is wrong.

    Args:
        outside: which values are wrong, of the output's shape.
        values: the output.
        right: what it should be.
    """
    columns = outside.shape[-1] if outside.ndim else 1
    wrong = np.reshape(outside, (-1, columns))
    given, right_rows = (
        np.broadcast_to(a, outside.shape).reshape(-1, columns) for a in (values, right)
    )
    rows, cols = np.flatnonzero(wrong.any(axis=1)), np.flatnonzero(wrong.any(axis=0))
    count = int(wrong.sum())
    if not count:
        return Places(0, wrong.size, (), (), "", "", "No value is off.")
    content = _content(wrong, given, right_rows, rows, cols)
    verb, they = ("is", "it is") if count == 1 else ("are", "they are")
    where = _where(wrong, rows, cols)
    noun = "value" if wrong.size == 1 else "values"
    sentence = f"{count:,} of {wrong.size:,} {noun} {verb} off{where}"
    if content:
        sentence += f"; {they} {content}"
    return Places(
        count,
        wrong.size,
        tuple(rows.tolist()),
        tuple(cols.tolist()),
        content,
        where.removeprefix(", "),
        sentence + ".",
    )


def _where(wrong: Mask, rows: Indices, cols: Indices) -> str:
    """Return where wrong values lie, as the end of a clause."""
    height, width = wrong.shape
    in_rows, in_cols = ranges("row", rows, height), ranges("column", cols, width)
    if height == 1 or width == 1:
        return f", in {in_cols if height == 1 else in_rows} (counted from 0)"
    filled = wrong[np.ix_(rows, cols)].mean()
    if filled >= FULL:
        return f", in {in_rows}, {in_cols} (counted from 0)"
    in_blocks = np.logical_or.reduceat(wrong, np.arange(0, height, TILE), axis=0)
    blocks = np.argwhere(np.logical_or.reduceat(in_blocks, np.arange(0, width, TILE), axis=1))
    corner = blocks * TILE
    sizes = np.minimum(corner + TILE, [height, width]) - corner
    if wrong.sum() >= FULL * sizes.prod(axis=1).sum() and len(blocks) <= FEW:
        listed = ", ".join(f"({row}, {column})" for row, column in blocks)
        return f", in the {TILE}x{TILE} blocks {listed} (row and column of blocks, from 0)"
    spread = f", in {len(rows):,} of {height:,} rows and {len(cols):,} of {width:,} columns"
    by_row = wrong[rows].mean(axis=1)
    if len(rows) <= FEW * 2 and len(rows) < height:
        spread = f", in {in_rows} (counted from 0)"
    elif len(cols) < width and len(cols) <= max(FEW * 2, width // 2):
        spread = f", in {in_cols} (counted from 0)"
    elif wrong.mean() <= ISOLATED and by_row.max() < 0.5:
        spread = f", isolated,{spread[1:]}"
    return spread


def ranges(unit: str, indices: Sequence[int] | Indices, total: int) -> str:
    """Return places on an axis in words: ranges, a period, or their number."""
    at = np.asarray(indices)
    if len(at) == total:
        return f"all {total:,} {unit}s" if total > 1 else f"{unit} 0"
    starts = at[np.flatnonzero(np.diff(at, prepend=-2) > 1)]
    ends = at[np.flatnonzero(np.diff(at, append=total + 1) > 1)]
    if len(starts) == 1:
        one = f"{unit} {starts[0]}"
        return one if starts[0] == ends[0] else f"{unit}s {starts[0]} to {ends[0]}"
    step, length = np.diff(starts), ends - starts + 1
    if len(starts) > 2 and (step == step[0]).all() and (length[:-1] == length[0]).all():
        period, first = int(step[0]), int(starts[0])
        if first < period and first + period * len(starts) + first >= total - period:
            last = first + int(length[0]) - 1
            within = f"{first} to {last}" if last > first else f"{first}"
            return f"{len(at):,} of {total:,} {unit}s, {within} of every {period}"
    if len(starts) <= FEW:
        parts = [f"{a}" if a == b else f"{a} to {b}" for a, b in zip(starts, ends, strict=True)]
        return f"{unit}s {', '.join(parts[:-1])} and {parts[-1]}"
    return f"{len(at):,} of {total:,} {unit}s"


def _content(wrong: Mask, given: Array, right_rows: Array, rows: Indices, cols: Indices) -> str:
    """Return a phrase on the contents of wrong places, such as zeros."""
    contents, right = given[wrong], right_rows[wrong]
    with np.errstate(all="ignore"):
        if not contents.any():
            return "0"
        kinds = {"NaN": np.isnan(contents), "infinite": np.isinf(contents), "0": contents == 0}
        for name, mask in kinds.items():
            if mask.mean() >= SAME:
                return name
        for factor, text in ((2.0, "twice as large"), (0.5, "half as large"), (-1.0, "negated")):
            alike = np.abs(contents - factor * right) <= np.abs(contents) / 2**6
            if alike.mean() >= SAME:
                return f"{text} as they should be" if factor > 0 else text
        if (
            len(np.unique(contents[:1000])) == 1
            and contents.size > 2
            and (contents == contents[0]).all()
        ):
            return f"all {contents[0]:g}"
    return _other_rows(wrong, given, right_rows, rows)


def _other_rows(wrong: Mask, given: Array, right_rows: Array, rows: Indices) -> str:
    """Return which other rows' values whole rows hold, if they do."""
    height, width = wrong.shape
    whole = rows[wrong[rows].mean(axis=1) > 0.5]
    if height < 2 or len(whole) < len(rows) or width < PROBES or not np.isfinite(right_rows).all():
        return ""
    probes = np.unique(np.linspace(0, width - 1, PROBES).astype(int))
    scale = np.abs(right_rows[:, probes]).max() or 1.0
    order = np.argsort(right_rows[:, probes[0]], kind="stable")
    first = right_rows[order, probes[0]]
    source = np.full(len(whole), -1)
    for at, row in enumerate(whole):
        got = given[row, probes]
        low, high = np.searchsorted(first, got[0] + np.array([-1, 1]) * scale / 100)
        near = order[low:high]
        close = np.abs(right_rows[np.ix_(near, probes)] - got).max(axis=1, initial=0) <= scale / 50
        if close.sum() == 1:
            source[at] = near[close][0]
    if (source < 0).any() or (source == whole).any():
        return ""
    return f"the values of {ranges('row', np.unique(source), height)}"
