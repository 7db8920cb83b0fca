"""The words of a bisection: what it searches for, by which signal, and its stage.

They are separate from `bisection`, because the API's process loads no numpy.
"""

from __future__ import annotations

from enum import StrEnum


class Signal(StrEnum):
    """The part of a run that distinguishes builds."""

    numbers = "numbers"
    verdicts = "verdicts"
    both = "both"
    hang = "hang"
    crash = "crash"

    @property
    def sentence(self) -> str:
        """Return the meaning of the value in one sentence."""
        return _SIGNALS[self]

    @property
    def answers(self) -> tuple[str, str]:
        """The words for a bad run and for a good one, such as "red" and "green"."""
        return _ANSWERS[self]

    @property
    def tracks(self) -> tuple[Signal, ...]:
        """The searches that share the runs."""
        return (Signal.numbers, Signal.verdicts) if self is Signal.both else (self,)


class Expect(StrEnum):
    """The expected difference between the first and the last build."""

    regression = "regression"
    fix = "fix"
    either = "either"

    @property
    def sentence(self) -> str:
        """Return the meaning of the value in one sentence."""
        return _EXPECTED[self]


class Stage(StrEnum):
    """The stage of the search for one change; the last three are final."""

    gate = "gate"
    search = "search"
    verify = "verify"
    located = "found"
    no_change = "no_change"
    untestable = "untestable"

    @property
    def sentence(self) -> str:
        """Return the meaning of the value in one sentence."""
        return _STAGES[self]

    @property
    def final(self) -> bool:
        """Return whether it needs no more runs."""
        return self in {Stage.located, Stage.no_change, Stage.untestable}


_SIGNALS = {
    Signal.numbers: "Whether rounding explains the error: a logic bug shows in one run.",
    Signal.verdicts: "Red or green: as many runs as the rates ask for.",
    Signal.both: (
        "Both, from the same runs: tells where a fault was fixed from where it was masked."
    ),
    Signal.hang: "Whether a run hangs; one that ends in any other way is good.",
    Signal.crash: "Whether a run crashes; one that ends in any other way is good.",
}
_ANSWERS = {
    Signal.numbers: ("unexplained", "explained"),
    Signal.verdicts: ("red", "green"),
    Signal.hang: ("hung", "ended"),
    Signal.crash: ("crashed", "survived"),
}
_EXPECTED = {
    Expect.regression: "The first build is better than the last.",
    Expect.fix: "The first build is worse than the last.",
    Expect.either: "Which of the two is better is not known.",
}
_STAGES = {
    Stage.gate: "The first and the last build run until it is likely that they differ at all.",
    Stage.search: "Each run goes to the build that is expected to tell most.",
    Stage.verify: "One place is likely; the builds on both sides of it run again.",
    Stage.located: "The change is found, and the builds on both sides confirm it.",
    Stage.no_change: "Nothing changed between the first and the last build.",
    Stage.untestable: "Fewer than two of the builds could be run.",
}
