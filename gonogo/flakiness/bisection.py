"""Noisy bisection: which build of a series changed how often a test fails, from runs that each say red or green (or wrong and right).

The state is a function of the counts alone, so a search that was interrupted goes on from what is stored, and runs may come back in any
order. After R. Waeber, P. Frazier, S. Henderson, "Bisection search with noisy responses" (SIAM J. Control Optim. 51, 2013), with rates
that are not known: they are integrated over.
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

_NODES = 20
"""Rates on either side that the integral looks at, closer to each other near 0 and 1; 40 give the same run lengths within 1%."""
_ERROR = 1e-4
"""A run of a sharp signal that says the wrong thing: false alarms of the policy of verdicts are rarer."""
_MOST_CELLS = 2_000_000
"""Of the outcomes of runs in flight that are followed: beyond, the least likely ones are dropped."""
_SLACK = 1e-9


@dataclass(frozen=True)
class Look:
    """Where the search of one change between two builds stands."""

    stage: Stage
    low: int
    high: int
    """The builds between which it looks, as places in the series."""
    posterior: tuple[float, ...]
    """Probability that the first changed build is low + 1, low + 2, ..., high, if anything changed."""
    evidence: float
    """Log of how much likelier the runs are with a change than without one."""
    culprit: int | None
    """The likeliest first changed build, once two have been run."""
    probability: float
    before: float
    after: float
    """Mean rates of bad runs on both sides of the change."""
    wanted: tuple[int, ...]
    """Builds to run next, the most telling first; none when it is over, or when what is in flight is enough."""

    @property
    def found(self) -> bool:
        """Whether the change has its place."""
        return self.stage is Stage.found


@dataclass(frozen=True)
class _Model:
    """What is believed before any run: pairs of rates (before, after) with log weights, and rates of a series without a change."""

    rates: Array
    weights: Array
    logs: Array
    same: Array
    same_weights: Array


@cache
def _model(expect: Expect, sharp: bool, policy: FlakinessPolicy) -> _Model:
    """Beta(p, p) on both sides, in the order that is expected. Sharp: nearly all the weight is on rates of 0 and 1."""
    u = (np.arange(_NODES) + 0.5) / _NODES
    nodes = np.sin(np.pi * u / 2) ** 2
    density = np.sin(np.pi * u) ** (2 * policy.bisect_prior - 1)  # Beta(p, p) in u, where x = sin^2(pi u / 2)
    density /= density.sum()
    before, after = np.meshgrid(nodes, nodes, indexing="ij")
    weight = np.outer(density, density)
    keep = {Expect.regression: before < after, Expect.fix: before > after, Expect.either: before != after}[expect]
    rates = np.stack([before[keep], after[keep]], axis=1)
    weights = weight[keep] / weight[keep].sum()
    same, same_weights = nodes, density
    if sharp:
        up, down = (_ERROR, 1 - _ERROR), (1 - _ERROR, _ERROR)
        corners = {Expect.regression: [up], Expect.fix: [down], Expect.either: [up, down]}[expect]
        rates = np.concatenate([np.array(corners), rates])
        weights = np.concatenate([np.full(len(corners), policy.bisect_sharp / len(corners)), (1 - policy.bisect_sharp) * weights])
        same = np.concatenate([[_ERROR, 1 - _ERROR], nodes])
        same_weights = np.concatenate([[policy.bisect_sharp / 2] * 2, (1 - policy.bisect_sharp) * density])
    logs = np.stack([np.log(rates[:, 0]), np.log1p(-rates[:, 0]), np.log(rates[:, 1]), np.log1p(-rates[:, 1])])
    return _Model(rates, np.log(weights), logs, same, same_weights)


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

    tallies: of every build of the series, in its order. pending: builds of runs in flight, whose outcomes are averaged over. want: how
    many builds to name. The ends are run in turn until a change is `bisect_gate` times likelier than none (Wald's test against a mixture
    of rates); then the build whose run is expected to tell most of the place, and a little of the rates: who knows them learns more from
    the next run. At `bisect_stop` both neighbours of the place must have run. It can go back to an earlier stage. Raises ValueError for
    counts or builds that can't be.
    """
    high = len(tallies) - 1 if high is None else high
    if not 0 <= low <= high < len(tallies) or any(not 0 <= bad <= runs for bad, runs in tallies):
        raise ValueError(f"no search between builds {low} and {high} of {len(tallies)}, or counts that can't be")
    if low == high:
        return Look(Stage.untestable, low, high, (), 0.0, None, 0.0, 0.5, 0.5, ())
    model = _model(expect, sharp, policy)
    counts = np.array(tallies[low : high + 1], dtype=np.float64)
    cells, evidence = _cells(model, counts)
    places = cells.sum(axis=1)
    flying = [build - low for build in pending if low <= build <= high]
    runs = counts[:, 1].copy()
    for place in flying:
        runs[place] += 1
    best = int(places.argmax())
    stage, needed = _stage(places, best, counts, evidence, policy)
    wanted: list[int] = []
    if not stage.final:
        tree = _Tree(model, cells, flying)
        for _ in range(want):
            if stage is Stage.gate:
                chosen = 0 if runs[0] <= runs[-1] else len(runs) - 1
            elif stage is Stage.verify:
                fresh = [place for place in needed if place not in flying]
                if not fresh:
                    break
                chosen = fresh[0]
            else:
                chosen = tree.best(policy.bisect_learning)
            wanted.append(chosen)
            flying.append(chosen)
            runs[chosen] += 1
            if stage is Stage.search and len(wanted) < want:
                tree.follow(chosen)
    means = (cells @ model.rates)[best] / max(places[best], 1e-300)
    return Look(
        stage, low, high, tuple(float(each) for each in places), evidence, low + best + 1, float(places[best]),
        float(means[0]), float(means[1]), tuple(low + place for place in wanted),
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
    """`look` at the whole series and, where `several` changes are looked for, at each part on either side of a change that was found.

    Nothing is expected of the parts. A change and its way back within one part stay unseen: its ends are alike.
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
                each = look(tallies, sharp=sharp, pending=pending, want=want, low=low, high=high, policy=policy)
                found.append(each)
                open_parts.append(each)
    return tuple(found)


def testable(count: int, untestable: Collection[int]) -> tuple[int, ...]:
    """The builds that can be run, in order: a search among them gives the place as a range, from behind one of them to the next."""
    return tuple(build for build in range(count) if build not in untestable)


def _cells(model: _Model, counts: Array) -> tuple[Array, float]:
    """(joint posterior of place and pair of rates, log evidence of a change against none)."""
    total = counts.sum(axis=0)
    before = np.cumsum(counts, axis=0)[:-1]
    after = total - before
    table = np.stack([before[:, 0], before[:, 1] - before[:, 0], after[:, 0], after[:, 1] - after[:, 0]], axis=1)
    cells = table @ model.logs + model.weights
    top = cells.max()
    cells = np.exp(cells - top)
    whole = float(cells.sum())
    none = np.log(model.same_weights) + total[0] * np.log(model.same) + (total[1] - total[0]) * np.log1p(-model.same)
    peak = none.max()
    evidence = float(top) + math.log(whole / len(cells)) - float(peak + math.log(np.exp(none - peak).sum()))
    return cells / whole, evidence


def _stage(places: Array, best: int, counts: Array, evidence: float, policy: FlakinessPolicy) -> tuple[Stage, list[int]]:
    """(the stage, builds that must run before the place is believed)."""
    bound = math.log(policy.bisect_stop / (1 - policy.bisect_stop))
    if not (counts[0, 1] and counts[-1, 1]) or -bound < evidence < math.log(policy.bisect_gate) - _SLACK:
        return Stage.gate, []
    if evidence <= -bound:
        return Stage.no_change, []
    if places[best] < policy.bisect_stop or evidence < bound:
        return Stage.search, []
    odds = policy.bisect_stop / (1 - policy.bisect_stop)
    needed = []
    # build best + 1 is the first changed one, build best the last unchanged one; the odds against a neighbour are its own runs'
    if not counts[best + 1, 1] or (best + 1 < len(places) and places[best] < odds * places[best + 1]):
        needed.append(best + 1)
    if not counts[best, 1] or (best > 0 and places[best] < odds * places[best - 1]):
        needed.append(best)
    return (Stage.verify, needed) if needed else (Stage.found, [])


class _Tree:
    """What may come of the runs in flight: branches of a joint posterior, each with its probability as its weight."""

    def __init__(self, model: _Model, cells: Array, flying: Sequence[int]) -> None:
        self.model, self.branches = model, [cells]
        for place in flying:
            self.follow(place)

    def follow(self, place: int) -> None:
        """Split every branch by the outcome of a run of that build."""
        count = len(self.branches[0])
        side = np.where(np.arange(1, count + 1) <= place, 1, 0)  # the place is behind the change where the first changed build is not later
        bad = self.model.rates.T[side]
        split = [part for branch in self.branches for part in (branch * bad, branch * (1 - bad))]
        split.sort(key=lambda branch: -float(branch.sum()))
        self.branches = split[: max(1, _MOST_CELLS // split[0].size)]

    def best(self, learning: float) -> int:
        """The build whose run tells most: information about the place, and `learning` of that about the rates on top."""
        gain = np.zeros(len(self.branches[0]) + 1)
        for branch in self.branches:
            weight = float(branch.sum())
            if weight > 0:
                gain += weight * _gain(self.model, branch / weight, learning)
        return int(np.argmax(gain >= gain.max() - _SLACK))


def _gain(model: _Model, cells: Array, learning: float) -> Array:
    """Of each build: the expected information of a run of it, in nats."""
    places = cells.sum(axis=1)
    bad = cells @ model.rates  # (place, side)
    spread = cells @ (_entropy(model.rates) + _entropy(1 - model.rates))

    def over(before: Array, after: Array) -> Array:
        """For each build: the sum over the places not later of `after`, and over the later ones of `before`."""
        behind = np.concatenate([[0.0], np.cumsum(after)])
        return np.asarray(behind + (before.sum() - np.concatenate([[0.0], np.cumsum(before)])), dtype=np.float64)

    share = over(bad[:, 0], bad[:, 1])
    outcome = _entropy(share) + _entropy(1 - share)
    left = sum(over(_entropy(part[:, 0]), _entropy(part[:, 1])) for part in (bad, places[:, None] - bad))
    about_place = outcome - (left - _entropy(places).sum())
    about_all = outcome - over(spread[:, 0], spread[:, 1])
    return np.asarray(about_place + learning * (about_all - about_place), dtype=np.float64)


def _entropy(x: Array) -> Array:
    return np.asarray(-x * np.log(np.maximum(x, 1e-300)), dtype=np.float64)
