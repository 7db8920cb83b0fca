"""Failure rates with intervals, and two rates against each other."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from gonogo.flakiness.outcomes import Outcome as Outcome
from gonogo.flakiness.outcomes import outcome_of as outcome_of
from gonogo.flakiness.policy import POLICY
from gonogo.flakiness.special import beta_quantile, log_beta

# the API reports rates with their intervals, and loads no numpy until two of them are compared
if TYPE_CHECKING:
    import numpy as np


MAX_LOGIT, PLACES = 40.0, 4001
"""The range of logit(p) that is integrated over, and its places."""
MAX_SPREADS, FINE_PLACES = 12.0, 1001
"""The same around each posterior, in its standard deviations."""
TIES = 1e-7
"""Logarithms of probabilities that differ by less are a tie, as in R."""
MAX_LOG_ODDS = 700.0
"""The exponential of more is infinite."""


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
        if not self.known:
            return "no run was judged"
        assert self.low is not None
        assert self.high is not None
        share = _percent(self.failures / self.runs)
        interval = f"{_percent(self.low)} to {_percent(self.high)}"
        return f"{self.failures} of {self.runs} ({share}, {interval})"


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"


def rate(failures: int, runs: int, level: float | None = None) -> Rate:
    """Return the rate with the equal-tailed interval of Beta(failures + prior, passes + prior).

    Jeffreys' interval, with its lower end at 0 if nothing failed and its upper end at 1 if
    everything failed (Brown, Cai and DasGupta, Statistical Science 16, 2001, section 3.1.1): passes
    alone can't exclude a rate of exactly 0. Raises ValueError for impossible counts.
    """
    if runs < 0 or not 0 <= failures <= runs:
        raise ValueError(f"impossible counts: {failures} failures of {runs} runs")
    level = POLICY.level if level is None else level
    if runs == 0:
        return Rate(0, 0, None, None, None, level)
    mean, low, high = _posterior(int(failures), int(runs), POLICY.prior, level)
    return Rate(int(failures), int(runs), mean, low, high, level)


@lru_cache(maxsize=4096)
def _posterior(failures: int, runs: int, prior: float, level: float) -> tuple[float, float, float]:
    """Return (mean, low, high).

    The few counts of a suite's tests recur, and an interval takes some milliseconds, so they are
    cached.
    """
    a, b = _beta(failures, runs, prior)
    outside = (1 - level) / 2
    low = 0.0 if failures == 0 else beta_quantile(outside, a, b)
    high = 1.0 if failures == runs else 1.0 - beta_quantile(outside, b, a)
    return a / (a + b), low, high


def _beta(failures: int, runs: int, prior: float) -> tuple[float, float]:
    """Return the parameters of a rate's posterior."""
    return failures + prior, runs - failures + prior


def rate_of(outcomes: Iterable[Outcome]) -> tuple[Rate, Rate]:
    """Return the rate of failures of judged runs, and of lost runs among all runs tried.

    Lost runs are hangs, crashes and errors.
    """
    counts = dict.fromkeys(Outcome, 0)
    for outcome in outcomes:
        counts[outcome] += 1
    judged = counts[Outcome.failed] + counts[Outcome.passed]
    lost = counts[Outcome.infrastructure]
    return rate(counts[Outcome.failed], judged), rate(lost, lost + judged)


def fisher(failures: int, runs: int, other_failures: int, other_runs: int) -> float:
    """Return the two-sided p of Fisher's exact test.

    It is the probability of all tables with these margins that are no likelier than this one. R. A.
    Fisher, Statistical Methods for Research Workers, section 21.02; hypergeometric terms by lgamma.
    It is 1 if a side has no runs.
    """
    import numpy as np

    if runs == 0 or other_runs == 0:
        return 1.0
    total, bad = runs + other_runs, failures + other_failures
    lowest, highest = max(0, bad - other_runs), min(bad, runs)
    logs = np.array(
        [
            _log_choose(runs, k) + _log_choose(other_runs, bad - k)
            for k in range(lowest, highest + 1)
        ]
    ) - _log_choose(total, bad)
    here = logs[failures - lowest]
    return float(min(1.0, np.exp(logs[logs <= here + TIES]).sum()))


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def greater(first: Rate, second: Rate) -> float | None:
    """Return the posterior probability that the first rate is higher; None if one is unknown.

    Integral of the density of the first times the cdf of the second over places in logit(p), which
    resolve rates near 0 and 1.
    """
    import numpy as np

    if not (first.known and second.known):
        return None
    sides = [_beta(side.failures, side.runs, POLICY.prior) for side in (first, second)]
    # a sharp posterior of a long history lies between few places: refine around both
    around = np.linspace(-MAX_SPREADS, MAX_SPREADS, FINE_PLACES)
    fine = [math.log(a / b) + math.sqrt((a + b) / (a * b)) * around for a, b in sides]
    places = np.unique(np.concatenate([np.linspace(-MAX_LOGIT, MAX_LOGIT, PLACES), *fine]))
    first_density, second_density = (_density(a, b, places) for a, b in sides)
    below = np.cumsum(np.append(0.0, _areas(second_density, places)))
    both = _areas(first_density * below, places).sum()
    return float(np.clip(both / (_areas(first_density, places).sum() * below[-1]), 0.0, 1.0))


def _areas(
    density: np.ndarray[Any, np.dtype[np.float64]], places: np.ndarray[Any, np.dtype[np.float64]]
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return twice the areas of the trapezoids between places."""
    import numpy as np

    return np.asarray((density[1:] + density[:-1]) * np.diff(places), dtype=np.float64)


def _density(
    a: float, b: float, logits: np.ndarray[Any, np.dtype[np.float64]]
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the density of logit(p) of Beta(a, b), up to a factor."""
    import numpy as np

    logs = -a * np.logaddexp(0.0, -logits) - b * np.logaddexp(0.0, logits)
    return np.asarray(np.exp(logs - logs.max()), dtype=np.float64)


def odds(one: Rate, other: Rate) -> float:
    """Return the Bayes factor of two rates against one that both share.

    Each rate has the policy's Beta prior. By Markov's inequality, rates that are equal give a
    factor above k in at most 1 of k cases (mean over the prior).
    """

    def evidence(failures: int, runs: int) -> float:
        return log_beta(*_beta(failures, runs, POLICY.prior)) - log_beta(POLICY.prior, POLICY.prior)

    shared = evidence(one.failures + other.failures, one.runs + other.runs)
    separate = evidence(one.failures, one.runs) + evidence(other.failures, other.runs)
    return math.exp(min(MAX_LOG_ODDS, separate - shared))
