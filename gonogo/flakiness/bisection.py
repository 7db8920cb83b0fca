"""Noisy bisection: find the build that changed how often a test fails, from noisy runs.

Each run says red or green (or wrong and right). The state is a function of the counts alone: an
interrupted search continues from the stored counts, and runs may come back in any order. After R.
Waeber, P. Frazier, S. Henderson, "Bisection search with noisy responses" (SIAM J. Control Optim.
51, 2013), but with unknown rates, which are integrated out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo.flakiness.bisecting import Expect, Stage
from gonogo.flakiness.policy import POLICY

Array = NDArray[np.float64]
Tally = tuple[int, int]
"""One build's (bad runs, runs)."""

_NODES = 24
"""Grid points of the rate on either side in the integral, denser near 0 and 1; 32 give the same
run lengths within 1%."""
_ERROR = 1e-4
"""The probability that a run of a sharp signal is wrong: false alarms of the policy of verdicts
are rarer."""
_MAX_CELLS = 100_000
_MIN_BRANCHES = 4
"""Branches of the outcomes of runs in flight that are followed at least; above _MAX_CELLS
numbers the least likely branches are dropped."""
_TINY = 1e-300
_TIE = 1e-9
"""Gains of builds that differ by less are alike."""


@dataclass(frozen=True)
class SearchState:
    """The state of the search for one change between two builds."""

    stage: Stage
    low: int
    high: int
    """The builds that bound the search, as places in the series."""
    posterior: tuple[float, ...]
    """Probability that the first changed build is low + 1, low + 2, ..., high, if anything
    changed."""
    evidence: float
    """Log of how much likelier the runs are with a change than without one."""
    culprit: int | None
    """The likeliest first changed build, once two have been run."""
    probability: float
    before: float
    after: float
    """Mean rates of bad runs on both sides of the change."""
    next_builds: tuple[int, ...]
    """Builds to run next, the most informative first; empty when the search is over, or when the
    runs in flight are enough."""

    @property
    def located(self) -> bool:
        """Return whether the place of the change is found."""
        return self.stage is Stage.located


@dataclass(frozen=True)
class _Model:
    """The prior: a weight for each pair of rates (before, after), and for each unchanged rate."""

    rates: Array
    pairs: Array
    """(before, after), places in `rates`; 0 where the order is not the expected one."""
    same: Array


@dataclass(frozen=True)
class _Belief:
    """Likelihoods of the runs, of shape (place, rate): before the place, and from it on.

    The joint posterior of (place, rate before, rate after) is before x pairs x after; it is never
    written out, which for 128 builds saves a factor of ten in memory. Both are known up to a
    factor: the sum over everything is the weight of the belief.
    """

    before: Array
    after: Array

    def bad(self, model: _Model) -> tuple[Array, Array]:
        """Return the weight of each place, and its weight times the mean rates of bad runs.

        The second array has the shape (2, place): before and after the place.
        """
        before = self.before * (self.after @ model.pairs.T)
        after = self.after * (self.before @ model.pairs)
        return before.sum(axis=1), np.stack([before @ model.rates, after @ model.rates])


@cache
def _model(expect: Expect, sharp: bool) -> _Model:
    """Return Beta priors of the better and the worse side, in the expected order."""
    u = (np.arange(_NODES) + 0.5) / _NODES  # the rate is sin^2(pi u / 2)
    rates = np.concatenate([[_ERROR], np.sin(np.pi * u / 2) ** 2, [1 - _ERROR]])
    better = np.sin(np.pi * u / 2) ** (2 * POLICY.bisect_bad - 1) * np.cos(np.pi * u / 2) ** (
        2 * POLICY.bisect_good - 1
    )
    worse = np.sin(np.pi * u)  # uniform, in u
    better, worse = (
        np.concatenate([[0.0], weights / weights.sum(), [0.0]]) for weights in (better, worse)
    )
    regression = np.triu(np.outer(better, worse), 1)  # the rate before is below the one after
    regression /= regression.sum()
    same = (better + worse) / 2
    if sharp:
        regression *= 1 - POLICY.bisect_sharp
        regression[0, -1] = POLICY.bisect_sharp
        same *= 1 - POLICY.bisect_sharp
        same[[0, -1]] = POLICY.bisect_sharp / 2
    either = (regression + regression.T) / 2
    pairs = {Expect.regression: regression, Expect.fix: regression.T, Expect.either: either}
    return _Model(rates, pairs[expect], same)


