"""Coefficients in words: which tiles a term sums, misses or counts twice.

Tiles and rows are counted from 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gonogo.kernels.layernorm.forensics.fit import GOOD_SCATTER, SPARE_ROWS, TileFit
from gonogo.numerics.diagnosis import PRECISION

SIMPLE = (0.0, 1.0, 2.0, -1.0, 0.5)
"""The coefficients that a logic bug makes: missing, right, twice, wrong sign, halved.

Others are given as numbers.
"""
SIGMAS = 6.0
"""Standard errors within which a coefficient is read as a simple one.

Hundreds of tiles are read at once.
"""
BELOW, ABOVE = 2.0**-7, 2.0**-8
"""Relative deviation of a right term.

1/N truncated to bf16 is up to 2^-7 too small. Nearest bf16 and a stored bf16 sum add at most 2^-8.
"""
BIASED = 0.05, 0.25
"""Deviation of the common coefficient, and of a tile's, that is no finding in a scattered sum.

Its roundings cause that much.
"""
VERY_NOISY = 10.0
"""The limit of NOISY where hardly a row is to spare."""
WILD = 30.0
"""Residual from which lost precision is no longer the likely reason.

A 16-bit Dst makes 5 to 10 (measured).
"""
LOST = 0.1
"""A coefficient up to this is still read as 0 where the test's arithmetic loses as much.

Values that were lost elsewhere look like it.
"""
VAGUE = 0.5
"""A tile whose coefficient is not known to within this can't be determined."""
NOISY = 2.5
"""Residual, in units of rounding, from which a sum in no pattern is called scattered.

Patterns are those of tiles or rows.
"""


@dataclass(frozen=True)
class Noun:
    """The words for a term, such as "s1" and "is subtracted twice".

    It also has the unit, tiles or row tiles, and the deviation that a right term may have.
    """

    name: str
    twice: str = "is counted twice"
    unit: str = "tile"
    below: float = BELOW
    above: float = ABOVE
    allowed: float = 0.0
    """Relative error of a sum that the test's own arithmetic may make beside the modeled rounding.

    0: none.
    """


@dataclass(frozen=True)
class Finding:
    """The outcome of one term's fit.

    It says whether the term is wrong, in words ("" when it is right), and whether its tiles can be
    determined.
    """

    wrong: bool
    words: str
    can_tell: bool


