"""The common shift of the mean of all rows, which rounding doesn't make.

Each row rounds a mean of its own. An epsilon that is added to the mean, or a wrong number of
columns, is in all rows, and shows in the mean of their errors even where no single row shows it. A
running sum of terms of one sign, however, is off to one side in all rows. So the errors are
compared with those of each simulated order: a shift is none of theirs, and lies beyond all of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from gonogo.numerics.expectation import Array
from gonogo.numerics.replay import orders
from gonogo.numerics.replay.cells import MIN_SPREAD, SharedErrors
from gonogo.numerics.replay.common import MAX_ELEMENTS, MIN_DEVIATIONS, MIN_SCATTER, MIN_SCORE
from gonogo.numerics.replay.common import score as score_of
from gonogo.numerics.replay.orders import RUNNING_SPREAD
from gonogo.numerics.replay.program import Order, Program

SCALES = (1.0, 1.0 + RUNNING_SPREAD, 1.0 - RUNNING_SPREAD)
"""The factors of a simulated error within which that of a library's kernel lies."""

CUT_TERMS = (8, 16, 32)
"""The terms that a matrix unit adds at once to a total, whose low bits it cuts off."""
MAX_SCATTER = 2.0
"""The largest scatter of right kernels' rows, in standard deviations of a single row: they show .4
to 1.2, as in the ladder. Few rows tell a scatter badly, so Student's t of theirs says little."""


class MeanOfRows(NamedTuple):
    """The mean of each row as a program computes it, and what a shift of it is compared with.

    Attributes:
        x: (rows, N), of which it is the mean.
        mean: (rows,) the mean.
        deviation: (rows,) the standard deviation of its rounding.
        rstd: (rows,) 1 over the rows' standard deviations.
    """

    x: Array
    mean: Array
    deviation: Array
    rstd: Array


@runtime_checkable
class Centered(Protocol):
    """A graph of rows whose mean the kernel computes."""

    def mean_of_rows(self, program: Program) -> MeanOfRows | None:
        """Return the rows' means; None where the kernel is given them, has none, or stores them."""


class _Pool(NamedTuple):
    """The common multiple of a pattern in some rows' errors.

    size: the multiple, in standard deviations of a single row. scatter: of the rows about it.
    """

    size: float
    scatter: float


