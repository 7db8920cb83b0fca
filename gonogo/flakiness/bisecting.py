"""The words of a bisection: what it searches for, by which signal, and its stage.

They are separate from `bisection`, because the API's process loads no numpy.
"""

from __future__ import annotations

from gonogo.spec.described import Described


class Signal(Described):
    """The part of a run that distinguishes builds."""

    # fmt: off
    numbers = "numbers", "Whether rounding explains the error: a logic bug shows in one run."
    verdicts = "verdicts", "Red or green: as many runs as the rates ask for."
    both = ("both",
        "Both, from the same runs: tells where a fault was fixed from where it was masked.")
    hang = "hang", "Whether a run hangs; one that ends in any other way is good."
    crash = "crash", "Whether a run crashes; one that ends in any other way is good."
    # fmt: on

    @property
    def answers(self) -> tuple[str, str]:
        """The words for a bad run and for a good one, such as "red" and "green"."""
        return _ANSWERS[self]

    @property
    def tracks(self) -> tuple[Signal, ...]:
        """The searches that share the runs."""
        return (Signal.numbers, Signal.verdicts) if self is Signal.both else (self,)


class Expect(Described):
    """The expected difference between the first and the last build."""

    regression = "regression", "The first build is better than the last."
    fix = "fix", "The first build is worse than the last."
    either = "either", "Which of the two is better is not known."


class Stage(Described):
    """The stage of the search for one change; the last three are final."""

    gate = "gate", "The first and the last build run until it is likely that they differ at all."
    search = "search", "Each run goes to the build that is expected to tell most."
    verify = "verify", "One place is likely; the builds on both sides of it run again."
    located = "found", "The change is found, and the builds on both sides confirm it."
    no_change = "no_change", "Nothing changed between the first and the last build."
    untestable = "untestable", "Fewer than two of the builds could be run."

    @property
    def final(self) -> bool:
        """Return whether it needs no more runs."""
        return self in {Stage.located, Stage.no_change, Stage.untestable}


_ANSWERS = {
    Signal.numbers: ("unexplained", "explained"),
    Signal.verdicts: ("red", "green"),
    Signal.hang: ("hung", "ended"),
    Signal.crash: ("crashed", "survived"),
}
