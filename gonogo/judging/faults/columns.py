"""The faults of sums down the columns: dgamma, the sum of dy x^, and dbeta, the sum of dy."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gonogo.judging.faults import rows as of_rows
from gonogo.judging.faults import statistics
from gonogo.judging.faults.fault import SMALL, Fault, Residual, places
from gonogo.judging.faults.statistics import TILE
from gonogo.judging.limits.detection import without_terms
from gonogo.kernels.layernorm.replay import BackwardRows, ColumnGradient
from gonogo.numerics.expectation import Array

WORST = 4
"""Rows along which the error lies most that are tried as missing ones."""
MOST_FITTED = 0.5
"""The largest number of fitted rows, of the sums."""
BLOCKS = (4, 8, 16, 64, 128, 256)
"""Rows that kernels sum at a time; tiles of 32 have words of their own."""
MIN_BLOCK = 0.9
"""The least share of the error that a block of rows explains: there are many blocks to choose."""
MAX_ROWS = 128
"""Rows up to which blocks of any size at any place are tried, and rows at any distance."""
AT_ONCE = 128
"""Blocks of rows that are tried at a time, to save memory."""


def faults(
    graph: ColumnGradient, exact: Array, residual: Residual, whole: BackwardRows
) -> Iterator[Fault]:
    """Yield the faults of sums (1, N), those without a fitted number first.

    whole: the rows with all columns, of which the graph may have some only.
    """
    rows = graph.rows
    terms = graph.terms(graph.forms[0]).values
    count, features = terms.shape
    for term, changed in without_terms(graph).items():
        if term != "a row":  # every row is tried below
            yield Fault(f"{term} is missing", changed - exact)
    if graph.weighted:
        plain = np.asarray(rows.dy, np.float64) * rows.x
        yield Fault("x is in the place of x^", plain.sum(axis=0, keepdims=True) - exact)
    gamma = np.asarray(rows.gamma, np.float64)
    if np.ptp(gamma) > 0.0:  # else it is a common factor
        yield Fault("gamma is in the column sum", (gamma - 1.0) * exact)
    weighted = terms * residual.weight
    along = weighted @ residual.error[0] / np.maximum((terms * weighted).sum(axis=1), SMALL)
    for row in sorted({0, count - 1, *np.argsort(along)[:WORST].tolist()}):
        yield Fault(f"row {row} is missing from the sum", -terms[row : row + 1])
    for row in np.argsort(along)[::-1][:WORST].tolist():
        yield Fault(f"row {row} is added twice", terms[row : row + 1])
    if count > TILE:
        for start in range(0, count, TILE):
            tile = terms[start : start + TILE].sum(axis=0, keepdims=True)
            yield Fault(f"row tile {start // TILE} is missing from the sum", -tile)
            yield Fault(f"row tile {start // TILE} is added twice", tile)
    for fault in _blocks(terms, residual):
        if residual.relates(exact, fault.effect).all():
            yield fault
    for fault in _strided(terms, residual):
        if residual.relates(exact, fault.effect).all():
            yield fault
    yield from _in_few_columns(terms, residual)
    is_computed = graph.weighted and not whole.is_given
    if graph.weighted:
        x, dy = np.asarray(rows.x, np.float64), np.asarray(rows.dy, np.float64)
        every = np.asarray(whole.x, np.float64)
        given = None
        if rows.rstd is not None:
            mean = np.zeros_like(rows.rstd) if rows.mean is None else rows.mean
            given = statistics.Statistics("", mean, rows.rstd)
        for wrong in statistics.wrong_or_given(every, rows.epsilon, given, centered=rows.centered):
            with np.errstate(invalid="ignore"):
                changed = (dy * (x - wrong.mean) * wrong.rstd).sum(axis=0, keepdims=True)
            yield Fault(wrong.words, changed - exact)
    factors = of_rows.common(exact, residual)
    fitted = None
    if is_computed:

        def of_epsilon(value: float) -> Array:
            other = statistics.right(every, value, centered=rows.centered)
            return np.asarray(
                (dy * (x - other.mean) * other.rstd).sum(axis=0, keepdims=True) - exact
            )

        fitted = statistics.fitted_epsilon(of_epsilon, rows.epsilon, residual)
    yield from statistics.likelier_of(factors, fitted, residual)
    if graph.weighted and count <= MOST_FITTED * features:
        off = _of_rows("the rstd is off", terms, residual, is_coherent=False)
        if residual.relates(exact, off.effect, near=np.inf).all():
            yield off
        if rows.centered:
            of_mean = np.asarray(rows.dy, np.float64)
            yield _of_rows("the mean is off", of_mean, residual)


def _blocks(terms: Array, residual: Residual) -> Iterator[Fault]:
    """Yield the neighboring rows that, left out or added twice, explain nearly all of the error.

    They are rows at either end, or a block of a usual size: kernels sum rows in blocks of their
    own, and the last one is rarely whole. A common factor that explains more is no block: all rows
    but one, added twice, are nearly twice the sum.
    """
    count = len(terms)
    before = np.concatenate([np.zeros((1, terms.shape[1])), np.cumsum(terms, axis=0)])
    spans = [(start, count) for start in range(1, count - 1)]
    spans += [(0, stop) for stop in range(2, count)]
    # without all rows the sum is 0: a factor
    sizes = [size for size in BLOCKS if size < count]
    if count <= MAX_ROWS:
        spans += [(at, stop) for at in range(1, count) for stop in range(at + 2, count)]
    spans += [(at, min(at + size, count)) for size in sizes for at in range(0, count, size)]
    if not spans:
        return
    starts, stops = np.array(spans).T
    weight, error = residual.weight[0], residual.error[0]
    along, size = np.empty((2, len(spans)))
    for first in range(0, len(spans), AT_ONCE):
        part = slice(first, first + AT_ONCE)
        block = before[stops[part]] - before[starts[part]]
        along[part], size[part] = block @ (weight * error), block**2 @ weight
    whole = before[-1]
    information = float(whole**2 @ weight)
    explained = float(whole @ (weight * error)) ** 2 / information if information > 0.0 else 0.0
    for words, sign in (("missing from the sum", -1.0), ("added twice", 1.0)):
        left = residual.energy - 2.0 * sign * along + size
        best = int(np.argmin(left))
        limit = (1.0 - MIN_BLOCK) * residual.energy + residual.expected
        if left[best] < min(limit, residual.energy - explained):
            start, stop = spans[best]
            effect = sign * terms[start:stop].sum(axis=0, keepdims=True)
            yield Fault(f"rows {start} to {stop - 1} are {words}", effect)


def _strided(terms: Array, residual: Residual) -> Iterator[Fault]:
    """Yield the rows at equal distances that, left out, explain nearly all of the error.

    They are the share of one of several partial sums.
    """
    count = len(terms)
    if count > MAX_ROWS:
        return
    weight, error = residual.weight[0], residual.error[0]
    best: tuple[float, int, int] | None = None
    for distance in range(2, (count + 1) // 2 + 1):
        whole = np.zeros((-(-count // distance) * distance, terms.shape[1]))
        whole[:count] = terms
        sums = whole.reshape(-1, distance, terms.shape[1]).sum(axis=0)
        left = residual.energy + 2.0 * sums @ (weight * error) + sums**2 @ weight
        first = int(np.argmin(left))
        if first + distance < count and (best is None or left[first] < best[0]):
            best = float(left[first]), first, distance
    if best and best[0] < (1.0 - MIN_BLOCK) * residual.energy + residual.expected:
        _, first, distance = best
        effect = -terms[first::distance].sum(axis=0, keepdims=True)
        words = f"the rows {first}, {first + distance}, ... are missing from the sum"
        yield Fault(words, effect)


def _in_few_columns(terms: Array, residual: Residual) -> Iterator[Fault]:
    """Yield the row that neighboring columns leave out, if it explains nearly all of the error.

    It is what one warp, or a block of threads, had to add.
    """
    count, features = terms.shape
    weight, error = residual.weight[0], residual.error[0]
    best, place = 0.0, (0, 0, 0)
    for first in range(0, count, AT_ONCE):
        part = terms[first : first + AT_ONCE]
        gained = weight * (np.square(error) - np.square(error + part))
        sums = np.cumsum(gained, axis=1)
        # before the first column: the sum is 0
        before = np.concatenate([np.zeros((len(part), 1)), sums[:, :-1]], axis=1)
        least = np.minimum.accumulate(before, axis=1)
        row, last = divmod(int(np.argmax(sums - least)), features)
        if sums[row, last] - least[row, last] > best:
            best = float(sums[row, last] - least[row, last])
            place = first + row, int(np.argmin(before[row, : last + 1])), last
    row, start, stop = place[0], place[1], place[2] + 1
    if 0 < stop - start < features and (
        residual.energy - best < (1.0 - MIN_BLOCK) * residual.energy + residual.expected
    ):
        effect = np.zeros_like(residual.error)
        effect[0, start:stop] = -terms[row, start:stop]
        where = places("column", np.where(effect != 0.0, 1.0, 0.0))
        yield Fault(f"row {row} is missing from the sums of {where}", effect)


def _of_rows(words: str, patterns: Array, residual: Residual, *, is_coherent: bool = True) -> Fault:
    """Return the fault of rows whose patterns (rows, N) have factors, fitted to the sums."""
    scale = np.sqrt(residual.weight[0])
    off = np.linalg.lstsq((patterns * scale).T, residual.error[0] * scale, rcond=None)[0]
    effect = (off @ patterns)[None]
    return Fault(f"{words} in {places('row', off)}", effect, len(off), is_coherent)
