"""The words of a bisection: what is looked for, by what, and how it stands. Apart from `bisection`:
the API's process loads no numpy.
"""

from __future__ import annotations

from enum import StrEnum


class Signal(StrEnum):
    """What of a run tells builds apart."""

    numbers = "numbers"
    verdicts = "verdicts"
    both = "both"

    @property
    def sentence(self) -> str:
        """What the word means, in one sentence."""
        return _SIGNALS[self]

    @property
    def tracks(self) -> tuple[Signal, ...]:
        """The searches that share the runs."""
        return (Signal.numbers, Signal.verdicts) if self is Signal.both else (self,)


class Expect(StrEnum):
    """How the last build differs from the first."""

    regression = "regression"
    fix = "fix"
    either = "either"

    @property
    def sentence(self) -> str:
        """What the word means, in one sentence."""
        return _EXPECTED[self]


class Stage(StrEnum):
    """Where the search of one change stands; the last three are final."""

    gate = "gate"
    search = "search"
    verify = "verify"
    found = "found"
    no_change = "no_change"
    untestable = "untestable"

    @property
    def sentence(self) -> str:
        """What the word means, in one sentence."""
        return _STAGES[self]

    @property
    def final(self) -> bool:
        """Whether it wants no more runs."""
        return self in {Stage.found, Stage.no_change, Stage.untestable}


_SIGNALS = {
    Signal.numbers: "Whether rounding explains the error: a logic bug shows in one run.",
    Signal.verdicts: "Red or green: as many runs as the rates ask for.",
    Signal.both: "Both, from the same runs: tells where a fault was fixed from where it was masked.",
}
_EXPECTED = {
    Expect.regression: "The first build is better than the last.",
    Expect.fix: "The first build is worse than the last.",
    Expect.either: "Which of the two is better is not known.",
}
_STAGES = {
    Stage.gate: "The first and the last build run until it is likely that they differ at all.",
    Stage.search: "Runs go where they are expected to tell most.",
    Stage.verify: "One place is likely; the builds on both sides of it run again.",
    Stage.found: "The change is found, and both neighbours speak for it.",
    Stage.no_change: "Nothing changed between the first and the last build.",
    Stage.untestable: "Fewer than two of the builds could be run.",
}
