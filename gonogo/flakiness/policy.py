"""The thresholds of flakiness, as versioned data: every finding names its policy's version."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FlakinessPolicy:
    """All thresholds of this package.

    Derivations stand above the numbers; `calibrated` means on simulated series whose truth is
    known, as in the tests of this package.
    """

    version: str = "3"

    # Rates: the level of intervals, and of the place of a change of numbers. Beta(prior, prior) is
    # Jeffreys', whose equal-tailed interval covers about its level for every rate (Brown, Cai,
    # DasGupta 2001). Fewer seeds say nothing about a tail or a grade: with 20 passes the upper
    # bound of the failure rate is still .12.
    level: float = 0.95
    prior: float = 0.5
    least_seeds: int = 20

    # Attribution. The level of one exact test of a factor, after Bonferroni over its levels: a
    # thousand stable tests give one false finding.
    significance: float = 1e-3
    # Seeds that must be compared twice before `never differs` is said.
    few_pairs: int = 3
    # Bayes factor for differences between devices or contexts that repeats never show: .95 at even
    # odds, and by Markov's inequality at most 1 of 19 rare races passes it. 3 of 3 seeds that
    # differ, where 3 of 3 repeat, have 20.
    factor_odds: float = 19.0

    # Tails and grades. Predicted failures per seed above which a green test is marginal: a nightly
    # test of 3 seeds then fails once a year.
    latent_target: float = 1e-3
    # The one-sided level of the upper bound of the predicted rate.
    tail_level: float = 0.95
    # Thresholds swept: this share of the seeds, the largest ones, is the tail; a fit needs
    # `tail_least` exceedances, and takes at most the `tail_most` largest.
    tail_shares: tuple[float, ...] = (0.5, 0.35, 0.25, 0.15, 0.1)
    tail_least: int = 10
    tail_most: int = 1000
    tail_bootstraps: int = 200
    # Nothing is predicted below 1/(tail_reach x seeds).
    tail_reach: float = 10.0
    # The level of the test whether numbers of one seed are alike (gonogo.flakiness.tails): above
    # it each run of a seed is a new sample.
    same_seed: float = 0.01
    # A test is broken if it always failed and the interval of its rate lies above this: 4 of 4
    # distinct runs do (lower bound .55).
    broken_most: float = 0.5

    # Change points. Points on either side of a change: two equal outliers are not a change.
    change_least: int = 3
    # The number of points from which on a window needs one more.
    change_points: int = 16
    # The level of Student's test of the points' means, after Bonferroni over the places. Places
    # next to each other are alike, so 1 to 4 of 1,000 stable series pass it (calibrated).
    change_student: float = 5e-3
    # The share of `change_student` for one change; the rest is for two, there and back, which are
    # rarer. At .8, t of one change in 18 points must be 2% larger than without the others.
    change_single: float = 0.8
    # From this many points on, the points themselves show how much stable ones differ: 3 on either
    # side leave 4 degrees of freedom. With fewer, only seeds can.
    change_builds: int = 6
    # Points on either side of a change in series of fewer than `change_points` points that have
    # `change_least` seeds or more. One point alone may be an outlier.
    change_seeded: int = 2
    # The level of Welch's test on all seeds, after Bonferroni over the places: power .96 for 2
    # sigma, 20 + 20.
    change_welch: float = 1e-4
    # A change of a rate: the level of the interval of the place and of both rates, and the Bayes
    # factor. By Markov's inequality at most 5 stable series in 1,000 pass it.
    rate_level: float = 0.99
    rate_odds: float = 200.0

    # Device time. A kernel is slower where the interval of the ratio of its seconds at 1 -
    # `significance` lies above the limit. With fewer seeds on a side there is no interval.
    slower_ratio: float = 1.1
    slower_seeds: int = 8
    # Processes on one device differ by a few percent, which seeds of one process don't show: the
    # standard deviation of their mean of log(seconds). It counts as if `process_jobs` jobs had
    # shown it. Up to 5%, at most 10 of 1,000 stable tests look slower (calibrated).
    process_spread: float = 0.03
    process_jobs: int = 20

    # Sequential seeds.
    stable_rate: float = 0.01
    flaky_rate: float = 0.1
    false_flaky: float = 0.01
    false_stable: float = 0.01
    # Seeds that a suspect one adds to its job, at most `suspect_rounds` times.
    suspect_seeds: int = 8
    suspect_rounds: int = 2
    # Standard errors between the mean evidence of suspect seeds and rounding's edge, from which on
    # they lie on one side of it: 95%.
    edge_sigmas: float = 2.0

    # Masked or fixed. Two faults are the same if their sizes differ by less than this share of the
    # larger one.
    same_size: float = 0.05
    # Statistics of a residual are the same within this factor: seeds of one build differ by less
    # than 1.3 (measured on the emulated kernels).
    same_factor: float = 2.0

    # Bisection. The probability at which a place is believed; the same odds end a series in which
    # nothing changed. By .95 a search at .3, .02 is right in .975 of the cases (calibrated).
    bisect_stop: float = 0.955
    # The cost of one run, where a wrong answer costs 1: the neighbors of the place run while one
    # more run is expected to save more (calibrated).
    bisect_cost: float = 0.025
    # Odds of a change, from runs of the first and the last build, at which the search begins. It is
    # this early because the search's runs are evidence for or against a change as well.
    bisect_gate: float = 1.0
    # Beta(bad, good) of the rate on the better side: mean 1/3, and much weight near 0, since a test
    # that is watched is mostly green. The rate on the worse side is uniform (calibrated).
    bisect_bad: float = 0.75
    bisect_good: float = 1.5
    # The next build is chosen as if each run counted this many times, so the search for the place
    # starts sooner (calibrated); every `bisect_calm` runs each counts once after all, because
    # boldness alone can stay at a build that tells nothing new.
    bisect_boldness: float = 1.5
    bisect_calm: int = 3
    # The belief that a fault shows on every seed or none, where numbers distinguish runs.
    bisect_sharp: float = 0.995

    # A flag resolves by itself after this many explained seeds in a row, on `quiet_builds` builds:
    # at a rate of .1 a flicker would have shown with p = .999.
    quiet_seeds: int = 64
    quiet_builds: int = 2


POLICY = FlakinessPolicy()
"""The policy in force."""
