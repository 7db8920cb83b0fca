"""Decide when a job has seen enough seeds: Wald's sequential test.

It also stops at a logic bug, and adds seeds if one is suspect.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

from gonogo.flakiness.policy import POLICY
from gonogo.flakiness.rates import Outcome
from gonogo.spec.described import Described

TIE = 1e-9
"""Evidence that is as near to a bound as rounding may leave it has reached it."""
NEGLIGIBLE = 1e-18
"""Probabilities of numbers of failures that a plan leaves out."""


class Stopping(Described):
    """The next step of a sequential job."""

    # fmt: off
    more = "more", "Not decided yet: more seeds."
    stable = "stable", "It stops: the failure rate is the stable one of the policy or less."
    flaky = "flaky", "It stops: the failure rate is the flaky one of the policy or more."
    wrong = ("wrong",
        "It stops: a seed's error is unexplained, and one seed is enough for a wrong kernel.")
    undecided = "undecided", "It stops at its largest number of seeds without a decision."
    # fmt: on


_REASONS = {
    Stopping.stable: "the failure rate is {stable:g} rather than {flaky:g}",
    Stopping.flaky: "the failure rate is {flaky:g} rather than {stable:g}",
    Stopping.wrong: "an error is unexplained, and one seed shows a wrong kernel",
    Stopping.undecided: "all {most} seeds ran without a decision",
}


@dataclass(frozen=True)
class Decision:
    """The state of a sequential job."""

    state: Stopping
    seeds: int
    most: int
    failures: int
    evidence: float
    """Log likelihood ratio of the flaky rate against the stable one."""
    bounds: tuple[float, float]
    needed: int
    """The smallest number of further seeds after which a decision is possible, if none of them
    fails; 0 when it has stopped."""
    saved_ms: float | None
    """Device time of the seeds that need not run, at the mean of those that did; None if no
    duration is known."""
    words: str

    @property
    def stopped(self) -> bool:
        """Return whether no more seeds are needed."""
        return self.state is not Stopping.more


def bounds() -> tuple[float, float]:
    """Return the log likelihood ratios at which stable and flaky are accepted.

    Stable is accepted at or below log(b/(1-a)), flaky at or above log((1-b)/a) (A. Wald, Sequential
    Analysis, 1947, 3.2).
    """
    a, b = POLICY.false_flaky, POLICY.false_stable
    return math.log(b / (1 - a)), math.log((1 - b) / a)


def steps() -> tuple[float, float]:
    """Return the terms of one passed and one failed seed in the log likelihood ratio."""
    stable, flaky = POLICY.stable_rate, POLICY.flaky_rate
    return math.log((1 - flaky) / (1 - stable)), math.log(flaky / stable)


@dataclass(frozen=True)
class Progress:
    """The seeds of a job that the decision has read, in order and without a gap.

    Workers answer in any order, and which seed comes first may depend on the result (a seed that
    hangs comes late). Because seeds are read in order, the decision doesn't depend on the order of
    arrival.
    """

    seen: int = 0
    """Seeds read, including those that say nothing about the kernel."""
    counted: int = 0
    failures: int = 0
    unexplained: int = 0

    def read(
        self, seeds: Iterable[tuple[Outcome, bool]], most: int, *, to_the_end: bool = False
    ) -> tuple[Self, Decision]:
        """Read the next seeds up to the deciding one, and return the decision after it.

        seeds: (outcome, whether it is unexplained) of each. A decision is made after every seed, so
        the number of seeds doesn't depend on how they were batched.
        """
        now = self
        decision = now.decide(most, to_the_end=to_the_end)
        for outcome, unexplained in seeds:
            if decision.stopped:
                break
            now = replace(
                now,
                seen=now.seen + 1,
                counted=now.counted + (outcome in (Outcome.passed, Outcome.failed)),
                failures=now.failures + (outcome is Outcome.failed),
                unexplained=now.unexplained + unexplained,
            )
            decision = now.decide(most, to_the_end=to_the_end)
        return now, decision

    def decide(
        self, most: int, *, to_the_end: bool = False, ran: int = 0, mean_ms: float | None = None
    ) -> Decision:
        """Return whether to stop after these seeds, of at most `most`.

        The ratio depends on the counts only, so seeds may arrive in any order and in batches. An
        unexplained seed stops the job unless `to_the_end`. Seeds that say nothing about the kernel
        use up `most`. ran: how many seeds actually ran, where some ran after the deciding one; only
        the others are saved. mean_ms: the mean time of a seed. Raises ValueError for impossible
        counts.
        """
        failures, seeds, silent = self.failures, self.counted, self.seen - self.counted
        if not 0 <= failures <= seeds or most < 1 or self.unexplained < 0 or silent < 0:
            raise ValueError(f"impossible counts: {failures} failures of {seeds} seeds of {most}")
        passed, failed = steps()
        low, high = bounds()
        evidence = (seeds - failures) * passed + failures * failed
        if self.unexplained and not to_the_end:
            state = Stopping.wrong
        elif evidence <= low + TIE:
            state = Stopping.stable
        elif evidence >= high - TIE:
            state = Stopping.flaky
        else:
            state = Stopping.undecided if self.seen >= most else Stopping.more
        is_open = state is Stopping.more
        needed = min(most - self.seen, math.ceil((low + TIE - evidence) / passed))
        saved = max(0, most - max(self.seen, ran)) * (mean_ms or 0.0)
        apart = f" ({silent} more say nothing of the kernel)" if silent else ""
        words = f"{failures} of {seeds} seeds failed{apart}: not decided yet"
        if not is_open:
            reason = _REASONS[state].format(
                stable=POLICY.stable_rate, flaky=POLICY.flaky_rate, most=most
            )
            savings = f"; {saved / 1000:.3g} s of device time saved" if saved else ""
            words = (
                f"stopped after {seeds} of at most {most} seeds{apart}, {failures} failed:"
                f" {reason}{savings}"
            )
        return Decision(
            state=state,
            seeds=seeds,
            most=most,
            failures=failures,
            evidence=evidence,
            bounds=(low, high),
            needed=needed if is_open else 0,
            saved_ms=None if mean_ms is None or is_open else saved,
            words=words,
        )


@dataclass(frozen=True)
class Plan:
    """The cost of the test at the true rate `rate`, computed exactly.

    It is the mean number of seeds, and the probability of calling the test flaky or of no decision.
    """

    rate: float
    mean_seeds: float
    flaky: float
    undecided: float


def plan(true_rate: float, most: int = 5000) -> Plan:
    """Return the exact run length and error of the test, by dynamic programming.

    The recursion is over the number of failures, without an approximation of the overshoot. `most`
    truncates it; the share that is undecided by then is reported. Time is O(most x failures).
    """
    if not 0 <= true_rate <= 1:
        raise ValueError(f"a rate is between 0 and 1, not {true_rate}")
    import numpy as np  # here, because the API imports this module without numpy

    passed, failed = steps()
    low, high = bounds()
    alive = np.ones(1)
    mean = flaky = 0.0
    for seeds in range(1, most + 1):
        mean += float(alive.sum())
        following = np.zeros(len(alive) + 1)
        following[:-1] += alive * (1 - true_rate)
        following[1:] += alive * true_rate
        count = np.arange(len(following))
        evidence = (seeds - count) * passed + count * failed
        flaky += float(following[evidence >= high - TIE].sum())
        following[(evidence >= high - TIE) | (evidence <= low + TIE)] = 0.0
        likely = np.flatnonzero(following > NEGLIGIBLE)
        if not len(likely):
            return Plan(true_rate, mean, flaky, 0.0)
        alive = following[: likely[-1] + 1]
    return Plan(true_rate, mean, flaky, float(alive.sum()))


def more_for_suspects(suspects: int, rounds_done: int) -> int:
    """Return how many seeds a job with suspect seeds gets in addition, at most twice."""
    return POLICY.suspect_seeds if suspects > 0 and rounds_done < POLICY.suspect_rounds else 0