def search_state(
    tallies: Sequence[Tally],
    *,
    expect: Expect = Expect.either,
    sharp: bool = False,
    pending: Sequence[int] = (),
    want: int = 1,
    low: int = 0,
    high: int | None = None,
) -> SearchState:
    """Return the state of the search between the builds `low` and `high`.

    It names the builds to run next. tallies: of every build of the series, in its order. pending:
    builds of runs in flight, whose outcomes are averaged over. want: how many builds to name.

    The first and the last build run in turn until a change is `bisect_gate` times likelier than
    none (Wald's test against a mixture of rates). Then the search runs the build that is expected
    to leave the least entropy of the place. At `bisect_stop` the builds on both sides of the place
    run, until no further run of them is worth its cost, `bisect_cost`. The search can go back to an
    earlier stage. Raises ValueError for impossible counts or builds.
    """
    high = len(tallies) - 1 if high is None else high
    if not 0 <= low <= high < len(tallies) or any(not 0 <= bad <= runs for bad, runs in tallies):
        raise ValueError(
            f"no search between builds {low} and {high} of {len(tallies)}, or impossible counts"
        )
    if low == high:
        return SearchState(Stage.untestable, low, high, (), 0.0, None, 0.0, 0.5, 0.5, ())
    model = _model(expect, sharp)
    counts = np.array(tallies[low : high + 1], dtype=np.float64)
    belief, evidence = _believed(model, counts)
    places, bad = belief.bad(model)
    in_flight = [build - low for build in pending if low <= build <= high]
    runs = counts[:, 1].copy()
    for place in in_flight:
        runs[place] += 1
    best = int(places.argmax())
    before, after = (float(mean) for mean in bad[:, best] / places[best])
    stage, needed = _stage(places, best, (before, after), counts, evidence)
    next_builds: list[int] = []
    if stage is Stage.gate:
        for _ in range(want):
            next_builds.append(0 if runs[0] <= runs[-1] else len(runs) - 1)
            runs[next_builds[-1]] += 1
    elif stage is Stage.verify:
        next_builds = [place for place in needed if place not in in_flight][:want]
    elif stage is Stage.search and want:
        # a sharp signal's rates are known, so boldness gains nothing
        if not sharp and counts[:, 1].sum() % POLICY.bisect_calm:
            belief, _ = _believed(model, POLICY.bisect_boldness * counts)
        tree = _Tree(model, belief, in_flight)
        next_builds.append(tree.best())
        while len(next_builds) < want:
            tree.follow(next_builds[-1])
            next_builds.append(tree.best())
    return SearchState(
        stage,
        low,
        high,
        tuple(float(weight) for weight in places),
        evidence,
        low + best + 1,
        float(places[best]),
        before,
        after,
        tuple(low + place for place in next_builds),
    )


def search_states(
    tallies: Sequence[Tally],
    *,
    expect: Expect = Expect.either,
    sharp: bool = False,
    pending: Sequence[int] = (),
    want: int = 1,
    several: bool = True,
) -> tuple[SearchState, ...]:
    """Return the state of the search in the whole series, and in its parts.

    Where `several` changes are searched for, each part on either side of a located change is
    searched, too, without an expected order. A change and its reversal within one part stay unseen,
    because the ends of the part are alike.
    """
    first = search_state(tallies, expect=expect, sharp=sharp, pending=pending, want=want)
    states = [first]
    open_parts = [first]
    while several and open_parts:
        part = open_parts.pop(0)
        if not part.located or part.culprit is None:
            continue
        for low, high in ((part.low, part.culprit - 1), (part.culprit, part.high)):
            if low < high:
                limits: Any = {"low": low, "high": high, "pending": pending, "want": want}
                states.append(search_state(tallies, sharp=sharp, **limits))
                open_parts.append(states[-1])
    return tuple(states)


def _believed(model: _Model, counts: Array) -> tuple[_Belief, float]:
    """Return the posterior, of weight 1, and the log evidence of a change against none."""
    logs = np.stack([np.log(model.rates), np.log1p(-model.rates)])
    total = counts.sum(axis=0)
    before = np.cumsum(counts, axis=0)[:-1]
    both = []
    scale = np.zeros(len(before))
    for part in (before, total - before):
        table = np.stack([part[:, 0], part[:, 1] - part[:, 0]], axis=1) @ logs
        top = table.max(axis=1)
        scale += top
        both.append(np.exp(table - top[:, None]))
    none = np.array([total[0], total[1] - total[0]]) @ logs
    peak = float(none.max())
    alone = peak + math.log(float(np.exp(none - peak) @ model.same))
    top = float(scale.max())
    belief = _Belief(both[0] * np.exp(scale - top)[:, None], both[1])
    whole = float(belief.bad(model)[0].sum())
    if whole < _TINY:
        # The runs contradict the expected order so strongly that no pair of rates remains: no
        # place is likelier than another, and no change is likely.
        belief = _Belief(np.ones_like(both[0]), np.ones_like(both[1]))
        return _Belief(belief.before / belief.bad(model)[0].sum(), belief.after), math.log(_TINY)
    return _Belief(belief.before / whole, belief.after), top + math.log(whole / len(before)) - alone


