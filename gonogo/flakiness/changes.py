"""Change points over builds or days: of a number (log error), and of a rate."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo.flakiness.contrasts import Array, welch
from gonogo.flakiness.history import ChangePoint, Changes
from gonogo.flakiness.policy import POLICY
from gonogo.flakiness.rates import Rate, rate
from gonogo.flakiness.special import student_tail

# Points of a segment that is searched for two changes at once: twice the builds that the service
# reads. The windows grow with the square.
_MAX_WINDOWED = 128
# A variance below this share of the whole series' variance is rounding: sums of n squares of
# standardized numbers are exact to about n x 1e-16.
_CONSTANT = 1e-9
# Numbers whose spread is a smaller share of the largest one are equal, up to their last bits.
_EQUAL = 1e-12

Indices = NDArray[np.intp]
Split = tuple[int, float]
"""A place, with the p-value or the log odds of a change there."""
_lgamma = np.frompyfunc(math.lgamma, 1, 1)


def number_changes(
    points: Sequence[float | Iterable[float | None] | None] | Array, names: Sequence[str] = ()
) -> Changes:
    """Find the change points of a positive number, such as an error, over builds or days.

    points: a number each, or one per seed; names: theirs, else they are called by their numbers.

    Binary segmentation on log values: the best split, accepted by a test, then both sides again. A
    point's mean is one observation, since stable builds differ, too: Student's t of the best split
    or window decides (`build_splits`). With fewer than `change_builds` points, all seeds are
    observations, and Welch's p after Bonferroni over the places decides. The interval of the place
    is the central part of the likelihood over the splits of its neighborhood.

    Zeros count as half the smallest positive value. NaN, Inf and None are left out; points without
    a number are counted.
    """
    every = [_finite(point) for point in points]
    series = _Series([place for place, sample in enumerate(every) if len(sample)], names)
    samples = [every[place] for place in series.places]
    has_seeds = bool(samples) and min(map(len, samples)) >= POLICY.change_least
    enough = 2 if has_seeds else 2 * POLICY.change_least
    if len(samples) < enough:
        return series.changes([], len(points), enough)
    samples = _logarithms(samples)
    means = np.array([sample.mean() for sample in samples])
    changes = []
    for start, (cut, p), end in _between(_number_splits(samples), len(samples)):
        low, high = _interval(_place_likelihood(means[start:end]), POLICY.level)
        before, after = float(means[start:cut].mean()), float(means[cut:end].mean())
        factor = math.exp(min(700.0, abs(after - before)))
        what = f"{factor:.3g} times {'larger' if after > before else 'smaller'}"
        place = cut, start + low, start + high
        changes.append(series.change(what, place, POLICY.level, before, after, p=p))
    return series.changes(changes, len(points))


def rate_changes(points: Sequence[tuple[int, int]], names: Sequence[str] = ()) -> Changes:
    """Find the change points of a failure rate.

    points: (failures, runs) of each build or day; those without runs are left out.

    With Beta(prior, prior) rates the likelihood of counts is B(f+a, s+a)/B(a, a). The Bayes factor
    of one change against none is the mean over all places of the product of both sides over the
    whole. A change is accepted above the policy's odds: at most 1 in `rate_odds` stable series
    passes it (Markov). Raises ValueError for impossible counts.
    """
    for failures, runs in points:
        if not 0 <= failures <= runs:
            raise ValueError(f"impossible counts: {failures} failures of {runs} runs")
    series = _Series([place for place, (_, runs) in enumerate(points) if runs > 0], names)
    counts = np.array([points[place] for place in series.places], np.float64).reshape(-1, 2)
    if len(counts) < 2:
        return series.changes([], len(points), 2)

    def test(start: int, end: int) -> list[Split]:
        if end - start < 2:
            return []
        log_odds = _rate_odds(counts[start:end])
        odds = float(np.logaddexp.reduce(log_odds)) - math.log(len(log_odds))
        accepted = odds > math.log(POLICY.rate_odds)
        return [(start + int(log_odds.argmax()) + 1, odds)] if accepted else []

    changes = []
    for start, (cut, odds), end in _between(_segments(len(counts), test), len(counts)):
        log_odds = _rate_odds(counts[start:end])
        weights = np.exp(log_odds - log_odds.max())
        low, high = _interval(weights / weights.sum(), POLICY.rate_level)
        first, second = (
            rate(int(part[:, 0].sum()), int(part[:, 1].sum()), POLICY.rate_level)
            for part in (counts[start:cut], counts[cut:end])
        )
        before, after = (side.failures / side.runs for side in (first, second))
        what, place = f"from {first.words} to {second.words}", (cut, start + low, start + high)
        factor, both = math.exp(min(700.0, odds)), (first, second)
        level = POLICY.rate_level
        changes.append(series.change(what, place, level, before, after, odds=factor, rates=both))
    return series.changes(changes, len(points))


@dataclass(frozen=True)
class _Series:
    """The points that have numbers: their places among all, and all names."""

    places: Sequence[int]
    names: Sequence[str]

    def change(
        self,
        what: str,
        edges: tuple[int, int, int],
        level: float,
        before: float,
        after: float,
        *,
        p: float | None = None,
        odds: float | None = None,
        rates: tuple[Rate, Rate] | None = None,
    ) -> ChangePoint:
        """Return a change; edges: its place, and the ends of the interval, among these points."""
        place, low, high = (self.places[min(edge, len(self.places) - 1)] for edge in edges)
        at, *between = (
            self.names[index] if index < len(self.names) else f"point {index}"
            for index in (place, low, high)
        )
        details = [f"between {between[0]} and {between[1]}"] if between[0] != between[1] else []
        details += [] if p is None else [f"p = {p:.2g}"]
        words = f"{what} from {at} on" + (f" ({', '.join(details)})" if details else "")
        interval = (between[0], between[1]), place, low, high, level
        return ChangePoint(at, *interval, before, after, p, odds, rates, words)

    def changes(self, changes: Sequence[ChangePoint], points: int, enough: int = 0) -> Changes:
        """Return the changes; enough: how many points are needed, where there are fewer."""
        count = len(self.places)
        words = "; ".join(change.words for change in changes) or f"no change in {count} points"
        words = f"not enough points: {count} of {enough}" if enough else words
        return Changes(tuple(changes), count, points - count, words)


def _finite(point: Any) -> Array:
    values = point if isinstance(point, Iterable) else [point]
    array = np.array([math.nan if value is None else value for value in values], np.float64)
    return array[np.isfinite(array)]


def _logarithms(samples: list[Array]) -> list[Array]:
    """Return log |value|, with zeros at half the smallest positive value."""
    joined = np.abs(np.concatenate(samples))
    positive = joined[joined > 0]
    floor = math.log(float(positive.min())) - math.log(2) if len(positive) else 0.0
    logs = np.where(joined > 0, np.log(np.where(joined > 0, joined, 1.0)), floor)
    return np.split(logs, np.cumsum([len(sample) for sample in samples])[:-1])


def _between(cuts: Sequence[Split], count: int) -> Iterator[tuple[int, Split, int]]:
    """Yield each cut with the places of the one before it, or 0, and of the next, or `count`."""
    edges = [0, *(place for place, _ in cuts), count]
    yield from zip(edges, cuts, edges[2:], strict=False)


def _segments(count: int, test: Callable[[int, int], Sequence[Split]]) -> list[Split]:
    """Return the accepted splits of binary segmentation, in order; `test` returns a segment's."""
    splits: list[Split] = []
    open_ = [(0, count)]
    while open_:
        first, last = open_.pop()
        accepted = test(first, last)
        splits += accepted
        if accepted:
            open_ += pairwise([first, *(place for place, _ in accepted), last])
    return sorted(splits)


