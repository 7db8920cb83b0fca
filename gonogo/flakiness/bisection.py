"""Noisy bisection: which build of a series changed how often a test fails, from runs that each say
red or green (or wrong and right).

The state is a function of the counts alone, so a search that was interrupted goes on from what is
stored, and runs may come back in any order. After R. Waeber, P. Frazier, S. Henderson, "Bisection
search with noisy responses" (SIAM J. Control Optim. 51, 2013), with rates that are not known: they
are integrated over.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from gonogo.flakiness.bisecting import Expect, Stage
from gonogo.flakiness.policy import POLICY, FlakinessPolicy

Array = NDArray[np.float64]
Tally = tuple[int, int]
"""Of one build: (bad runs, runs)."""

_NODES = 24
"""Rates on either side that the integral looks at, closer to each other near 0 and 1; 32 give the
same run lengths within 1%."""
_ERROR = 1e-4
"""A run of a sharp signal that says the wrong thing: false alarms of the policy of verdicts are
rarer."""
_MOST_CELLS = 100_000
_LEAST_BRANCHES = 4
"""Of the outcomes of runs in flight that are followed: beyond so many numbers, the least likely
ones are dropped."""
_TINY = 1e-300
_SLACK = 1e-9


@dataclass(frozen=True)
class Look:
    """Where the search of one change between two builds stands."""

    stage: Stage
    low: int
    high: int
    """The builds between which it looks, as places in the series."""
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
    wanted: tuple[int, ...]
    """Builds to run next, the most telling first; none when it is over, or when what is in flight
    is enough."""

    @property
    def found(self) -> bool:
        """Whether the change has its place."""
        return self.stage is Stage.found


@dataclass(frozen=True)
class _Model:
    """What is believed before any run: a weight for each pair of rates (before, after), and for
    each rate of a series without a change.
    """

    rates: Array
    pairs: Array
    """(before, after), places in `rates`; 0 where the order is not the expected one."""
    same: Array


@dataclass(frozen=True)
class _Belief:
    """Likelihoods of what ran, of shape (place, rate): of the builds before the place, and of those
    from it on.

    The joint posterior of (place, rate before, rate after) is before x pairs x after; it is never
    written out, which for 128 builds is ten times fewer numbers. Up to a factor: the whole sum is
    the weight of the belief.
    """

    before: Array
    after: Array

    def bad(self, model: _Model) -> tuple[Array, Array]:
        """(weight of each place; of shape (2, place): weight times mean rate of bad runs before and
        after it).
        """
        before = self.before * (self.after @ model.pairs.T)
        after = self.after * (self.before @ model.pairs)
        return before.sum(axis=1), np.stack([before @ model.rates, after @ model.rates])


@cache
def _model(expect: Expect, sharp: bool, policy: FlakinessPolicy) -> _Model:
    """Beta priors of the better and the worse side, in the order that is expected. Sharp: nearly
    all the weight is on rates of 0 and 1.
    """
    u = (np.arange(_NODES) + 0.5) / _NODES  # the rate is sin^2(pi u / 2)
    rates = np.concatenate([[_ERROR], np.sin(np.pi * u / 2) ** 2, [1 - _ERROR]])
    better = np.sin(np.pi * u / 2) ** (2 * policy.bisect_bad - 1) * np.cos(np.pi * u / 2) ** (
        2 * policy.bisect_good - 1
    )
    worse = np.sin(np.pi * u)  # uniform, in u
    better, worse = (np.concatenate([[0.0], each / each.sum(), [0.0]]) for each in (better, worse))
    regression = np.triu(np.outer(better, worse), 1)  # the rate before is below the one after
    regression /= regression.sum()
    same = (better + worse) / 2
    if sharp:
        regression *= 1 - policy.bisect_sharp
        regression[0, -1] = policy.bisect_sharp
        same *= 1 - policy.bisect_sharp
        same[[0, -1]] = policy.bisect_sharp / 2
    pairs = {
        Expect.regression: regression,
        Expect.fix: regression.T,
        Expect.either: (regression + regression.T) / 2,
    }[expect]
    return _Model(rates, pairs, same)


def look(
    tallies: Sequence[Tally],
    *,
    expect: Expect = Expect.either,
    sharp: bool = False,
    pending: Sequence[int] = (),
    want: int = 1,
    low: int = 0,
    high: int | None = None,
    policy: FlakinessPolicy = POLICY,
) -> Look:
    """Where the search between the builds `low` and `high` stands, and which builds to run next.

    tallies: of every build of the series, in its order. pending: builds of runs in flight, whose
    outcomes are averaged over. want: how many builds to name. The ends are run in turn until a
    change is `bisect_gate` times likelier than none (Wald's test against a mixture of rates); then
    the build whose run is expected to leave the least entropy of the place. At `bisect_stop` the
    neighbours of the place run, until no further run of them is worth its cost, `bisect_cost`. It
    can go back to an earlier stage. Raises ValueError for counts or builds that can't be.
    """
    high = len(tallies) - 1 if high is None else high
    if not 0 <= low <= high < len(tallies) or any(not 0 <= bad <= runs for bad, runs in tallies):
        raise ValueError(
            f"no search between builds {low} and {high} of {len(tallies)}, or counts that can't be"
        )
    if low == high:
        return Look(Stage.untestable, low, high, (), 0.0, None, 0.0, 0.5, 0.5, ())
    model = _model(expect, sharp, policy)
    counts = np.array(tallies[low : high + 1], dtype=np.float64)
    belief, evidence = _believed(model, counts)
    places, bad = belief.bad(model)
    flying = [build - low for build in pending if low <= build <= high]
    runs = counts[:, 1].copy()
    for place in flying:
        runs[place] += 1
    best = int(places.argmax())
    before, after = (float(each) for each in bad[:, best] / max(places[best], _TINY))
    stage, needed = _stage(places, best, (before, after), counts, evidence, policy)
    wanted: list[int] = []
    if not stage.final:
        if (
            stage is Stage.search and not sharp and counts[:, 1].sum() % policy.bisect_calm
        ):  # sharp: the rates are known
            belief, _ = _believed(model, policy.bisect_boldness * counts)
        tree = _Tree(model, belief, flying if stage is Stage.search else ())
        for _ in range(want):
            if stage is Stage.gate:
                chosen = 0 if runs[0] <= runs[-1] else len(runs) - 1
            elif stage is Stage.verify:
                fresh = [place for place in needed if place not in flying]
                if not fresh:
                    break
                chosen = fresh[0]
            else:
                chosen = tree.best()
            wanted.append(chosen)
            flying.append(chosen)
            runs[chosen] += 1
            if stage is Stage.search and len(wanted) < want:
                tree.follow(chosen)
    return Look(
        stage, low, high, tuple(float(each) for each in places), evidence, low + best + 1, float(places[best]), before, after,
        tuple(low + place for place in wanted),
    )  # fmt: skip


def looks(
    tallies: Sequence[Tally],
    *,
    expect: Expect = Expect.either,
    sharp: bool = False,
    pending: Sequence[int] = (),
    want: int = 1,
    several: bool = True,
    policy: FlakinessPolicy = POLICY,
) -> tuple[Look, ...]:
    """`look` at the whole series and, where `several` changes are looked for, at each part on
    either side of a change that was found.

    Nothing is expected of the parts. A change and its way back within one part stay unseen: its
    ends are alike.
    """
    first = look(tallies, expect=expect, sharp=sharp, pending=pending, want=want, policy=policy)
    found = [first]
    open_parts = [first]
    while several and open_parts:
        part = open_parts.pop(0)
        if not part.found or part.culprit is None:
            continue
        for low, high in ((part.low, part.culprit - 1), (part.culprit, part.high)):
            if low < high:
                each = look(
                    tallies,
                    sharp=sharp,
                    pending=pending,
                    want=want,
                    low=low,
                    high=high,
                    policy=policy,
                )
                found.append(each)
                open_parts.append(each)
    return tuple(found)


def testable(count: int, untestable: Collection[int]) -> tuple[int, ...]:
    """The builds that can be run, in order: a search among them gives the place as a range, from
    behind one of them to the next.
    """
    return tuple(build for build in range(count) if build not in untestable)


def _believed(model: _Model, counts: Array) -> tuple[_Belief, float]:
    """(the posterior, of weight 1; log evidence of a change against none)."""
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
    if (
        whole < _TINY
        # against the expected order by so much that no pair of rates is left: no place is likelier, and
        # no change likely
    ):
        belief = _Belief(np.ones_like(both[0]), np.ones_like(both[1]))
        return _Belief(belief.before / belief.bad(model)[0].sum(), belief.after), math.log(_TINY)
    return _Belief(belief.before / whole, belief.after), top + math.log(whole / len(before)) - alone


def _stage(
    places: Array,
    best: int,
    rates: tuple[float, float],
    counts: Array,
    evidence: float,
    policy: FlakinessPolicy,
) -> tuple[Stage, list[int]]:
    """(the stage, builds to run before the place is believed, the most needed first). rates: before
    and after the likeliest place.
    """
    bound = math.log(policy.bisect_stop / (1 - policy.bisect_stop))
    if (
        not (counts[0, 1] and counts[-1, 1])
        or -bound < evidence < math.log(policy.bisect_gate) - _SLACK
    ):
        return Stage.gate, []
    if evidence <= -bound:
        return Stage.no_change, []
    if places[best] < policy.bisect_stop or evidence < bound:
        return Stage.search, []
    # Build best is the last unchanged one: its runs speak against all earlier places. Build best +
    # 1, the first changed one, against all later ones. A wrong belief of mass e falls by the factor
    # exp(-D) with a run that tells D nats: the run saves e (1 - exp(-D)).
    before, after = rates
    saved = {
        best: float(places[:best].sum()) * -math.expm1(-_divergence(before, after)),
        best + 1: float(places[best + 1 :].sum()) * -math.expm1(-_divergence(after, before)),
    }
    needed = [
        build
        for build, worth in saved.items()
        if worth > policy.bisect_cost or not counts[build, 1]
    ]
    needed.sort(key=lambda build: (bool(counts[build, 1]), -saved[build]))
    return (Stage.verify, needed) if needed else (Stage.found, [])


class _Tree:
    """What may come of the runs in flight: branches of a posterior, each with its probability as
    its weight.
    """

    def __init__(self, model: _Model, belief: _Belief, flying: Sequence[int]) -> None:
        self.model, self.branches = model, [belief]
        for place in flying:
            self.follow(place)

    def follow(self, place: int) -> None:
        """Split every branch by the outcome of a run of that build."""
        count = len(self.branches[0].before)
        behind = (np.arange(1, count + 1) <= place)[
            :, None
        ]  # of these places the run is one of after the change
        outcomes = [
            (np.where(behind, 1, rate), np.where(behind, rate, 1))
            for rate in (self.model.rates, 1 - self.model.rates)
        ]
        split = [
            _Belief(each.before * before, each.after * after)
            for each in self.branches
            for before, after in outcomes
        ]
        most = max(_LEAST_BRANCHES, _MOST_CELLS // (2 * split[0].before.size))
        if len(split) > most:
            split.sort(key=lambda branch: -float(branch.bad(self.model)[0].sum()))
        self.branches = split[:most]

    def best(self) -> int:
        """The build whose run is expected to tell most of the place; of equals the first."""
        gain = sum(
            (_gain(*branch.bad(self.model)) for branch in self.branches),
            np.zeros(len(self.branches[0].before) + 1),
        )
        return int(np.argmax(gain >= gain.max() - _SLACK))


def _gain(places: Array, bad: Array) -> Array:
    """Of each build: the expected information about the place that a run of it gives, in nats,
    times the weight of the branch.

    The entropy of the outcome less what is left of it where the place is known. Homogeneous, so
    that nothing need be normalised.
    """
    outcomes = (bad, places - bad)
    whole = float(places.sum())
    told = sum(_entropy(_over(*part)) - _over(*_entropy(part)) for part in outcomes)
    return np.asarray(told - _entropy(np.array(whole)) + _entropy(places).sum(), dtype=np.float64)


def _over(before: Array, after: Array) -> Array:
    """For each build: the sum over the places not later of `after`, and over the later ones of
    `before`.
    """
    behind = np.concatenate([[0.0], np.cumsum(after)])
    return np.asarray(
        behind + (before.sum() - np.concatenate([[0.0], np.cumsum(before)])), dtype=np.float64
    )


def _divergence(real: float, other: float) -> float:
    """Kullback-Leibler: how many nats a run whose bad rate is `real` tells on average against the
    rate `other`.
    """
    return real * math.log(real / other) + (1 - real) * math.log((1 - real) / (1 - other))


def _entropy(x: Array) -> Array:
    return np.asarray(-x * np.log(np.maximum(x, _TINY)), dtype=np.float64)