def ordinal(number: int) -> str:
    """Return 1st, 2nd, 3rd, 4th, 11th, 21st."""
    ending = (
        "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    )
    return f"{number}{ending}"


def listing(numbers: Sequence[int]) -> str:
    """Return a list as in "1, 2 and 3"."""
    return (
        str(numbers[0])
        if len(numbers) == 1
        else f"{', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"
    )


def place(members: Sequence[int], count: int, unit: str = "tile") -> str:
    """Return where `members` (from 0, ascending) lie among `count` tiles.

    For example, "the last tile (265th of 265)", or "the 7th tile of 265".
    """
    size, first, last = len(members), members[0] + 1, members[-1] + 1
    if size == count:
        return {1: f"the only {unit}", 2: f"both {unit}s"}.get(count, f"all {count} {unit}s")
    if size == 1:
        if last == count:
            return f"the last {unit} ({ordinal(last)} of {count})"
        return (
            f"the first {unit} (1st of {count})"
            if first == 1
            else f"the {ordinal(first)} {unit} of {count}"
        )
    if last - first == size - 1:
        span = f"{ordinal(first)} {'and' if size == 2 else 'to'} {ordinal(last)} of {count}"
        if last == count:
            return f"the last {size} {unit}s ({span})"
        if first == 1:
            return f"the first {size} {unit}s ({span})"
        return f"the {unit}s {first} {'and' if size == 2 else 'to'} {last} of {count}"
    steps = set(np.diff(np.asarray(members)).tolist())
    if size >= 3 and len(steps) == 1 and first <= (step := steps.pop()) and last + step > count:
        shown = ", ".join(str(member + 1) for member in members[:3])
        return f"every {ordinal(step)} {unit} ({shown}, ... of {count})"
    if size <= 6:
        return f"the {unit}s {listing([member + 1 for member in members])} of {count}"
    return (
        f"{size} {unit}s ({', '.join(str(member + 1) for member in members[:3])}, ... of {count})"
    )


def odd_rows(rows: Sequence[int], count: int, lane: str = "row") -> str:
    """Return which rows, or columns, do not follow.

    For example, "the rows 8, 16, 24, ... (every 8th of 256)". rows: from 0, ascending. lane: "row"
    or "column".
    """
    known = np.asarray(rows)
    for period in range(2, min(64, count // 3) + 1):
        for phase in range(period):
            expected = np.arange(phase, count, period)
            hits = len(np.intersect1d(known, expected, assume_unique=True))
            # some rows may be missing (their deviation is small by chance), none may be elsewhere
            if len(expected) >= 3 and hits >= 0.95 * len(known) and hits >= 0.8 * len(expected):
                shown = ", ".join(str(row + 1) for row in expected[:3].tolist())
                return f"the {lane}s {shown}, ... (every {ordinal(period)} of {count})"
    if len(rows) > 1 and int(known[-1] - known[0]) == len(rows) - 1:
        return f"the {lane}s {rows[0] + 1} to {rows[-1] + 1} of {count}"
    if len(rows) == 1:
        return f"the {ordinal(rows[0] + 1)} {lane} of {count}"
    if len(rows) <= 6:
        return f"the {lane}s {listing([row + 1 for row in rows])} of {count}"
    return f"{len(rows)} of {count} {lane}s ({', '.join(str(row + 1) for row in rows[:3])}, ...)"


def close(coefficient: float, error: float, value: float, noun: Noun) -> bool:
    """Return whether a coefficient is `value`, within its error and right arithmetic's effects."""
    low, high = sorted((value * (1 - noun.below), value * (1 + noun.above)))
    slack = SIGMAS * error + noun.above / 2 + (min(noun.allowed, LOST) if value == 0 else 0.0)
    return low - slack <= coefficient <= high + slack


def describe(fit: TileFit, noun: Noun, why: str = "") -> Finding:
    """Return a term's coefficients in words.

    why: why the data can't tell the term's tiles, where it is known.
    """
    reason = why or fit.reason
    if fit.method == "none":
        return Finding(False, f"cannot tell {noun.name}: {reason}", False)
    if fit.method == "total":
        return _total(fit, noun, reason)
    # with few rows to spare the residual itself is uncertain
    sure = fit.rows >= len(fit.starts) + SPARE_ROWS or fit.method == "pattern"
    limit = (GOOD_SCATTER if fit.method == "groups" else NOISY) if sure else VERY_NOISY
    scattered = bool(np.isfinite(fit.scatter)) and fit.scatter > limit
    if fit.method == "groups" and scattered:
        text = (
            f"cannot tell which {noun.unit}s: {fit.rows} rows carry only groups of {fit.group} "
            f"{noun.unit}s, which do not fit"
        )
        return Finding(True, f"{noun.name} is wrong in part; {text}", False)
    if scattered:
        slack = BIASED[0] if fit.uniform else BIASED[1]
        noun = replace(noun, below=max(noun.below, slack), above=max(noun.above, slack))
    can_tell = not fit.uniform or bool(np.nanmedian(fit.errors) * SIGMAS <= VAGUE)
    if (
        fit.uniform
        and scattered
        and not close(fit.total, 0.0, 1.0, noun)
        and fit.total_error * SIGMAS > VAGUE / 2
    ):
        return Finding(
            True, f"{noun.name} is wrong, by no one factor and in no pattern of {noun.unit}s", False
        )
    if fit.uniform:
        words = _one(
            fit.total, fit.total_error, noun, list(range(fit.tiles)) if can_tell else [], fit.tiles
        )
    else:
        words = _several(fit, noun)
    wrong = bool(words)
    if wrong and fit.method == "groups":
        words += f" (in groups of {fit.group} {noun.unit}s: {fit.rows} rows carry no more)"
    if scattered and not len(fit.odd):
        noise = (
            f"{noun.name} scatters {fit.scatter:.2g} times more than rounding, "
            f"in no pattern of {noun.unit}s"
        )
        noise += PRECISION if fit.scatter < WILD else ""
        words, wrong = (f"{words}; {noise}" if words else noise), True
    if not wrong and not can_tell:
        words = f"cannot tell which {noun.unit}s: their errors are too large"
    return Finding(wrong, words, can_tell)


def _total(fit: TileFit, noun: Noun, reason: str) -> Finding:
    unknown = f"cannot tell which {noun.unit}s: {reason}"
    if np.isfinite(fit.scatter) and fit.scatter > 2 * NOISY:
        return Finding(True, f"{noun.name} is wrong, by no one factor; {unknown}", False)
    if fit.total_error * SIGMAS > 0.25 * max(1.0, abs(fit.total)):
        return Finding(False, f"cannot tell {noun.name}: {reason}", False)
    words = _one(fit.total, fit.total_error, noun, [], fit.tiles)
    return Finding(bool(words), f"{words}; {unknown}" if words else unknown, False)


def _one(value: float, error: float, noun: Noun, members: list[int], count: int) -> str:
    """Return the words of one coefficient that holds in all tiles.

    members: the tiles; empty where it holds for the total.
    """
    where = f"in {place(members, count, noun.unit)}" if members else "in total"
    simple = _simple(value, error, noun)
    if simple == 1.0:
        return ""
    if simple is not None:
        verb = {0.0: "is missing", 2.0: noun.twice, -1.0: "has the wrong sign", 0.5: "is halved"}[
            simple
        ]
        return f"{noun.name} {verb} {where}"
    return f"{noun.name} is {value:.4g} times what it should be {where}"


def _simple(value: float, error: float, noun: Noun) -> float | None:
    """Return the simple coefficient that a value means.

    Where its error allows several, that is the nearest, or 1 in case of doubt.
    """
    if close(value, error, 1.0, noun):
        return 1.0
    near = [simple for simple in SIMPLE if close(value, error, simple, noun)]
    return min(near, key=lambda simple: abs(simple - value)) if near else None


def _several(fit: TileFit, noun: Noun) -> str:
    """Return the words of coefficients that differ from tile to tile."""
    values = [
        _simple(c, e, noun) if np.isfinite(c) else None
        for c, e in zip(fit.coefficients, fit.errors, strict=True)
    ]
    unknown = {
        index
        for index, (c, e) in enumerate(zip(fit.coefficients, fit.errors, strict=True))
        if not np.isfinite(c) or SIGMAS * e > VAGUE
    }
    classes: dict[float, list[int]] = {}
    for index, (value, coefficient) in enumerate(zip(values, fit.coefficients, strict=True)):
        if index not in unknown:
            key = value if value is not None else float(f"{coefficient:.2g}")
            classes.setdefault(key, []).extend(_tiles(fit, index))
    known = sum(map(len, classes.values()))
    if not known:
        return f"{noun.name} is wrong; cannot tell which {noun.unit}s: their errors are too large"
    missing = classes.get(0.0, [])
    if len(classes) == 1:
        (value,) = classes
        words = _one(value, 0.0, noun, next(iter(classes.values())), fit.tiles)
    elif 2 * len(missing) > known:
        words = _only(classes, noun, fit.tiles)
    else:
        words = _apart_from_right(classes, noun, fit.tiles)
    if words and known < fit.tiles:
        words += f" ({fit.tiles - known} of {fit.tiles} {noun.unit}s cannot be determined)"
    return words


def _only(classes: dict[float, list[int]], noun: Noun, count: int) -> str:
    """Return the words where most tiles are missing: what the term sums."""
    parts = []
    for value, members in classes.items():
        if value == 0.0:
            continue
        how = {1.0: "", 2.0: " twice", -1.0: " with the wrong sign", 0.5: " by half"}.get(
            value, f" {value:g} times"
        )
        parts.append(f"{place(members, count, noun.unit)}{how}")
    return f"{noun.name} sums only {' and '.join(parts)}"


def _apart_from_right(classes: dict[float, list[int]], noun: Noun, count: int) -> str:
    """Return the words where most tiles are right, or all are wrong: what the wrong ones are."""
    kinds = sorted((value for value in classes if value != 1.0), key=lambda value: classes[value])
    if len(kinds) > 4:
        members = sorted(member for value in kinds for member in classes[value])
        low, high = min(kinds), max(kinds)
        where = place(members, count, noun.unit)
        return f"{noun.name} is wrong in {where}: {low:g} to {high:g} times what it should be"
    parts = []
    for value in kinds:
        where = place(classes[value], count, noun.unit)
        text = {
            0.0: f"misses {where}",
            2.0: f"counts {where} twice",
            -1.0: f"has the wrong sign in {where}",
            0.5: f"counts {where} by half",
        }.get(value, f"takes {where} {value:g} times")
        parts.append(text)
    return f"{noun.name} {' and '.join(parts)}" if parts else ""


def _tiles(fit: TileFit, index: int) -> range:
    """Return the tiles of a group."""
    stop = int(fit.starts[index + 1]) if index + 1 < len(fit.starts) else fit.tiles
    return range(int(fit.starts[index]), stop)
