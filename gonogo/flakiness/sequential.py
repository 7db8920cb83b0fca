"""When a job has seen enough seeds: Wald's sequential test, stopping at a logic bug, and more seeds where one is suspect."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from gonogo.flakiness.policy import POLICY, FlakinessPolicy


class Stopping(StrEnum):
    """What a job of sequential seeds does next."""

    more = "more"
    stable = "stable"
    flaky = "flaky"
    wrong = "wrong"
    undecided = "undecided"

    @property
    def sentence(self) -> str:
        """What the word means, in one sentence."""
        return _SENTENCES[self]


_SENTENCES = {
    Stopping.more: "Not decided yet: more seeds.",
    Stopping.stable: "It stops: the failure rate is the stable one of the policy or less.",
    Stopping.flaky: "It stops: the failure rate is the flaky one of the policy or more.",
    Stopping.wrong: "It stops: a seed's error is unexplained, and one seed is enough for a wrong kernel.",
    Stopping.undecided: "It stops at its largest number of seeds without a decision.",
}


@dataclass(frozen=True)
class Decision:
    """Where a sequential job stands."""

    state: Stopping
    seeds: int
    most: int
    failures: int
    evidence: float
    """Log likelihood ratio of the flaky rate against the stable one."""
    bounds: tuple[float, float]
    needed: int
    """Seeds after which a decision is possible at the earliest, if none of them fails; 0 when it has stopped."""
    saved_ms: float | None
    """Device time of the seeds that need not run, at the mean of those that did; None where no duration is known."""
    words: str

    @property
    def stopped(self) -> bool:
        """Whether no more seeds are wanted."""
        return self.state is not Stopping.more

    def to_json(self) -> dict[str, Any]:
        """In plain JSON types."""
        return {
            "state": self.state.value, "seeds": self.seeds, "max": self.most, "failures": self.failures, "evidence": self.evidence,
            "bounds": list(self.bounds), "needed": self.needed, "saved_ms": self.saved_ms, "words": self.words,
        }


def bounds(policy: FlakinessPolicy = POLICY) -> tuple[float, float]:
    """(accept stable at or below, accept flaky at or above): log(b/(1-a)) and log((1-b)/a) (A. Wald, Sequential Analysis, 1947, 3.2)."""
    a, b = policy.false_flaky, policy.false_stable
    return math.log(b / (1 - a)), math.log((1 - b) / a)


def steps(policy: FlakinessPolicy = POLICY) -> tuple[float, float]:
    """What one passed and one failed seed add to the log likelihood ratio."""
    return math.log((1 - policy.flaky_rate) / (1 - policy.stable_rate)), math.log(policy.flaky_rate / policy.stable_rate)


def decide(
    failures: int, seeds: int, most: int, policy: FlakinessPolicy = POLICY, *, unexplained: int = 0, to_the_end: bool = False,
    durations_ms: Sequence[float | None] = (),
) -> Decision:
    """Whether to stop after `seeds` kernel outcomes, `failures` of them red; infrastructure failures are not counted by the caller.

    The ratio depends on the counts only, so seeds may arrive in any order and in batches: looking more rarely than after every seed keeps
    both error rates. unexplained: seeds whose error rounding doesn't explain; one stops the job unless `to_the_end` (4-flakiness).
    durations_ms: negative, unknown or non-finite ones (clocks that go back) are left out of the mean. Raises ValueError for counts that
    can't be.
    """
    if not 0 <= failures <= seeds or most < 1 or unexplained < 0:
        raise ValueError(f"{failures} failures of {seeds} seeds of {most} can't be")
    passed, failed = steps(policy)
    low, high = bounds(policy)
    evidence = (seeds - failures) * passed + failures * failed
    slack = 1e-12 * max(1.0, abs(evidence))
    if unexplained and not to_the_end:
        state = Stopping.wrong
    elif evidence <= low + slack:
        state = Stopping.stable
    elif evidence >= high - slack:
        state = Stopping.flaky
    else:
        state = Stopping.undecided if seeds >= most else Stopping.more
    needed = 0
    if state is Stopping.more:
        needed = max(1, min(most - seeds, math.ceil((low - evidence) / passed - 1e-9)))
    known = [each for each in durations_ms if each is not None and math.isfinite(each) and each >= 0]
    left = max(0, most - seeds)
    saved = left * (sum(known) / len(known)) if known and state is not Stopping.more else None
    return Decision(state, seeds, most, failures, evidence, (low, high), needed, saved, _words(state, seeds, most, failures, saved, policy))


def _words(state: Stopping, seeds: int, most: int, failures: int, saved: float | None, policy: FlakinessPolicy) -> str:
    if state is Stopping.more:
        return f"{failures} of {seeds} seeds failed: not decided yet"
    reason = {
        Stopping.stable: f"the failure rate is {policy.stable_rate:g} rather than {policy.flaky_rate:g}",
        Stopping.flaky: f"the failure rate is {policy.flaky_rate:g} rather than {policy.stable_rate:g}",
        Stopping.wrong: "an error is unexplained, and one seed shows a wrong kernel",
        Stopping.undecided: f"all {most} seeds ran without a decision",
    }[state]
    spared = f"; {saved / 1000:.3g} s of device time saved" if saved else ""
    return f"stopped after {seeds} of at most {most} seeds, {failures} failed: {reason}{spared}"


@dataclass(frozen=True)
class Plan:
    """What the test costs, computed exactly: mean seeds and probability of calling it flaky, at the true rate `rate`."""

    rate: float
    mean_seeds: float
    flaky: float
    undecided: float


def plan(true_rate: float, policy: FlakinessPolicy = POLICY, most: int = 5000) -> Plan:
    """Exact run length and error of the test by dynamic programming over the number of failures (no approximation of the overshoot).

    `most` truncates it; what is still undecided there is given. Order most x failures.
    """
    if not 0 <= true_rate <= 1:
        raise ValueError(f"{true_rate} is no rate")
    passed, failed = steps(policy)
    low, high = bounds(policy)
    alive = np.ones(1)
    mean = flaky = 0.0
    for seeds in range(1, most + 1):
        mean += float(alive.sum())
        following = np.zeros(len(alive) + 1)
        following[:-1] += alive * (1 - true_rate)
        following[1:] += alive * true_rate
        count = np.arange(len(following))
        evidence = (seeds - count) * passed + count * failed
        flaky += float(following[evidence >= high - 1e-12].sum())
        following[(evidence >= high - 1e-12) | (evidence <= low + 1e-12)] = 0.0
        kept = np.flatnonzero(following > 1e-18)
        if not len(kept):
            return Plan(true_rate, mean, flaky, 0.0)
        alive = following[: kept[-1] + 1]
    return Plan(true_rate, mean, flaky, float(alive.sum()))


def fixed_seeds(policy: FlakinessPolicy = POLICY, most: int = 2000) -> int | None:
    """The smallest fixed number of seeds with a threshold that keeps both error rates of the policy; None above `most`.

    Exact binomial tails, one number after the other, at the smallest threshold that the stable rate allows.
    """

    def terms(n: int, p: float) -> np.ndarray[Any, np.dtype[np.float64]]:
        count = np.arange(n + 1)
        logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(n, 0, -1)) - np.log(np.arange(1, n + 1)))])
        return np.asarray(np.exp(logs + count * math.log(p) + (n - count) * math.log1p(-p)), dtype=np.float64)

    for n in range(1, most + 1):
        within = np.cumsum(terms(n, policy.stable_rate))
        threshold = int(np.searchsorted(within, 1 - policy.false_flaky))
        if threshold <= n and float(terms(n, policy.flaky_rate)[: threshold + 1].sum()) <= policy.false_stable:
            return n
    return None


def more_for_suspects(suspects: int, rounds_done: int, policy: FlakinessPolicy = POLICY) -> int:
    """Seeds that a job with suspect seeds gets on top: 8, at most twice; a suspect seed raises no flag alone (4-flakiness)."""
    return policy.suspect_seeds if suspects > 0 and rounds_done < policy.suspect_rounds else 0
