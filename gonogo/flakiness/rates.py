"""Outcomes of runs, their rates with intervals, and two rates against each other.

The API reports rates, and loads no NumPy until two of them are compared.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from gonogo.flakiness.policy import POLICY
from gonogo.flakiness.special import beta_quantile, log_beta
from gonogo.spec.described import Described
from gonogo.spec.verdicts import Verdict

# The range of logit(p) that is integrated over, and its places; and the same around each posterior,
# in its standard deviations.
MAX_LOGIT, PLACES = 40.0, 4001
MAX_SPREADS, FINE_PLACES = 12.0, 1001
# Logarithms of probabilities that differ by less are a tie, as in R.
TIES = 1e-7
# The exponential of more is infinite.
MAX_LOG_ODDS = 700.0


class Outcome(Described):
    """The outcome of one run, as rates count it."""

    passed = "passed", "The kernel ran, and its gate was green."
    failed = "failed", "The kernel ran, and its gate was red."
    infrastructure = (
        "infrastructure",
        "Hang, crash or error: counted apart, never into a kernel's rates.",
    )
    silent = "silent", "Skipped, not run, not judged or inconclusive: counted nowhere."


def _outcome(verdict: Verdict) -> Outcome:
    if verdict in (Verdict.error, Verdict.crash, Verdict.hang):
        return Outcome.infrastructure
    if not verdict.judges_kernel:
        return Outcome.silent
    is_red = verdict in (Verdict.fail, Verdict.fail_by_tolerance)
    return Outcome.failed if is_red else Outcome.passed


# By the verdict's text: making an enum member for each of thousands of rows would take longest.
_OUTCOMES: dict[str, Outcome] = {verdict: _outcome(verdict) for verdict in Verdict}


def outcome_of(verdict: Verdict | str, green: bool | None = None) -> Outcome:
    """Return the outcome of a verdict: its gate's color, even if rounding explains a red one.

    green: the color of a run that is not judged (a gtest without arrays). Raises ValueError for an
    unknown verdict.
    """
    if green is not None and verdict == Verdict.not_judged:
        return Outcome.passed if green else Outcome.failed
    return _OUTCOMES.get(verdict) or _outcome(Verdict(verdict))


@dataclass(frozen=True)
class Rate:
    """A failure rate: `failures` of `runs`, the posterior's mean, and its interval at `level`.

    Without a run the last three are None: the rate is unknown.
    """

    failures: int
    runs: int
    mean: float | None
    low: float | None
    high: float | None
    level: float

    @property
    def known(self) -> bool:
        """Return whether there is any run."""
        return self.runs > 0

    @property
    def words(self) -> str:
        """The rate in one phrase: "3 of 20 (15%, 4% to 35%)"."""
        if self.low is None or self.high is None:
            return "no run was judged"
        share, low, high = (
            f"{100 * part:.3g}%" for part in (self.failures / self.runs, self.low, self.high)
        )
        return f"{self.failures} of {self.runs} ({share}, {low} to {high})"


def rate(failures: int, runs: int, level: float | None = None) -> Rate:
    """Return the rate with the equal-tailed interval of Beta(failures + prior, passes + prior).

    Jeffreys' interval, with its lower end at 0 if nothing failed and its upper end at 1 if
    everything failed (Brown, Cai and DasGupta, Statistical Science 16, 2001, section 3.1.1). Raises
    ValueError for impossible counts.
    """
    if runs < 0 or not 0 <= failures <= runs:
        raise ValueError(f"impossible counts: {failures} failures of {runs} runs")
    level = POLICY.level if level is None else level
    if runs == 0:
        return Rate(0, 0, None, None, None, level)
    return _rate(int(failures), int(runs), level)


# The few counts of a suite's tests recur, and an interval takes some milliseconds.
@lru_cache(maxsize=4096)
def _rate(failures: int, runs: int, level: float) -> Rate:
    a, b = _beta(failures, runs)
    outside = (1 - level) / 2
    low = 0.0 if failures == 0 else beta_quantile(outside, a, b)
    high = 1.0 if failures == runs else 1.0 - beta_quantile(outside, b, a)
    return Rate(failures, runs, a / (a + b), low, high, level)


def _beta(failures: int, runs: int) -> tuple[float, float]:
    """Return the parameters of a rate's posterior."""
    return failures + POLICY.prior, runs - failures + POLICY.prior


def rate_of(outcomes: Iterable[Outcome]) -> tuple[Rate, Rate]:
    """Return the rate of failures of judged runs, and of lost runs among all runs tried."""
    counts = Counter(outcomes)
    judged = counts[Outcome.failed] + counts[Outcome.passed]
    lost = counts[Outcome.infrastructure]
    return rate(counts[Outcome.failed], judged), rate(lost, lost + judged)


def fisher(failures: int, runs: int, other_failures: int, other_runs: int) -> float:
    """Return the two-sided p of Fisher's exact test; 1 if a side has no runs.

    It is the probability of all tables with these margins that are no likelier than this one.
    """
    import numpy as np

    if runs == 0 or other_runs == 0:
        return 1.0
    bad = failures + other_failures
    lowest, highest = max(0, bad - other_runs), min(bad, runs)
    logs = np.array(
        [
            _log_choose(runs, k) + _log_choose(other_runs, bad - k)
            for k in range(lowest, highest + 1)
        ]
    ) - _log_choose(runs + other_runs, bad)
    return float(min(1.0, np.exp(logs[logs <= logs[failures - lowest] + TIES]).sum()))


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def greater(first: Rate, second: Rate) -> float | None:
    """Return the posterior probability that the first rate is higher; None if one is unknown.

    It is the integral of the density of the first times the cdf of the second over logit(p).
    """
    import numpy as np

    if not (first.known and second.known):
        return None
    sides = [_beta(side.failures, side.runs) for side in (first, second)]
    # a sharp posterior of a long history lies between few places: refine around both
    around = np.linspace(-MAX_SPREADS, MAX_SPREADS, FINE_PLACES)
    fine = [math.log(a / b) + math.sqrt((a + b) / (a * b)) * around for a, b in sides]
    places = np.unique(np.concatenate([np.linspace(-MAX_LOGIT, MAX_LOGIT, PLACES), *fine]))
    logs = [-a * np.logaddexp(0.0, -places) - b * np.logaddexp(0.0, places) for a, b in sides]
    one, two = (np.exp(log - log.max()) for log in logs)
    steps = np.diff(places)
    below = np.cumsum(np.append(0.0, (two[1:] + two[:-1]) * steps))
    weighted = one * below
    both = ((weighted[1:] + weighted[:-1]) * steps).sum()
    whole = ((one[1:] + one[:-1]) * steps).sum() * below[-1]
    return float(np.clip(both / whole, 0.0, 1.0))


def odds(one: Rate, other: Rate) -> float:
    """Return the Bayes factor of two rates against one that both share.

    By Markov's inequality, rates that are equal give a factor above k in at most 1 of k cases (mean
    over the prior).
    """

    def evidence(failures: int, runs: int) -> float:
        return log_beta(*_beta(failures, runs)) - log_beta(POLICY.prior, POLICY.prior)

    shared = evidence(one.failures + other.failures, one.runs + other.runs)
    separate = evidence(one.failures, one.runs) + evidence(other.failures, other.runs)
    return math.exp(min(MAX_LOG_ODDS, separate - shared))