def _number_splits(samples: Sequence[Array]) -> list[Split]:
    builds, count = Builds.from_samples(samples), len(samples)

    def by_seeds(start: int, end: int) -> list[Split]:
        return _welch_splits(samples, start, end)

    def by_means(start: int, end: int) -> list[Split]:
        part = builds.part(start, end)
        if count >= POLICY.change_points or part.counts.min() < POLICY.change_least:
            return build_splits(part, start, POLICY.change_least)
        return _repeated_splits(part, start) or build_splits(part, start, POLICY.change_seeded)

    return _segments(count, by_seeds if count < POLICY.change_builds else by_means)


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


def _standardized(values: Array) -> Array | None:
    """Return the values with mean 0 and spread 1; None for a constant, up to the last bits."""
    centered = values - values.mean()
    spread = float(np.sqrt(np.square(centered).mean()))
    return None if spread <= _EQUAL * max(1.0, float(np.abs(values).max())) else centered / spread


class _Spread:
    """The standard errors of all groups of neighbors, from sums over the first 0, 1, ... points.

    The sums are those of the standardized means, of their squares, and of 1 / seeds.
    `seed_variance` is that of one seed within its point, in units of the points' variance, with
    `freedom` degrees.
    """

    def __init__(self, builds: Builds, scaled: Array) -> None:
        self.count = len(scaled)
        self.freedom = float((builds.counts - 1).sum())
        within = float(builds.squares.sum()) / self.freedom if self.freedom > 0 else 0.0
        self.seed_variance = within / float(builds.means.var())
        self.points, self.squares, self.shares = (
            np.concatenate([[0.0], np.cumsum(values)])
            for values in (scaled, np.square(scaled), 1 / builds.counts)
        )

    def errors(self, first: Indices, last: Indices) -> tuple[Array, Array, Array]:
        """Return three squared standard errors of the difference of the means of two groups.

        The groups are the points first..last-1 and the others. The errors are pooled, by group, and
        from the seeds.
        """
        inner, outer = last - first, self.count - (last - first)
        points, squares, shares = (
            sums[last] - sums[first] for sums in (self.points, self.squares, self.shares)
        )
        pooled, by_group = np.zeros(len(first)), np.zeros(len(first))
        for size, total, square in (
            (inner, points, squares),
            (outer, self.points[-1] - points, self.squares[-1] - squares),
        ):
            residual = np.maximum(square - total**2 / size, 0.0)
            pooled += residual
            by_group += residual / np.maximum(size - 1, 1) / size
        pooled *= (1 / inner + 1 / outer) / (self.count - 2)
        by_seed = self.seed_variance * (shares / inner**2 + (self.shares[-1] - shares) / outer**2)
        return pooled, by_group, by_seed

    def student(self, first: Indices, last: Indices) -> Array:
        """Return |t| of the two groups, by the largest error: inf where all three are zero."""
        error = np.maximum.reduce(self.errors(first, last))
        inside, inner = self.points[last] - self.points[first], last - first
        difference = np.abs(inside / inner - (self.points[-1] - inside) / (self.count - inner))
        constant = error <= _CONSTANT
        return np.where(constant, np.inf, difference / np.sqrt(np.where(constant, 1.0, error)))


