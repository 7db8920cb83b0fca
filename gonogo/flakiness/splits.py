"""The tests behind the change points: the best split of a series, and its significance."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from gonogo.flakiness.contrasts import Array, welch
from gonogo.flakiness.policy import POLICY
from gonogo.flakiness.special import student_tail

_lgamma = np.frompyfunc(math.lgamma, 1, 1)
_BATCHES = (99, 900)
"""Permutations drawn at a time: few first, since most series are stable."""
_MAX_WINDOWED = 128
"""Points of a segment that is searched for two changes at once: twice the builds that the service
reads. The windows grow with the square."""
_CONSTANT = 1e-9
"""A variance below this share of the whole series' variance is rounding: sums of n squares of
standardized numbers are exact to about n x 1e-16."""

_EQUAL = 1e-12
"""Numbers whose spread is a smaller share of the largest one are equal, up to their last bits."""
_TIE = 1e-9
"""A residual of a permuted series that is larger by less is as small."""

Indices = NDArray[np.intp]
Split = tuple[int, float]
"""A place, with the p-value or the log odds of a change there."""


@dataclass(frozen=True)
class Builds:
    """The seeds of each point, reduced to what a test of means needs. Arrays of length points."""

    means: Array
    squares: Array
    """The sum of squares of a point's seeds about their mean."""
    counts: Array
    """The number of seeds."""

    def part(self, start: int, end: int) -> Builds:
        """Return the points from `start` up to `end`, which is left out."""
        return Builds(self.means[start:end], self.squares[start:end], self.counts[start:end])

    @classmethod
    def from_samples(cls, samples: Sequence[Array]) -> Builds:
        """Return the builds of samples, none of which is empty.

        Numbers above 1 are in units of the largest one, so that squares of huge ones stay finite.
        """
        numbers = np.concatenate(samples)
        numbers = numbers / max(1.0, float(np.abs(numbers).max()))
        counts = np.array([len(sample) for sample in samples])
        first = np.cumsum(counts) - counts
        means = np.add.reduceat(numbers, first) / counts
        squares = np.add.reduceat(np.square(numbers - np.repeat(means, counts)), first)
        return cls(means, squares, counts.astype(np.float64))


def segments(
    start: int, end: int, test: Callable[[int, int], Sequence[Split]]
) -> list[tuple[int, float]]:
    """Return the accepted splits (place, p or odds) of binary segmentation, in order.

    test: returns the accepted splits of a segment in order, none where it is stable. It uses a
    stack, so that the depth isn't limited by recursion.
    """
    splits: list[Split] = []
    open_ = [(start, end)]
    while open_:
        first, last = open_.pop()
        accepted = test(first, last)
        splits += accepted
        if accepted:
            edges = [first, *(place for place, _ in accepted), last]
            open_ += pairwise(edges)
    return sorted(splits)


def residuals(rows: Array, least: int) -> Array:
    """Return the residual sums of squares (series, splits) of every allowed split of each row.

    The model is one mean on either side of the split.
    """
    count = rows.shape[1]
    sums = np.cumsum(rows, axis=1)[:, least - 1 : count - least]
    left = np.arange(least, count - least + 1)
    total, square = rows.sum(axis=1, keepdims=True), np.square(rows).sum(axis=1, keepdims=True)
    return np.asarray(
        square - sums**2 / left - (total - sums) ** 2 / (count - left), dtype=np.float64
    )


def standardized(values: Array) -> Array | None:
    """Return the values with mean 0 and spread 1; None for a constant, up to the last bits."""
    centered = values - values.mean()
    spread = float(np.sqrt(np.square(centered).mean()))
    return None if spread <= _EQUAL * max(1.0, float(np.abs(values).max())) else centered / spread


