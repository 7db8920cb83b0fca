"""The thresholds of flakiness, as versioned data: every finding names its policy's version."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FlakinessPolicy:
    """All thresholds of this package.

    Derivations stand beside the numbers; `calibrated` refers to `python -m benchmarks.flakiness`.
    """

    version: str = "3"

    # rates
    level: float = 0.95
    """The level of the intervals of rates, and of the place of a change of numbers (4-flakiness:
    95%)."""
    prior: float = 0.5
    """Beta(prior, prior): Jeffreys, whose equal-tailed interval covers about its level for every
    rate (Brown, Cai, DasGupta 2001)."""
    least_seeds: int = 20
    """Fewer say nothing about a tail or a grade: with 20 passes the upper bound of the failure rate
    is still .12."""

    # attribution
    significance: float = 1e-3
    """The level of one exact test of a factor, after Bonferroni over its levels: a thousand
    stable tests give one false finding."""
    few_pairs: int = 3
    """Seeds that must be compared twice before `never differs` is said: with fewer, determinism
    counts as unmeasured."""

    factor_odds: float = 19.0
    """Bayes factor for differences between devices or contexts that repeats never show: .95 at even
    odds, and by Markov's inequality at most 1 of 19 rare races passes it (mean over the prior).
    3 of 3 seeds that differ, where 3 of 3 repeat, have 20."""

    # tails and grades
    latent_target: float = 1e-3
    """Predicted failures per seed above which a green test is marginal: a nightly test of 3 seeds
    then fails once a year."""
    tail_level: float = 0.95
    """One-sided level of the upper bound of the predicted rate."""
    tail_shares: tuple[float, ...] = (0.5, 0.35, 0.25, 0.15, 0.1)
    """Thresholds swept: this share of the seeds, the largest ones, is the tail."""
    tail_least: int = 10
    """Exceedances that a fit needs. `tail_most` bounds the work on long histories: the tail is
    then that many of the largest."""
    tail_most: int = 1000
    tail_bootstraps: int = 200
    tail_reach: float = 10.0
    """Nothing is predicted below 1/(tail_reach x seeds) (4-flakiness)."""
    same_seed: float = 0.01
    """The level of the test whether numbers of one seed are alike (gonogo.flakiness.repeated):
    above it each run of a seed is a new sample."""
    broken_most: float = 0.5
    """A test is broken if it always failed and the interval of its rate lies above this: 4 of 4
    distinct runs do (lower bound .55)."""

    # change points
    change_alarm: float = 2e-3
    """The level of the permutation test: more than 10 alarms in 1,000 stable series then have
    p = 8e-6 (Poisson of mean 2; calibrated)."""
    change_permutations: int = 1999
    change_least: int = 3
    """Points on either side of a change: two equal outliers are not a change."""
    change_points: int = 16
    """The number of points with enough arrangements for a permutation test at `change_alarm`: 2
    / C(16, 8) = 1.6e-4."""
    change_student: float = 5e-3
    """The level of Student's test of the points' means, after Bonferroni over the places. Places
    next to each other are alike, so 1 to 4 of 1,000 stable series pass it (calibrated)."""
    change_single: float = 0.8
    """The share of `change_student` for one change; the rest is for two, there and back, which are
    rarer. At .8, t of one change in 18 points must be 2% larger than without the others."""
    change_builds: int = 6
    """From this many points on, the points themselves show how much stable ones differ: 3 on either
    side leave 4 degrees of freedom. With fewer, only seeds can."""
    change_seeded: int = 2
    """Points on either side of a change, instead of `change_least`, in series of fewer than
    `change_points` points that have `change_least` seeds or more. One point alone may be an
    outlier: at 5% outliers, 1 in 10 series begins or ends with one. Builds that repeat their
    numbers bit for bit have none, so there one point is enough."""
    change_welch: float = 1e-4
    """The level of Welch's test on all seeds, which decides with fewer than `change_builds` points,
    after Bonferroni over the places (4-flakiness: power .96 for 2 sigma, 20 + 20)."""
    rate_level: float = 0.99
    """The level of the interval of the place, and of both rates, at a change of a rate
    (4-flakiness)."""
    rate_odds: float = 200.0
    """Bayes factor for a change of a rate: by Markov's inequality at most 5 stable series in 1,000
    pass it (mean over the prior)."""

    # sequential seeds
    stable_rate: float = 0.01
    flaky_rate: float = 0.1
    false_flaky: float = 0.01
    false_stable: float = 0.01
    suspect_seeds: int = 8
    """Seeds that a suspect one adds to its job, at most `suspect_rounds` times (4-flakiness)."""
    suspect_rounds: int = 2
    edge_sigmas: float = 2.0
    """Standard errors between the mean evidence of suspect seeds and rounding's edge, from which on
    they lie on one side of it: 95%."""

    # masked or fixed
    same_size: float = 0.05
    """Two faults are the same if their sizes differ by less than this share of the larger one."""
    same_factor: float = 2.0
    """Statistics of a residual are the same within this factor: seeds of one build differ by less
    than 1.3 (measured on the emulated kernels)."""

    # bisection; run lengths by `python -m benchmarks.bisection`
    bisect_stop: float = 0.955
    """The probability at which a place is believed; the same odds end a series in which nothing
    changed. 4-flakiness has .95, by which a search at .3, .02 is right in .975 of the cases
    (calibrated)."""
    bisect_cost: float = 0.025
    """The cost of one run, where a wrong answer costs 1: the neighbors of the place run while
    one more run is expected to save more (calibrated)."""
    bisect_gate: float = 1.0
    """Odds of a change, from runs of the first and the last build, at which the search begins.
    It is this early because the search's runs are evidence for or against a change as well, and
    nothing is reported before they reach `bisect_stop`."""
    bisect_bad: float = 0.75
    bisect_good: float = 1.5
    """Beta(bad, good) of the rate on the better side: mean 1/3, and much weight near 0, since a
    test that is watched is mostly green. The rate on the worse side is uniform (4-flakiness:
    Beta(1,1)) (calibrated)."""
    bisect_boldness: float = 1.5
    """The next build is chosen as if each run counted this many times. The rates then seem
    better known than they are, and the search for the place starts sooner (calibrated: at .8, .2
    counting once takes 3% more runs). The reported belief counts each run once."""
    bisect_calm: int = 3
    """Every this many runs a choice counts each run once after all: boldness alone can stay at a
    build that tells nothing new."""
    bisect_sharp: float = 0.995
    """The belief that a fault shows on every seed or none, where numbers distinguish runs: a
    logic bug does (4-flakiness)."""

    # flags
    quiet_seeds: int = 64
    """A flag resolves by itself after this many explained seeds in a row, on `quiet_builds`
    builds: at a rate of .1 a flicker would have shown with p = .999."""
    quiet_builds: int = 2


POLICY = FlakinessPolicy()
"""The policy in force."""
