"""When a job has seen enough seeds: Wald's sequential test, stopping at a logic bug, and more seeds
where one is suspect.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from gonogo.flakiness.policy import POLICY, FlakinessPolicy
from gonogo.flakiness.rates import Outcome


class Stopping(StrEnum):
    """What a job of sequential seeds does next."""

    more = "more"
    stable = "stable"
    flaky = "flaky"
    wrong = "wrong"
    undecided = "undecided"

    @property
    def sentence(self) -> str:
        """Return the meaning of the value in one sentence."""
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
    """Seeds after which a decision is possible at the earliest, if none of them fails; 0 when it
    has stopped."""
    saved_ms: float | None
    """Device time of the seeds that need not run, at the mean of those that did; None where no
    duration is known."""
    words: str

    @property
    def stopped(self) -> bool:
        """Return whether no more seeds are wanted."""
        return self.state is not Stopping.more

    def to_json(self) -> dict[str, Any]:
        """Return it in plain JSON types."""
        return {
            "state": self.state.value,
            "seeds": self.seeds,
            "max": self.most,
            "failures": self.failures,
            "evidence": self.evidence,
            "bounds": list(self.bounds),
            "needed": self.needed,
            "saved_ms": self.saved_ms,
            "words": self.words,
        }


def bounds(policy: FlakinessPolicy = POLICY) -> tuple[float, float]:
    """Return (accept stable at or below, accept flaky at or above): log(b/(1-a)) and log((1-b)/a) (A.
    Wald, Sequential Analysis, 1947, 3.2).
    """
    a, b = policy.false_flaky, policy.false_stable
    return math.log(b / (1 - a)), math.log((1 - b) / a)


def steps(policy: FlakinessPolicy = POLICY) -> tuple[float, float]:
    """What one passed and one failed seed add to the log likelihood ratio."""
    return math.log((1 - policy.flaky_rate) / (1 - policy.stable_rate)), math.log(
        policy.flaky_rate / policy.stable_rate
    )


def decide(
    failures: int,
    seeds: int,
    most: int,
    policy: FlakinessPolicy = POLICY,
    *,
    unexplained: int = 0,
    to_the_end: bool = False,
    durations_ms: Sequence[float | None] = (),
    silent: int = 0,
    ran: int = 0,
) -> Decision:
    """Return whether to stop after `seeds` kernel outcomes, `failures` of them red; infrastructure
    failures are not counted by the caller.

    The ratio depends on the counts only, so seeds may arrive in any order and in batches: looking
    more rarely than after every seed keeps both error rates. unexplained: seeds whose error
    rounding doesn't explain; one stops the job unless `to_the_end` (4-flakiness).
    silent: seeds on top that ran and say nothing of the kernel (infrastructure): of `most` they are
    used up. ran: how many seeds ran in fact, where some ran behind the deciding one; only the
    others are saved. durations_ms: negative, unknown or non-finite ones (clocks that go back) are
    left out of the mean. Raises ValueError for counts that can't be.
    """
    if not 0 <= failures <= seeds or most < 1 or unexplained < 0 or silent < 0:
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
        state = Stopping.undecided if seeds + silent >= most else Stopping.more
    needed = 0
    if state is Stopping.more:
        needed = max(1, min(most - seeds - silent, math.ceil((low - evidence) / passed - 1e-9)))
    known = [
        each for each in durations_ms if each is not None and math.isfinite(each) and each >= 0
    ]
    left = max(0, most - max(seeds + silent, ran))
    saved = left * (sum(known) / len(known)) if known and state is not Stopping.more else None
    words = _words(state, seeds, most, failures, silent, saved, policy)
    return Decision(state, seeds, most, failures, evidence, (low, high), needed, saved, words)


def _words(
    state: Stopping,
    seeds: int,
    most: int,
    failures: int,
    silent: int,
    saved: float | None,
    policy: FlakinessPolicy,
) -> str:
    apart = f" ({silent} more say nothing of the kernel)" if silent else ""
    if state is Stopping.more:
        return f"{failures} of {seeds} seeds failed{apart}: not decided yet"
    reason = {
        Stopping.stable: f"the failure rate is {policy.stable_rate:g} rather than {policy.flaky_rate:g}",
        Stopping.flaky: f"the failure rate is {policy.flaky_rate:g} rather than {policy.stable_rate:g}",
        Stopping.wrong: "an error is unexplained, and one seed shows a wrong kernel",
        Stopping.undecided: f"all {most} seeds ran without a decision",
    }[state]
    spared = f"; {saved / 1000:.3g} s of device time saved" if saved else ""
    return (
        f"stopped after {seeds} of at most {most} seeds{apart}, {failures} failed: {reason}{spared}"
    )


@dataclass(frozen=True)
class Progress:
    """How far the decision has read: the seeds of a job in their order, as far as they came without
    a gap.

    Workers answer in any order, and what comes first may depend on the result (a seed that hangs
    comes late). Read in the order of the seeds the decision is the same whatever came when.
    """

    seen: int = 0
    """Seeds read, with those that say nothing of the kernel."""
    counted: int = 0
    failures: int = 0
    unexplained: int = 0

    @classmethod
    def parse(cls, data: Mapping[str, Any]) -> Progress:
        """From what `to_json` gave; other keys are left alone."""
        return cls(*(int(data[name]) for name in cls.__dataclass_fields__))

    def to_json(self) -> dict[str, int]:
        """Return it in plain JSON types."""
        return asdict(self)

    def read(
        self,
        seeds: Iterable[tuple[Outcome, bool]],
        most: int,
        policy: FlakinessPolicy = POLICY,
        *,
        to_the_end: bool = False,
    ) -> tuple[Progress, Decision]:
        """Read the next seeds, (outcome, whether it is unexplained) each, up to the one that
        decides; the decision after that one.

        It looks after every seed, so that the number of seeds doesn't depend on how they came
        together in batches.
        """
        now = self
        found = now.decide(most, policy, to_the_end=to_the_end)
        for outcome, unexplained in seeds:
            if found.stopped:
                break
            judged = outcome in (Outcome.passed, Outcome.failed)
            now = replace(
                now,
                seen=now.seen + 1,
                counted=now.counted + judged,
                failures=now.failures + (outcome is Outcome.failed),
                unexplained=now.unexplained + unexplained,
            )
            found = now.decide(most, policy, to_the_end=to_the_end)
        return now, found

    def decide(
        self,
        most: int,
        policy: FlakinessPolicy = POLICY,
        *,
        to_the_end: bool = False,
        ran: int = 0,
        mean_ms: float | None = None,
    ) -> Decision:
        """`decide` of these counts; mean_ms: the mean time of a seed."""
        return decide(
            self.failures,
            self.counted,
            most,
            policy,
            unexplained=self.unexplained,
            to_the_end=to_the_end,
            durations_ms=[mean_ms],
            silent=self.seen - self.counted,
            ran=ran,
        )


@dataclass(frozen=True)
class Plan:
    """What the test costs, computed exactly: mean seeds and probability of calling it flaky, at the
    true rate `rate`.
    """

    rate: float
    mean_seeds: float
    flaky: float
    undecided: float


def plan(true_rate: float, policy: FlakinessPolicy = POLICY, most: int = 5000) -> Plan:
    """Exact run length and error of the test by dynamic programming over the number of failures (no
    approximation of the overshoot).

    `most` truncates it; what is still undecided there is given. Order most x failures.
    """
    if not 0 <= true_rate <= 1:
        raise ValueError(f"{true_rate} is no rate")
    import numpy as np  # the API knows what a job may cost without it

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
    """Return the smallest fixed number of seeds with a threshold that keeps both error rates of the
    policy; None above `most`.

    Exact binomial tails, one number after the other, at the smallest threshold that the stable rate
    allows.
    """
    import numpy as np

    def terms(n: int, p: float) -> np.ndarray[Any, np.dtype[np.float64]]:
        count = np.arange(n + 1)
        logs = np.concatenate(
            [[0.0], np.cumsum(np.log(np.arange(n, 0, -1)) - np.log(np.arange(1, n + 1)))]
        )
        return np.asarray(
            np.exp(logs + count * math.log(p) + (n - count) * math.log1p(-p)), dtype=np.float64
        )

    for n in range(1, most + 1):
        within = np.cumsum(terms(n, policy.stable_rate))
        threshold = int(np.searchsorted(within, 1 - policy.false_flaky))
        if (
            threshold <= n
            and float(terms(n, policy.flaky_rate)[: threshold + 1].sum()) <= policy.false_stable
        ):
            return n
    return None


def more_for_suspects(suspects: int, rounds_done: int, policy: FlakinessPolicy = POLICY) -> int:
    """Seeds that a job with suspect seeds gets on top: 8, at most twice; a suspect seed raises no
    flag alone (4-flakiness).
    """
    return policy.suspect_seeds if suspects > 0 and rounds_done < policy.suspect_rounds else 0
