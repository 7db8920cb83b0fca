"""Noisy bisection: runs and accuracy, beside a majority vote as git-bisect would need.

`python -m benchmarks.bisection [--series N] [--builds N] [--first N]`.

For the three pairs of failure rates of the project's figures (after and before the change), on
series whose change is at a place drawn at random: every run counts, those of the gate too. The
policy's constants were chosen on these pairs, so that these figures are in-sample. Then by numbers,
for a logic bug at every place: at most ceil(log2 N) + 2 runs; and series in which nothing changed.
Exit 1 where a figure isn't met within two standard errors of what is measured.
"""

from __future__ import annotations

import argparse
import math
import operator
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from rich.console import Console
from rich.table import Table

from gonogo.flakiness.bisecting import Expect, Stage
from gonogo.flakiness.bisection import SearchState, search_state

MOST = 3000
BY_DEFAULT = 500


@dataclass(frozen=True)
class Figure:
    """A figure to meet with 128 builds, at these failure rates after and before the change."""

    after: float
    before: float
    runs: float
    accuracy: float
    majority_runs: int
    """Runs of a build that a majority bisect makes, and from how many red ones on it calls the
    build bad (the best for the rates)."""
    majority_red: int


FIGURES = (
    Figure(0.9, 0.02, 23, 1.0, 5, 3),
    Figure(0.8, 0.2, 54, 0.985, 11, 6),
    Figure(0.3, 0.02, 136, 0.98, 31, 4),
)


def searched(
    builds: int, run: Callable[[int], bool], *, sharp: bool = False, most: int = MOST
) -> tuple[SearchState, int, int]:
    """The end of one search, its runs, and how many of them were of the gate.

    run: whether a run of the build at that place is bad.
    """
    tallies = [(0, 0)] * builds
    gate = 0
    for runs in range(most):
        state = search_state(tallies, expect=Expect.regression, sharp=sharp)
        if state.stage.final:
            return state, runs, gate
        gate += state.stage is Stage.gate
        (place,) = state.next_builds
        bad, number = tallies[place]
        tallies[place] = (bad + run(place), number + 1)
    return state, most, gate


def by_majority(builds: int, run: Callable[[int], bool], votes: int, red: int) -> tuple[int, int]:
    """Return (place, runs) of git-bisect with a vote: bad from `red` of `votes` red runs on.

    The ends of the series are believed.
    """
    good, bad, runs = 0, builds - 1, 0
    while bad - good > 1:
        middle = (good + bad) // 2
        runs += votes
        if sum(run(middle) for _ in range(votes)) >= red:
            bad = middle
        else:
            good = middle
    return bad, runs


def noisy(
    figure: Figure, builds: int, series: int, first: int = 0
) -> tuple[list[tuple[int, int]], int, list[int], int]:
    """Return (runs of searches and gates, correct ones, runs by majority, correct ones)."""
    searches: list[tuple[int, int]] = []
    majority_runs: list[int] = []
    right = right_theirs = 0
    for number in range(first, first + series):
        rng = random.Random(number)
        place = rng.randrange(1, builds)

        def run(build: int, place: int = place, rng: random.Random = rng) -> bool:
            return rng.random() < (figure.after if build >= place else figure.before)

        state, runs, gate = searched(builds, run)
        searches.append((runs, gate))
        right += state.located and state.culprit == place
        answer, runs = by_majority(builds, run, figure.majority_runs, figure.majority_red)
        majority_runs.append(runs)
        right_theirs += answer == place
    return searches, right, majority_runs, right_theirs