def build_splits(builds: Builds, start: int, least: int) -> list[Split]:
    """Return the best change, or the best pair of changes there and back, if Student's test has it.

    builds: the points of one segment, which begins at `start`. least: points on either side of a
    change.

    Each candidate divides the points into two groups: before and after a place, or a window and
    the rest. t is the difference of the groups' mean points over its standard error, the largest
    of three estimates, so that none needs to hold alone:

    - the spread of points within their groups, pooled (Student): builds differ more than seeds;
    - the same by group (Welch): a group of outliers and others isn't a steady level;
    - the spread of the seeds within points, over their number: a few means agree by chance.

    p is the two-sided tail of t at n - 2 degrees of freedom, times the number of candidates of the
    kind, over the kind's share of the level (Bonferroni with weights). Where neither group varies,
    nor the seeds, t has no scale, and the arrangements decide: a / C(n, k) for k points in a group
    and the a arrangements that look like it. They alone decide where seeds don't vary and at most
    half of the points have numbers of their own: a few values have no tail.
    """
    count = len(builds.means)
    scaled = _standardized(builds.means)
    if count < max(2 * least, 3) or scaled is None:
        return []
    spread = _Spread(builds, scaled)
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
        accepted.append((min(1.0, p / share), [int(first[best]), int(last[best])]))
    return _accepted(*min(accepted), start)