def _stage(
    places: Array, best: int, rates: tuple[float, float], counts: Array, evidence: float
) -> tuple[Stage, list[int]]:
    """Return the stage, and the builds to run before the place is believed, most needed first."""
    bound = math.log(POLICY.bisect_stop / (1 - POLICY.bisect_stop))
    if not (counts[0, 1] and counts[-1, 1]) or -bound < evidence < math.log(POLICY.bisect_gate):
        return Stage.gate, []
    if evidence <= -bound:
        return Stage.no_change, []
    if places[best] < POLICY.bisect_stop or evidence < bound:
        return Stage.search, []
    # Build best is the last unchanged one: its runs are evidence against all earlier places. Build
    # best + 1, the first changed one, is evidence against all later ones. A run that gives D nats
    # shrinks a wrong belief of mass e by the factor exp(-D), so it saves e (1 - exp(-D)).
    before, after = rates
    saved = {
        best: float(places[:best].sum()) * -math.expm1(-_divergence(before, after)),
        best + 1: float(places[best + 1 :].sum()) * -math.expm1(-_divergence(after, before)),
    }
    cost = POLICY.bisect_cost
    needed = [build for build in saved if saved[build] > cost or not counts[build, 1]]
    needed.sort(key=lambda build: (bool(counts[build, 1]), -saved[build]))
    return (Stage.verify, needed) if needed else (Stage.located, [])


class _Tree:
    """Possible outcomes of the runs in flight: branches of a posterior, weighted by probability."""

    def __init__(self, model: _Model, belief: _Belief, in_flight: Sequence[int]) -> None:
        self.model, self.branches = model, [belief]
        for place in in_flight:
            self.follow(place)

    def follow(self, place: int) -> None:
        """Split every branch by the outcome of a run of that build."""
        count = len(self.branches[0].before)
        # for these places the run is after the change
        behind = (np.arange(1, count + 1) <= place)[:, None]
        outcomes = [
            (np.where(behind, 1, rate), np.where(behind, rate, 1))
            for rate in (self.model.rates, 1 - self.model.rates)
        ]
        split = [
            _Belief(branch.before * before, branch.after * after)
            for branch in self.branches
            for before, after in outcomes
        ]
        limit = max(_MIN_BRANCHES, _MAX_CELLS // (2 * split[0].before.size))
        if len(split) > limit:
            split.sort(key=lambda branch: -float(branch.bad(self.model)[0].sum()))
        self.branches = split[:limit]

    def best(self) -> int:
        """Return the build whose run is expected to tell most about the place.

        Ties go to the first build.
        """
        gain = sum(
            (_gain(*branch.bad(self.model)) for branch in self.branches),
            np.zeros(len(self.branches[0].before) + 1),
        )
        return int(np.argmax(gain >= gain.max() - _TIE))


def _gain(places: Array, bad: Array) -> Array:
    """Return the expected information of a run of each build about the place, in nats.

    It is multiplied by the weight of the branch. It is the entropy of the outcome minus the entropy
    that remains where the place is known. It is homogeneous, so nothing has to be normalized.
    """
    outcomes = (bad, places - bad)
    whole = float(places.sum())
    gain = sum(_entropy(_over(*part)) - _over(*_entropy(part)) for part in outcomes)
    return np.asarray(gain - _entropy(np.array(whole)) + _entropy(places).sum(), dtype=np.float64)


def _over(before: Array, after: Array) -> Array:
    """Return, for each build, the sum of `after` up to its place plus `before` beyond it."""
    behind = np.concatenate([[0.0], np.cumsum(after)])
    return np.asarray(
        behind + (before.sum() - np.concatenate([[0.0], np.cumsum(before)])), dtype=np.float64
    )


def _divergence(real: float, other: float) -> float:
    """Return the Kullback-Leibler divergence of two bad rates."""
    return real * math.log(real / other) + (1 - real) * math.log((1 - real) / (1 - other))


def _entropy(x: Array) -> Array:
    return np.asarray(-x * np.log(np.maximum(x, _TINY)), dtype=np.float64)
