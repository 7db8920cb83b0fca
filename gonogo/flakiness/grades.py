"""Grades of a test on two axes: is it stable, and does its green mean anything?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gonogo.flakiness.history import Tail
from gonogo.flakiness.policy import POLICY
from gonogo.flakiness.rates import Rate, rate
from gonogo.spec.described import Described
from gonogo.spec.verdicts import Verdict

MAX_NAMED = 5
"""Mutants that pass, named in words; the gauge has all of them."""


class Stability(Described):
    """The behavior of a test's outcomes on one build."""

    # fmt: off
    robust = ("robust",
        "Every seed passed, and the tail of its errors stays clear of the tolerance.", "",
        Verdict.pass_)
    marginal = ("marginal",
        "Every seed passed, and the tail of its errors reaches the tolerance: a latent flake.", "",
        Verdict.suspect)
    flaky = "flaky", "Some seeds pass and some fail.", "", Verdict.suspect
    broken = "broken", "Every seed failed.", "", Verdict.fail
    unknown = "unknown", "Too few seeds to say.", "", Verdict.inconclusive
    # fmt: on


class Sharpness(Described):
    """The second axis: do mutants fail the test?"""

    sharp = "sharp", "Every mutant (known-wrong kernel) that can show fails it.", "", Verdict.pass_
    blunt = "blunt", "Some mutant (a known-wrong kernel) passes it.", "", Verdict.suspect
    unmeasured = "unmeasured", "No gauge has measured it.", "", Verdict.inconclusive


@dataclass(frozen=True)
class Grade:
    """The grade of one full variant (test, branch, arch, board), with its evidence."""

    stability: Stability
    sharpness: Sharpness
    hollow: bool
    """True if green seeds of this build are unexplained."""
    latent: bool
    """True if it is marginal: the flag `latent_flake`."""
    failures: Rate
    tail: Tail | None
    missed: Mapping[str, Rate]
    """Mutant that can show -> how often it passed."""
    words: str
    policy: str


def stability(failures: Rate, tail: Tail | None) -> tuple[Stability, str]:
    """Return the first axis of the grade, and the reason.

    A mixed record is flaky however short it is. All green and all red need enough distinct seeds,
    or are unknown.

    Marginal needs a prediction above the target, and above the smallest rate that so many seeds can
    predict: 1/(10 x seeds) is no finding, but then `robust` says what it could exclude.
    """
    least = POLICY.least_seeds
    if not failures.known:
        return Stability.unknown, failures.words
    if 0 < failures.failures < failures.runs:
        return Stability.flaky, f"{failures.words} seeds failed"
    if failures.failures == failures.runs:
        if (failures.low or 0.0) > POLICY.broken_most:
            return Stability.broken, f"{failures.words} seeds failed"
        return Stability.unknown, f"all {failures.runs} seeds failed: too few to call it broken"
    if tail is not None and tail.repeated and tail.predicted is None and tail.seeds:
        few = f"{min(failures.runs, tail.seeds)} of {least}; {tail.words}"
        return Stability.unknown, f"not enough seeds: {few}"
    if failures.runs < least:
        return Stability.unknown, f"not enough seeds: {failures.runs} of {least}"
    if tail is None:
        return Stability.robust, f"{failures.words} seeds failed; no tail"
    if not tail.at_most and (tail.predicted or 0.0) > POLICY.latent_target:
        target = f"the target is {1000 * POLICY.latent_target:g} per thousand"
        return Stability.marginal, f"{tail.words}; {target}"
    return Stability.robust, tail.words


def sharpness(missed: Mapping[str, Rate]) -> tuple[Sharpness, str]:
    """Return the second axis of the grade, and the reason, from the gauge's miss rates.

    Mutants that can't show with these inputs have no runs and say nothing.
    """
    known = {name: passes for name, passes in missed.items() if passes.known}
    if not known:
        return Sharpness.unmeasured, Sharpness.unmeasured.sentence
    passing = {name: passes for name, passes in known.items() if passes.failures}
    if not passing:
        runs = min(passes.runs for passes in known.values())
        return (
            Sharpness.sharp,
            f"all {len(known)} mutants fail on every seed ({runs} or more of each)",
        )
    worst = sorted(passing, key=lambda name: (-passing[name].failures / passing[name].runs, name))
    named = ", ".join(f"{name} {passing[name].words}" for name in worst[:MAX_NAMED])
    more = f" and {len(worst) - MAX_NAMED} more" if len(worst) > MAX_NAMED else ""
    return Sharpness.blunt, f"{len(passing)} of {len(known)} mutants pass: {named}{more}"


def hollow(counts: Sequence[Mapping[str, int]]) -> Rate:
    """Return the rate of unexplained seeds among the green ones, from numbers by verdict."""
    green = (Verdict.pass_, Verdict.suspect, Verdict.pass_by_tolerance)
    total = {verdict: sum(one.get(verdict, 0) for one in counts) for verdict in green}
    return rate(total[Verdict.pass_by_tolerance], sum(total.values()))


def grade(
    failures: Rate,
    tail: Tail | None = None,
    missed: Mapping[str, Rate] | None = None,
    green: Rate | None = None,
) -> Grade:
    """Return the grade: both axes, and whether the test is hollow.

    failures: the first of rate_of; tail: of the tolerance_ratios; missed: passes of mutants; green:
    `hollow` of its verdicts.
    """
    steady, why = stability(failures, tail)
    sharp, how = sharpness(missed or {})
    parts = [f"{steady.value}: {why}", f"{sharp.value}: {how}"]
    if green is not None and green.failures:
        parts.append(f"hollow: {green.words} green seeds are unexplained")
    return Grade(
        stability=steady,
        sharpness=sharp,
        hollow=green is not None and green.failures > 0,
        latent=steady is Stability.marginal,
        failures=failures,
        tail=tail,
        missed=dict(missed or {}),
        words="; ".join(parts),
        policy=POLICY.version,
    )