def common_shift(graph: object, program: Program, form: str, errors: SharedErrors) -> float:
    """Return the standard deviations by which a shift of all rows' means differs from none.

    0 where it may be chance, or the error of an order of additions. The shift may be an absolute
    one, one of so many standard deviations of each row, or a share of each mean.

    Args:
        graph: the output's formula with the kernel's inputs.
        program: a program that explains each element and each row.
        form: the output's format; only fp32 shows each row's error by itself.
        errors: the rows' shared errors.
    """
    if form != "fp32" or not isinstance(graph, Centered) or np.count_nonzero(errors.of_mean[1]) < 2:
        return 0.0
    of_rows = graph.mean_of_rows(program)
    if of_rows is None:
        return 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        _, distinct = np.unique(of_rows.deviation * of_rows.rstd, return_index=True)
    says = (errors.of_mean[1] > 0.0) & (of_rows.deviation > 0.0)
    rows = np.sort(distinct[says[distinct]])
    if len(rows) < 2:
        return 0.0
    count = max(2, min(len(rows), MAX_ELEMENTS // of_rows.x.shape[1]))
    rows = rows[np.linspace(0, len(rows) - 1, count).astype(np.intp)]
    part = MeanOfRows(*(values[rows] for values in of_rows))
    estimates, spreads = errors.of_mean[:, rows]
    return _of_rows(part, estimates, spreads, program.order)


def _of_rows(of_rows: MeanOfRows, estimates: Array, spreads: Array, order: Order) -> float:
    """Return the same from the estimate of each row (rows,) and its variance, of 1."""
    x, mean, deviation, rstd = of_rows
    running = np.zeros_like(mean)  # how far the program's sums are off
    if order is not Order.blocked:
        running = mean - orders.exact_mean(np.ascontiguousarray(x, np.float32))
    variance = deviation**2 / spreads
    weights = 1.0 / np.maximum(variance - (RUNNING_SPREAD * running) ** 2, MIN_SPREAD * variance)
    usual = MAX_SCATTER * math.sqrt(float((weights * variance).mean()))
    shifts = estimates / spreads * deviation + running
    patterns = np.stack([np.ones_like(mean), 1.0 / rstd, mean])
    patterns = patterns[np.isfinite(patterns).all(axis=1) & patterns.any(axis=1)]

    def score(simulated: Iterable[Array], pattern: Array) -> float:
        pools = [_pool(errors, weights, pattern) for errors in (shifts, *simulated)]
        return _least(pools[0], pools[1:], len(mean), usual)

    # simulating costs more than the rest, so only what would count is compared with it
    computed = [np.zeros_like(mean), running]
    suspects = [pattern for pattern in patterns if score(computed, pattern)]
    if not suspects:
        return 0.0
    first, *others = _errors(x)
    groups = [[*computed, *first], *others]
    return max(min(score(group, pattern) for group in groups) for pattern in suspects)


def _errors(x: Array) -> Iterator[list[Array]]:
    """Yield the errors (rows,) of means of x (rows, N) by simulated orders.

    An order between the first ones is as good as they are; each of the others stands for itself.
    """
    exact = orders.exact_mean(np.ascontiguousarray(x, np.float32))
    in_order = chain.from_iterable(orders.means(x, order) for order in Order)
    means = [*in_order, *orders.updated_means(x)]
    width = x.shape[1]
    reciprocal = width * np.float64(np.float32(1.0 / width))  # a sum may be multiplied by 1/N
    yield [exact * (reciprocal - 1.0), *(scale * (m - exact) for m in means for scale in SCALES)]
    for count in CUT_TERMS:
        error = _truncated(x, count) - exact
        yield [scale * error for scale in SCALES]


def _truncated(x: Array, terms: int) -> Array:
    """Return the mean of each row from a total that takes in so many terms at once, cut off.

    Sums of one sign are small in all rows.
    """
    rows, count = x.shape
    totals = np.zeros(rows, np.float32)
    for start in range(0, count, terms):
        total = totals + x[:, start : start + terms].sum(axis=1, dtype=np.float64)
        totals = total.astype(np.float32)
        larger = np.abs(totals) > np.abs(total)
        totals[larger] = np.nextafter(totals[larger], np.float32(0.0))
    return np.asarray(totals / np.float64(count))


def _least(shift: _Pool, simulated: Sequence[_Pool], rows: int, usual: float) -> float:
    """Return the least score of a shift beyond those of each order; 0 where one makes it.

    A shift that lies beyond some orders to one side, and beyond others to the other, is that of an
    order between them.

    Args:
        shift: of the output.
        simulated: the same of each order.
        rows: the number of rows.
        usual: the scatter that no right kernel's rows exceed. Few rows tell it badly.
    """
    sizes = [shift.size - order.size for order in simulated]
    is_between = min(sizes) * max(sizes) <= 0.0
    if shift.scatter < MIN_SCATTER or is_between or min(map(abs, sizes)) < MIN_DEVIATIONS:
        return 0.0

    def score(size: float, order: _Pool) -> float:
        # rows that scatter less than those of an order aren't added up so
        scatter = math.hypot(shift.scatter, min(order.scatter, shift.scatter))
        deviations = abs(size) * math.sqrt(rows)
        return max(score_of(deviations / scatter, rows - 1), deviations / max(scatter, usual))

    least = min(map(score, sizes, simulated))
    return least if least >= MIN_SCORE else 0.0


def _pool(errors: Array, weights: Array, pattern: Array) -> _Pool:
    """Return the multiple of a pattern (rows,) that is nearest to errors of some weights."""
    total = float((weights * pattern**2).sum())
    multiple = float((weights * pattern * errors).sum()) / total
    rest = float((weights * (errors - multiple * pattern) ** 2).sum())
    rows = len(errors)
    return _Pool(multiple * math.sqrt(total / rows), math.sqrt(rest / (rows - 1)))
