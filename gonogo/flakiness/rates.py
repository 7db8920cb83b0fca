"""Failure rates with intervals, and two rates against each other."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from gonogo.flakiness.outcomes import Outcome as Outcome
from gonogo.flakiness.outcomes import outcome_of as outcome_of
from gonogo.flakiness.policy import POLICY, FlakinessPolicy
from gonogo.flakiness.special import beta_quantile

# the API reports rates with their intervals, and loads no numpy until two of them are compared
if TYPE_CHECKING:
    import numpy as np


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
            return "UNKNOWN: no run"
        share = _percent(self.failures / self.runs)
        interval = f"{_percent(self.low)} to {_percent(self.high)}"
        return f"{self.failures} of {self.runs} ({share}, {interval})"

    def to_json(self) -> dict[str, Any]:
        """Return it in plain JSON types."""
        return asdict(self)


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"


def rate(
    failures: int, runs: int, policy: FlakinessPolicy = POLICY, level: float | None = None
) -> Rate:
    """Return the rate with the equal-tailed interval of Beta(failures + prior, passes + prior).

    Jeffreys' interval, with its lower end at 0 if nothing failed and its upper end at 1 if
    everything failed (Brown, Cai and DasGupta, Statistical Science 16, 2001, section 3.1.1): passes
    alone can't exclude a rate of exactly 0. Raises ValueError for impossible counts.
    """
    if runs < 0 or not 0 <= failures <= runs:
        raise ValueError(f"impossible counts: {failures} failures of {runs} runs")
    level = policy.level if level is None else level
    if runs == 0:
        return Rate(0, 0, None, None, None, level)
    mean, low, high = _posterior(int(failures), int(runs), policy.prior, level)
    return Rate(int(failures), int(runs), mean, low, high, level)


@lru_cache(maxsize=4096)
def _posterior(failures: int, runs: int, prior: float, level: float) -> tuple[float, float, float]:
    """Return (mean, low, high).

    The few counts of a suite's tests recur, and an interval takes some milliseconds, so they are
    cached.
    """
    a, b = failures + prior, runs - failures + prior
    outside = (1 - level) / 2
    low = 0.0 if failures == 0 else beta_quantile(outside, a, b)
    high = 1.0 if failures == runs else 1.0 - beta_quantile(outside, b, a)
    return a / (a + b), low, high


def rate_of(outcomes: Iterable[Outcome], policy: FlakinessPolicy = POLICY) -> tuple[Rate, Rate]:
    """Return the rate of failures of judged runs, and of lost runs among all runs tried.

    Lost runs are hangs, crashes and errors.
    """
    counts = dict.fromkeys(Outcome, 0)
    for outcome in outcomes:
        counts[outcome] += 1
    judged = counts[Outcome.failed] + counts[Outcome.passed]
    lost = counts[Outcome.infrastructure]
    return rate(counts[Outcome.failed], judged, policy), rate(lost, lost + judged, policy)


def fisher(failures: int, runs: int, other_failures: int, other_runs: int) -> float:
    """Return the two-sided p of Fisher's exact test.

    It is the probability of all tables with these margins that are no likelier than this one. R. A.
    Fisher, Statistical Methods for Research Workers, section 21.02; hypergeometric terms by lgamma,
    and a relative slack of 1e-7 for ties, as in R. It is 1 if a side has no runs.
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
    return float(min(1.0, np.exp(logs[logs <= here + 1e-7]).sum()))


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def greater(first: Rate, second: Rate, policy: FlakinessPolicy = POLICY) -> float | None:
    """Return the posterior probability that the first rate is higher; None if one is unknown.

    Integral of the density of the first times the cdf of the second over 4,001 places in logit(p),
    which resolve rates near 0 and 1.
    """
    import numpy as np

    if not (first.known and second.known):
        return None
    places = np.linspace(-40.0, 40.0, 4001)
    # a sharp posterior of a long history lies between few places: refine around both
    for side in (first, second):
        center = math.log(
            (side.failures + policy.prior) / (side.runs - side.failures + policy.prior)
        )
        spread = math.sqrt(
            1 / (side.failures + policy.prior) + 1 / (side.runs - side.failures + policy.prior)
        )
        places = np.concatenate([places, center + spread * np.linspace(-12.0, 12.0, 1001)])
    places = np.unique(places)
    first_density, second_density = (_density(side, places, policy) for side in (first, second))
    steps = np.diff(places)
    below = np.concatenate(
        [[0.0], np.cumsum((second_density[1:] + second_density[:-1]) / 2 * steps)]
    )
    product = first_density * below / below[-1]
    whole = float(((first_density[1:] + first_density[:-1]) / 2 * steps).sum())
    return float(np.clip(((product[1:] + product[:-1]) / 2 * steps).sum() / whole, 0.0, 1.0))


def _density(
    side: Rate, logits: np.ndarray[Any, np.dtype[np.float64]], policy: FlakinessPolicy
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the density of logit(p), up to a factor."""
    import numpy as np

    a, b = side.failures + policy.prior, side.runs - side.failures + policy.prior
    logs = -a * np.logaddexp(0.0, -logits) - b * np.logaddexp(0.0, logits)
    return np.asarray(np.exp(logs - logs.max()), dtype=np.float64)


def odds(one: Rate, other: Rate, policy: FlakinessPolicy = POLICY) -> float:
    """Return the Bayes factor of two rates against one that both share.

    Each rate has the policy's Beta prior. By Markov's inequality, rates that are equal give a
    factor above k in at most 1 of k cases (mean over the prior).
    """
    a = policy.prior

    def log_beta(failures: int, runs: int) -> float:
        return (
            math.lgamma(failures + a)
            + math.lgamma(runs - failures + a)
            - math.lgamma(runs + 2 * a)
            - 2 * math.lgamma(a)
            + math.lgamma(2 * a)
        )

    shared = log_beta(one.failures + other.failures, one.runs + other.runs)
    separate = log_beta(one.failures, one.runs) + log_beta(other.failures, other.runs)
    return math.exp(min(700.0, separate - shared))