def mean_split(values: Array, start: int) -> Split | None:
    """Return the best split of one mean per point, if permuted points rarely split as well.

    p is at least 2 / C(n, k) for k points on the shorter side: 3 of 16 points can't pass
    `change_alarm`, and 4 of 18 pass it only with luck. `build_splits` has no such bound.
    """
    least = POLICY.change_least
    if len(values) < max(2 * least, 8):
        return None
    ready = standardized(values)
    if ready is None:
        return None
    left = residuals(ready[None, :], least)[0]
    best, place = float(left.min()), int(left.argmin()) + least
    rng = np.random.Generator(np.random.Philox(len(values)))
    beaten = drawn = 0
    sizes = [*_BATCHES]
    while drawn < POLICY.change_permutations:
        size = min(
            sizes.pop(0) if sizes else 1000,
            POLICY.change_permutations - drawn,
            max(1, 4_000_000 // len(values)),
        )
        permuted = rng.permuted(np.broadcast_to(ready, (size, len(ready))), axis=1)
        beaten += int((residuals(permuted, least).min(axis=1) <= best + _TIE).sum())
        drawn += size
        if beaten + 1 > POLICY.change_alarm * (POLICY.change_permutations + 1):
            # the other permutations can't change that (Besag and Clifford, Biometrika 78, 1991)
            return None
    return start + place, (beaten + 1) / (drawn + 1)


def exchangeable(builds: Builds, place: int) -> bool:
    """Return whether the points on both sides of a split may be permuted.

    Means of fewer seeds spread more. Where the last points of a series have few seeds, few
    permutations put them together again, and chance looks like a change. So points with unequal
    numbers of seeds are exchangeable where they spread at least as much as their seeds explain.
    """
    scaled = standardized(builds.means)
    if scaled is None or builds.counts.min() == builds.counts.max():
        return True
    pooled, _, by_seed = _Spread.of_builds(builds, scaled).errors(np.array([0]), np.array([place]))
    return bool(by_seed[0] <= pooled[0])


@dataclass(frozen=True)
class _Spread:
    """The sums that give the standard errors of all groups of neighbors.

    `points`, `squares` and `shares` are the sums over the first 0, 1, ... points of the
    standardized means, of their squares, and of 1 / seeds.
    """

    points: Array
    squares: Array
    shares: Array
    seed_variance: float
    """The variance of one seed within its point, in units of the points' variance."""
    freedom: float
    """The degrees of freedom of `seed_variance`."""

    @classmethod
    def of_builds(cls, builds: Builds, scaled: Array) -> _Spread:
        """Return the spread of builds, whose standardized means are `scaled`."""
        freedom = float((builds.counts - 1).sum())
        within = float(builds.squares.sum()) / freedom if freedom > 0 else 0.0
        points, squares, shares = (
            np.concatenate([[0.0], np.cumsum(values)])
            for values in (scaled, np.square(scaled), 1 / builds.counts)
        )
        return cls(points, squares, shares, within / float(builds.means.var()), freedom)

    def errors(self, first: Indices, last: Indices) -> tuple[Array, Array, Array]:
        """Return three squared standard errors of the difference of the means of two groups.

        The groups are the points first..last-1 and the others, one pair for each element. The
        errors are pooled, by group, and from the seeds.
        """
        count = len(self.points) - 1
        inner, outer = last - first, count - (last - first)
        pooled = np.zeros(len(first))
        by_group = np.zeros(len(first))
        for size, points, squares in (
            (inner, *self._inside(first, last)),
            (outer, *self._outside(first, last)),
        ):
            residual = np.maximum(squares - points**2 / size, 0.0)
            pooled += residual
            by_group += residual / np.maximum(size - 1, 1) / size
        pooled *= (1 / inner + 1 / outer) / (count - 2)
        shares = self.shares[last] - self.shares[first]
        by_seed = self.seed_variance * (shares / inner**2 + (self.shares[-1] - shares) / outer**2)
        return pooled, by_group, by_seed

    def student(self, first: Indices, last: Indices) -> Array:
        """Return |t| of the two groups, by the largest error: inf where all three are zero."""
        error = np.maximum.reduce(self.errors(first, last))
        inside, outside = self._inside(first, last)[0], self._outside(first, last)[0]
        inner, count = last - first, len(self.points) - 1
        difference = np.abs(inside / inner - outside / (count - inner))
        constant = error <= _CONSTANT
        return np.where(constant, np.inf, difference / np.sqrt(np.where(constant, 1.0, error)))

    def _inside(self, first: Indices, last: Indices) -> tuple[Array, Array]:
        return self.points[last] - self.points[first], self.squares[last] - self.squares[first]

    def _outside(self, first: Indices, last: Indices) -> tuple[Array, Array]:
        points, squares = self._inside(first, last)
        return self.points[-1] - points, self.squares[-1] - squares


def build_splits(builds: Builds, start: int, least: int) -> list[Split]:
    """Return the best change, or the best pair of changes there and back, if Student's test has it.

    builds: the points of one segment, which begins at `start`. least: points on either side of a
    change.

    Each candidate divides the points into two groups: before and after a place, or a window and
    the rest. t is the difference of the groups' mean points over its standard error, which is the
    largest of three estimates, so that none needs to hold alone:

    - the spread of points within their groups, pooled (Student): builds differ more than seeds;
    - the same by group (Welch): a group of outliers and others isn't a steady level;
    - the spread of the seeds within points, over their number: a few means agree by chance.

    p is the two-sided tail of t at n - 2 degrees of freedom, times the number of candidates of the
    kind, over the kind's share of the level (Bonferroni with weights). Where neither group varies,
    nor the seeds, t has no scale, and the exact permutation test decides: a / C(n, k) for k points
    in a group and the a arrangements that look like it. It alone decides where seeds don't vary
    and at most half of the points have numbers of their own: a few values have no tail.
    """
    count = len(builds.means)
    scaled = standardized(builds.means)
    if count < max(2 * least, 3) or scaled is None:
        return []
    spread = _Spread.of_builds(builds, scaled)
    few_values = spread.seed_variance <= _CONSTANT and 2 * len(np.unique(scaled.round(9))) <= count
    after = np.arange(least, count - least + 1)
    accepted: list[tuple[float, list[int]]] = []
    for first, last, share in (
        (np.zeros_like(after), after, POLICY.change_single),
        (*_windows(count, least), 1 - POLICY.change_single),
    ):
        if not len(last):
            continue
        t = spread.student(first, last)
        if few_values:
            t = np.where(np.isinf(t), t, 0.0)
        best = int(t.argmax())
        inside = int(last[best] - first[best])
        if math.isinf(t[best]):
            alike = 2 if first[best] == 0 else count - inside + 1
            p = alike / math.comb(count, inside)
        else:
            p = student_tail(float(t[best]), count - 2) * len(t)
        places = [int(edge[best]) for edge in (first, last) if edge[best] > 0]
        accepted.append((min(1.0, p / share), places))
    p, places = min(accepted)
    return [(start + place, p) for place in places] if p <= POLICY.change_student else []


def repeated_splits(builds: Builds, start: int) -> list[Split]:
    """Return the change, or the pair of changes there and back, between builds that repeat numbers.

    builds: the points of one segment, which begins at `start`. Where all means before a change are
    equal, and all after it, each build gave the same numbers for the same seeds. Such builds don't
    differ by chance, so one build is enough on either side, and only seeds are noise: Student's t
    by their spread and degrees of freedom, times the number of splits and windows.
    """
    count = len(builds.means)
    scaled = standardized(builds.means)
    if not 3 <= count <= _MAX_WINDOWED or scaled is None:
        return []
    spread = _Spread.of_builds(builds, scaled)
    if spread.seed_variance <= _CONSTANT:
        return []
    first, last = np.triu_indices(count, k=1)  # a window at the end is the split before it
    pooled = spread.errors(first, last)[0]
    repeated = np.flatnonzero(pooled <= _CONSTANT)
    if not len(repeated):
        return []
    best = repeated[0]  # there is only one division into two constants
    t = float(spread.student(first, last)[best])
    p = student_tail(t, spread.freedom) * len(first)
    edges = [int(edge[best]) for edge in (first, last) if edge[best] > 0]
    return [(start + place, p) for place in edges] if p <= POLICY.change_student else []


def _windows(count: int, least: int) -> tuple[Indices, Indices]:
    """Return the first points of the windows inside a segment, and the points after their ends.

    A window can begin anywhere, so outliers side by side are more frequent than at an end: at 1 in
    20, three are next to each other in 1 of 140 series of 60 points. So it has `change_least`
    points even where `least` is less, and one more from `change_points` points on. There are none
    in a segment of more than 128 points.
    """
    if count > _MAX_WINDOWED:
        return np.arange(0), np.arange(0)
    shortest = POLICY.change_least + (count >= POLICY.change_points)
    first, last = np.triu_indices(count, k=shortest)
    inner = (first >= least) & (last <= count - least)
    return first[inner], last[inner]


def welch_split(samples: Sequence[Array], start: int, end: int) -> Split | None:
    """Return the best split of few points, by Welch's test on all their seeds."""
    least = (
        1
        if min(len(sample) for sample in samples[start:end]) >= POLICY.change_least
        else POLICY.change_least
    )
    places = range(start + least, end - least + 1)
    if not places:
        return None
    contrasts = []
    for place in places:
        contrast = welch(np.concatenate(samples[start:place]), np.concatenate(samples[place:end]))
        contrasts.append((contrast.p, -abs(contrast.t or 0.0), place))
    p, _, place = min(contrasts)
    p = min(1.0, p * len(contrasts))
    return (place, p) if p <= POLICY.change_welch else None


def place_likelihood(values: Array) -> Array:
    """Return the normalized likelihood of each split 1..n-1 of a segment with one change."""
    ready = standardized(values)
    count = len(values)
    if ready is None or count < 3:
        return np.full(max(1, count - 1), 1.0 / max(1, count - 1))
    left = np.maximum(residuals(ready[None, :], 1)[0], _EQUAL * count)
    logs = (2 - count) / 2 * np.log(left)
    weights = np.exp(logs - logs.max())
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def interval(likelihood: Array, level: float) -> tuple[int, int]:
    """Return the central interval of the split that holds `level` of the likelihood.

    A split of 1 is before the second point.
    """
    grown = np.cumsum(likelihood)
    low = int(np.searchsorted(grown, (1 - level) / 2))
    high = int(np.searchsorted(grown, min(1 - (1 - level) / 2, grown[-1])))
    return low + 1, high + 1


def rate_splits(counts: Array, prior: float) -> Array:
    """Return the log Bayes factor of a change at each place against none."""
    failures, runs = np.cumsum(counts[:, 0]), np.cumsum(counts[:, 1])
    all_failures, all_runs = failures[-1], runs[-1]

    def evidence(bad: Array, of: Array) -> Array:
        return np.asarray(
            _lgamma(bad + prior) + _lgamma(of - bad + prior) - _lgamma(of + 2 * prior),
            dtype=np.float64,
        )

    whole = float(evidence(np.array([all_failures]), np.array([all_runs]))[0])
    scale = 2 * math.lgamma(prior) - math.lgamma(2 * prior)
    left = evidence(failures[:-1], runs[:-1])
    right = evidence(all_failures - failures[:-1], all_runs - runs[:-1])
    return np.asarray(left + right - whole - scale, dtype=np.float64)
