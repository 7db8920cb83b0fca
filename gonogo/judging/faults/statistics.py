"""Wrong statistics of rows: the mean that a kernel subtracts and the rstd that it multiplies by."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from gonogo.judging.faults.fault import MIN_EVIDENCE, SMALL, Fault, Residual
from gonogo.numerics.expectation import Array

TILE = 32
EPSILONS = (1e-12, 1e-8, 1e-6, 1e-5, 1e-3)
"""The usual epsilons, one of which a kernel may have instead of its own."""
DECADES = range(-12, 1)
"""Powers of ten from which any other epsilon is fitted."""
ROUNDS, STEP, LONGEST = 6, 1e-3, 4.0
"""The rounds of that fit, the relative step of its derivatives, and the largest factor a round."""


@dataclass(frozen=True)
class Statistics:
    """The mean that is subtracted from rows, and rstd, (rows, 1); `words` is the fault.

    is_padded: whether sums count padding, of which there may be many times as much as of the row.
    """

    words: str
    mean: Array
    rstd: Array
    is_padded: bool = False


def left_out(features: int, *more: int) -> list[int]:
    """Return the numbers of last columns that a loop over tiles may leave out of a sum.

    more: numbers that the data show (see tail).
    """
    return sorted({TILE, features % TILE or TILE, 3, *more} & set(range(1, features)))


def tail(terms: Array, missing: Array) -> int:
    """Return how many last columns of `terms` (rows, N) have sums nearest to `missing` (rows, 1).

    A loop has a width of its own: of a vector, a warp, a block of threads.
    """
    sums = np.cumsum(terms[:, ::-1], axis=1)
    return 1 + int(np.argmin(np.square(sums - missing).sum(axis=0)))


def fitted_epsilon(
    effect: Callable[[float], Array], epsilon: float, residual: Residual
) -> Fault | None:
    """Return the fault of another epsilon, of the size that fits best; None: there is none.

    effect: from an epsilon to what it adds to the output.
    """
    if epsilon <= 0.0:
        return None

    def energy(value: float) -> float:
        return residual.without(effect(value)).energy

    value = min((10.0**decade for decade in DECADES), key=energy)
    for _ in range(ROUNDS):
        here = effect(value)
        slope = (effect(value * (1.0 + STEP)) - here) / STEP
        weighted = residual.weight * slope
        step = ((residual.error - here) * weighted).sum() / max((slope * weighted).sum(), SMALL)
        value *= float(np.clip(1.0 + step, 1.0 / LONGEST, LONGEST))
    return Fault(f"epsilon is about {value:.2g}", effect(value), 1)


def likelier_of(
    common: Iterable[Fault],
    other: Fault | None,
    residual: Residual,
    left: Callable[[Array], float] | None = None,
) -> list[Fault]:
    """Return a common factor or another epsilon, of which one gives the other: the likelier one.

    In rows of equal variance they are the same; then it is called a factor.

    left: the energy of what an effect leaves, where that isn't all error: rounding a row's rstd
        makes a factor differ from row to row, as an epsilon does.
    """
    faults = list(common)
    if other is None or not faults or not np.isfinite(other.effect).all():
        return faults
    if left is None:
        least = min(residual.without(fault.effect).energy for fault in faults)
        is_better = residual.without(other.effect).energy < least - 5.0 * residual.deviation
    else:
        least = min(left(residual.error - fault.effect) for fault in faults)
        is_better = residual.evidence(least, left(residual.error - other.effect)) > MIN_EVIDENCE
    return [other] if is_better else faults


def right(x: Array, epsilon: float, *, centered: bool = True) -> Statistics:
    """Return the right statistics of x (rows, N)."""
    mean = x.mean(axis=1, keepdims=True) if centered else np.zeros((len(x), 1))
    return Statistics("", mean, _rstd(((x - mean) ** 2).mean(axis=1, keepdims=True), epsilon))


def wrong(
    x: Array,
    epsilon: float,
    *,
    centered: bool = True,
    of_mean: tuple[int, ...] = (),
    of_squares: tuple[int, ...] = (),
) -> Iterator[Statistics]:
    """Yield the faults of the statistics of x (rows, N).

    of_mean, of_squares: numbers of last columns that the data show as left out of the mean, and of
    the variance.
    """
    noun = "variance" if centered else "mean square"
    features = x.shape[1]
    of_rows = right(x, epsilon, centered=centered)
    mean, rstd = of_rows.mean, of_rows.rstd
    squares = (x - mean) ** 2
    variance = squares.mean(axis=1, keepdims=True)
    if features > 1:
        short = variance * features / (features - 1)
        yield Statistics(f"the {noun} divides by N - 1", mean, _rstd(short, epsilon))
    if centered:
        about_0 = (x**2).mean(axis=1, keepdims=True)
        yield Statistics("the variance is taken about 0", mean, _rstd(about_0, epsilon))
        yield Statistics("the mean is missing", 0 * mean, rstd)
        yield Statistics("the mean is subtracted twice", 2 * mean, rstd)
        if features > 1:
            yield _about("the mean divides by N - 1", x, mean * features / (features - 1), epsilon)
    else:
        centers = x.mean(axis=1, keepdims=True)
        yield _about("the mean is subtracted", x, centers, epsilon)
    for width in left_out(features, *of_squares):
        columns = slice(features - width, None)
        without = variance - squares[:, columns].sum(axis=1, keepdims=True) / features
        name = f"the last {width} columns"
        yield Statistics(f"the {noun} leaves out {name}", mean, _rstd(without, epsilon))
    if centered:
        for width in left_out(features, *of_mean):
            columns = slice(features - width, None)
            name = f"the last {width} columns"
            part = mean - x[:, columns].sum(axis=1, keepdims=True) / features
            yield _about(f"the mean leaves out {name}", x, part, epsilon)
    yield from of_other_rows(of_rows, centered=centered)
    yield Statistics(f"the {noun} leaves epsilon out", mean, _rstd(variance, 0.0))
    with np.errstate(divide="ignore"):
        outside = 1.0 / (np.sqrt(variance) + epsilon)
    yield Statistics("epsilon is added outside the root", mean, outside)
    for other in EPSILONS:
        if other != epsilon:
            yield Statistics(f"epsilon is {other:g}", mean, _rstd(variance, other))


def wrong_or_given(
    x: Array, epsilon: float, given: Statistics | None, *, centered: bool
) -> Iterator[Statistics]:
    """Return the faults of statistics that a kernel computes of x, or of those that it is given."""
    if given is None:
        return wrong(x, epsilon, centered=centered)
    return of_other_rows(given, centered=centered)


def of_padded(words: str, mean: Array, variance: Array, epsilon: float) -> Statistics:
    """Return the statistics of rows whose mean or variance counts padding."""
    return Statistics(words, mean, _rstd(variance, epsilon), is_padded=True)


def of_other_rows(of_rows: Statistics, *, centered: bool = True) -> Iterator[Statistics]:
    """Yield the faults of statistics that are those of neighboring rows."""
    mean, rstd = of_rows.mean, of_rows.rstd
    for shift, place in ((1, "before"), (-1, "after")):
        if len(rstd) > 1:
            words = f"each row has the rstd of the row {place} it"
            yield Statistics(words, mean, np.roll(rstd, shift, axis=0))
            if centered:
                words = f"each row has the mean of the row {place} it"
                yield Statistics(words, np.roll(mean, shift, axis=0), rstd)


def _about(words: str, x: Array, mean: Array, epsilon: float) -> Statistics:
    """Return the statistics with a wrong mean, about which the variance is taken."""
    return Statistics(words, mean, _rstd(((x - mean) ** 2).mean(axis=1, keepdims=True), epsilon))


def _rstd(variance: Array, epsilon: float) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(1.0 / np.sqrt(variance + epsilon))
