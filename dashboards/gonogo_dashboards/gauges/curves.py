"""The chart of a gauge: how often right kernels fail and mutants pass, over the tolerance.

It shows the window between the two. One tolerance is for all outputs, or for one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gonogo.gauge.curves import Curves, Onset, Step
from gonogo_dashboards.kit import words

ALL = "all outputs"
MAX_ROWS = 24
"""Maximum rows of the table; the chart has all steps."""


@dataclass(frozen=True)
class Choice:
    """Another comparator or output to choose."""

    name: str
    url: str
    chosen: bool
    works: bool


@dataclass(frozen=True)
class Today:
    """A tolerance that the test declares for an output."""

    output: str
    tolerance: float

    @property
    def name(self) -> str:
        """Return what it is."""
        return "declared" if self.output == ALL else f"declared, {self.output}"


@dataclass(frozen=True)
class Picture:
    """Curves of one comparator.

    `window`: (from, to) of the tolerances that reject every mutant and pass every right kernel; to
    None: no end.
    """

    comparator: str
    axis: str
    of: str
    strictest: Step
    """Below the first of the points."""
    points: tuple[Step, ...]
    turns: tuple[Onset, ...]
    needed: float | None
    """The tolerance that rounding alone may need for a right kernel: where a window begins."""
    window: tuple[float, float | None] | None
    today: tuple[Today, ...]
    table: tuple[Step, ...]
    instead: tuple[str, ...]
    """Alternatives that have a window where there is none here, in words."""
    summary: str
    comparators: tuple[Choice, ...]
    outputs: tuple[Choice, ...]


def picture(
    rates: Curves,
    *,
    comparator: str,
    axis: str,
    of: str,
    needed: float | None,
    today: tuple[Today, ...],
) -> Picture:
    """Return the picture of curves, without other choices.

    needed: the tolerance that rounding alone may need. today: the declared ones.
    """
    window = _window(needed, rates)
    marked: list[tuple[str, float | None]] = [("rounding may need", needed)]
    if window:
        marked = [("the window begins", window[0]), ("the window ends", window[1])]
    marked += [(declared.name, declared.tolerance) for declared in today]
    drawn = Picture(
        comparator=comparator,
        axis=axis,
        of=of,
        strictest=rates.at(0.0),
        points=rates.steps,
        turns=rates.onsets,
        needed=needed,
        window=window,
        today=today,
        table=_table(rates, [(note, value) for note, value in marked if value]),
        instead=(),
        summary="",
        comparators=(),
        outputs=(),
    )
    return replace(drawn, summary=_summary(drawn, rates))


def _window(needed: float | None, rates: Curves) -> tuple[float, float | None] | None:
    """Return the tolerances that reject every mutant that can show and pass every right kernel.

    None: there is no such tolerance.
    """
    blind = rates.blind_from
    if needed is None or not any(not onset.right for onset in rates.onsets):
        return None
    return (needed, blind) if blind is None or needed < blind else None


def _table(rates: Curves, marked: Sequence[tuple[str, float]]) -> tuple[Step, ...]:
    """Return enough steps to read both curves, and the tolerances that have a name."""
    steps = rates.steps
    most = max(2, MAX_ROWS - len(marked))
    if len(steps) > most:
        steps = tuple(steps[place * (len(steps) - 1) // (most - 1)] for place in range(most))
    rows = {step.tolerance: step for step in steps}
    for note, value in marked:
        before = rows[value].note if value in rows else ""
        rows[value] = replace(rates.at(value), note=f"{before}, {note}" if before else note)
    return tuple(rows[value] for value in sorted(rows))


def _summary(picture: Picture, rates: Curves) -> str:
    """Return the chart in words, for readers who don't see it."""
    number, is_all = words.number, picture.of == ALL
    axis = f"One {picture.axis} for {ALL}" if is_all else f"The {picture.axis} of {picture.of}"
    sentences = [f"{axis}, from the strictest on."]
    if rates.quiet_from is not None:
        sentences.append(f"Every right kernel passes from {number(rates.quiet_from)} on.")
    wrong = [onset for onset in rates.onsets if not onset.right]
    seen = [onset for onset in wrong if onset.tolerance is not None]
    if seen:
        first = min(seen, key=lambda onset: onset.tolerance or 0.0)
        sentences.append(f"Mutants pass from {number(first.tolerance)} on: first {first.part}.")
    else:
        sentences.append("No mutant ever passes." if wrong else "No mutant's fault can show.")
    if picture.window:
        low, high = picture.window
        to = "and more" if high is None else f"to {number(high)}"
        sentences.append(f"The window is {number(low)} {to}.")
    elif wrong:
        needed = picture.needed
        need = "" if needed is None else f": rounding alone may need {number(needed)}"
        sentences.append(f"The window is empty{need}.")
    for declared in picture.today:
        step = rates.at(declared.tolerance)
        name = "" if declared.output == ALL else f" for {declared.output}"
        sentences.append(
            f"The declared tolerance{name}, {number(declared.tolerance)}, fails"
            f" {step.alarms.count} of {words.count(step.alarms.of, 'run')} of right kernels and"
            f" passes {step.misses.count} of {words.count(step.misses.of, 'run')} of mutants."
        )
    return " ".join(sentences)