def by_rates(builds: int, series: int, console: Console, first: int = 0) -> bool:
    """The three pairs of rates."""
    shown = Table(
        title=(
            f"in-sample: {builds} builds, {series} series: runs (mean, one standard error) and"
            " accuracy"
        ),
        title_justify="left",
    )
    for column in (
        "red after, before",
        "runs",
        "of the gate",
        "90% within",
        "accuracy",
        "to meet",
        "majority: runs",
        "accuracy",
    ):
        shown.add_column(column, justify="right")
    good = True
    for figure in FIGURES:
        pairs, right, majority_runs, right_theirs = noisy(figure, builds, series, first)
        runs_of_searches = [runs for runs, _ in pairs]
        mean = sum(runs_of_searches) / series
        error = math.sqrt(
            sum((number - mean) ** 2 for number in runs_of_searches) / (series - 1) / series
        )
        accuracy = right / series
        slack = math.sqrt(max(figure.accuracy * (1 - figure.accuracy), 1 / series) / series)
        met = mean - 2 * error <= figure.runs and accuracy + 2 * slack >= figure.accuracy
        good &= met or builds != 128
        shown.add_row(
            f"{figure.after:g}, {figure.before:g}",
            f"{mean:.2f} ± {error:.2f}",
            f"{sum(gate for _, gate in pairs) / series:.1f}",
            str(sorted(runs_of_searches)[int(0.9 * series)]),
            f"{accuracy:.4f} ± {math.sqrt(accuracy * (1 - accuracy) / series):.4f}",
            f"{figure.runs:g}, {figure.accuracy:g}{'' if met else ' NOT MET'}",
            f"{sum(majority_runs) / series:.0f}",
            f"{right_theirs / series:.3f}",
        )
    console.print(shown)
    return good


def by_numbers(builds: int, console: Console) -> bool:
    """A logic bug at every place."""
    longest, wrong = 0, 0
    for place in range(1, builds):
        state, runs, _ = searched(builds, partial(operator.le, place), sharp=True)
        longest = max(longest, runs)
        wrong += not state.located or state.culprit != place
    limit = math.ceil(math.log2(builds)) + 2
    console.print(
        f"out-of-sample: by numbers, a logic bug at each of {builds - 1} places: at most {longest} "
        f"runs (to meet: {limit}), {wrong} wrong\n"
    )
    return longest <= limit and not wrong


def _red(rng: random.Random, rate: float, _build: int) -> bool:
    return rng.random() < rate


def without_change(builds: int, series: int, console: Console, first: int = 0) -> bool:
    """Measure series in which nothing changed, with the default maximum of runs.

    The odds allow one false change in twenty.
    """
    shown = Table(
        title=(f"out-of-sample: nothing changed, {series} series, at most {BY_DEFAULT} runs"),
        title_justify="left",
    )
    for column in ("red", "runs", "no change", "undecided", "a change, falsely"):
        shown.add_column(column, justify="right")
    good = True
    for rate in (0.0, 0.1, 0.5):
        ends: list[tuple[Stage, int]] = []
        for number in range(first, first + series):
            rng = random.Random(number)
            state, runs, _ = searched(builds, partial(_red, rng, rate), most=BY_DEFAULT)
            ends.append((state.stage, runs))
        ended = [
            sum(stage is final_stage for stage, _ in ends) / series
            for final_stage in (Stage.no_change, Stage.located)
        ]
        good &= ended[1] <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / series)
        shares = [f"{share:.3f}" for share in (ended[0], 1 - sum(ended), ended[1])]
        shown.add_row(f"{rate:g}", f"{sum(runs for _, runs in ends) / series:.1f}", *shares)
    console.print(shown)
    return good


def main(words: list[str] | None = None) -> int:
    """Print the figures; 1 where one isn't met."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bisection", description=__doc__)
    parser.add_argument("--series", type=int, default=400, help="series of each pair of rates")
    parser.add_argument(
        "--builds", type=int, default=128, help="builds of a series; the figures are those of 128"
    )
    parser.add_argument(
        "--first", type=int, default=0, help="seed of the first series; the n-th has this plus n"
    )
    given = parser.parse_args(words)
    console = Console(highlight=False, width=110)
    checks = (
        by_rates(given.builds, given.series, console, given.first),
        by_numbers(given.builds, console),
        without_change(given.builds, max(20, given.series // 4), console, given.first),
    )
    return 0 if all(checks) else 1


if __name__ == "__main__":
    sys.exit(main())