def _repeated_splits(builds: Builds, start: int) -> list[Split]:
    """Return the change, or the pair of changes there and back, between builds that repeat numbers.

    Where all means before a change are equal, and all after it, each build gave the same numbers
    for the same seeds. Such builds don't differ by chance, so one build is enough on either side,
    and only seeds are noise: Student's t by their spread, times the number of splits and windows.
    """
    scaled = _standardized(builds.means)
    if not 3 <= len(builds.means) <= _MAX_WINDOWED or scaled is None:
        return []
    spread = _Spread(builds, scaled)
    first, last = np.triu_indices(spread.count, k=1)  # a window at the end is the split before it
    repeated = np.flatnonzero(spread.errors(first, last)[0] <= _CONSTANT)[:1]  # there is only one
    if spread.seed_variance <= _CONSTANT or not len(repeated):
        return []
    first, last = first[repeated], last[repeated]
    candidates = spread.count * (spread.count - 1) // 2
    p = student_tail(float(spread.student(first, last)[0]), spread.freedom) * candidates
    return _accepted(p, [int(first[0]), int(last[0])], start)


def _accepted(p: float, places: Sequence[int], start: int) -> list[Split]:
    """Return the edges of a group if the level allows them; one at the beginning is no change."""
    return [(start + at, p) for at in places if at] if p <= POLICY.change_student else []


def _windows(count: int, least: int) -> tuple[Indices, Indices]:
    """Return the first points of the windows inside a segment, and the points after their ends.

    A window can begin anywhere, so outliers side by side are more frequent than at an end: at 1 in
    20, three are next to each other in 1 of 140 series of 60 points. So it has `change_least`
    points even where `least` is less, and one more from `change_points` points on.
    """
    if count > _MAX_WINDOWED:
        return np.arange(0), np.arange(0)
    shortest = POLICY.change_least + (count >= POLICY.change_points)
    first, last = np.triu_indices(count, k=shortest)
    inner = (first >= least) & (last <= count - least)
    return first[inner], last[inner]


def _welch_splits(samples: Sequence[Array], start: int, end: int) -> list[Split]:
    """Return the best split of few points, by Welch's test on all their seeds."""
    has_seeds = min(len(sample) for sample in samples[start:end]) >= POLICY.change_least
    least = 1 if has_seeds else POLICY.change_least
    contrasts = []
    for place in range(start + least, end - least + 1):
        contrast = welch(np.concatenate(samples[start:place]), np.concatenate(samples[place:end]))
        contrasts.append((contrast.p, -abs(contrast.t), place))
    if not contrasts:
        return []
    p, _, place = min(contrasts)
    p = min(1.0, p * len(contrasts))
    return [(place, p)] if p <= POLICY.change_welch else []


def _place_likelihood(values: Array) -> Array:
    """Return the normalized likelihood of each split 1..n-1 of a segment with one change.

    Of equal normal errors with a flat prior it is RSS^((2-n)/2), with one mean on either side.
    """
    ready = _standardized(values)
    count = len(values)
    if ready is None or count < 3:
        return np.full(max(1, count - 1), 1.0 / max(1, count - 1))
    left = np.arange(1, count)
    sums, total = np.cumsum(ready)[:-1], float(ready.sum())
    residuals = (
        float(np.square(ready).sum()) - sums**2 / left - (total - sums) ** 2 / (count - left)
    )
    logs = (2 - count) / 2 * np.log(np.maximum(residuals, _EQUAL * count))
    weights = np.exp(logs - logs.max())
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def _interval(likelihood: Array, level: float) -> tuple[int, int]:
    """Return the central interval of the split that holds `level` of the likelihood."""
    grown = np.cumsum(likelihood)
    low = int(np.searchsorted(grown, (1 - level) / 2))
    high = int(np.searchsorted(grown, min(1 - (1 - level) / 2, grown[-1])))
    return low + 1, high + 1


def _rate_odds(counts: Array) -> Array:
    """Return the log Bayes factor of a change of a rate at each place against none."""
    prior = POLICY.prior
    failures, runs = np.cumsum(counts[:, 0]), np.cumsum(counts[:, 1])

    def evidence(bad: Array, of: Array) -> Array:
        logs = _lgamma(bad + prior) + _lgamma(of - bad + prior) - _lgamma(of + 2 * prior)
        return np.asarray(logs, dtype=np.float64)

    whole = float(evidence(failures[-1:], runs[-1:])[0])
    scale = 2 * math.lgamma(prior) - math.lgamma(2 * prior)
    right = evidence(failures[-1] - failures[:-1], runs[-1] - runs[:-1])
    return evidence(failures[:-1], runs[:-1]) + right - whole - scale
