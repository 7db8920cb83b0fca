"""Labels, sentences and shapes of verdicts, states and flags.

Each verdict has a label and a shape, so that nothing depends on color alone. Labels are in sentence
case; `inline` gives the form for the middle of a sentence. Hovering shows the sentence and the
value that code and API use.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any
from unicodedata import bidirectional

from gonogo.flakiness.flag_kinds import FlagKind
from gonogo.flakiness.grades import Sharpness, Stability
from gonogo.spec.described import Described
from gonogo.spec.verdicts import WORST_FIRST, Verdict
from gonogo_service.kit.database.states import (
    AnswerState,
    DeliveryState,
    DeviceHealth,
    HookSource,
    IncomingState,
    JobState,
)
from gonogo_service.tests.variants import Variant


@dataclass(frozen=True)
class Mark:
    """A verdict's label, its one-character sign in text, and its outline.

    `path` is an SVG path in a box of 16 x 16.
    """

    label: str
    sign: str
    path: str


_CROSS = (
    "M3.2 1.2 8 6 12.8 1.2 14.8 3.2 10 8 14.8 12.8 12.8 14.8 8 10 3.2 14.8 1.2 12.8 6 8 1.2 3.2Z"
)
_RING = "M8 1A7 7 0 1 1 8 15A7 7 0 1 1 8 1ZM8 3A5 5 0 1 0 8 13A5 5 0 1 0 8 3Z"
_HALF = "M8 1A7 7 0 0 0 8 15ZM8 1A7 7 0 0 1 8 15V13.1A5.1 5.1 0 0 0 8 2.9Z"
_DASH = "M2 6.8H14V9.2H2Z"
_SQUARE = "M2 2H14V14H2ZM6.9 4.2V8.9H9.1V4.2ZM6.9 10.3V12.3H9.1V10.3Z"

_LOOKS = {
    Verdict.pass_: ("●", "M8 1A7 7 0 1 1 8 15A7 7 0 1 1 8 1Z"),
    Verdict.pass_by_tolerance: ("◐", _HALF),
    Verdict.fail_by_tolerance: ("◆", "M8 .6 15.4 8 8 15.4 .6 8Z"),
    Verdict.fail: ("✕", _CROSS),
    Verdict.suspect: ("▲", "M8 1.4 15 14.4H1Z"),
    Verdict.inconclusive: ("○", _RING),
    Verdict.not_judged: ("–", _DASH),
    Verdict.skipped: ("–", _DASH),
    Verdict.not_run: ("–", _DASH),
    Verdict.hang: ("⧗", "M2.5 1H13.5L9.3 8 13.5 15H2.5L6.7 8Z"),
    Verdict.crash: ("↯", "M9.6 .6 2.8 9.2H7L5.6 15.4 13.2 6.4H8.6Z"),
    Verdict.error: ("!", _SQUARE),
}
MARKS = {verdict: Mark(verdict.label, *looks) for verdict, looks in _LOOKS.items()}

SIGNS: dict[str, Mark] = {
    "flaky": Mark(
        "Flaky", "∿", "M1 10.5 5 2.5 8 8.5 11 2.5 15 10.5 12.7 11.7 11 7.7 8 13.5 5 7.7 3.3 11.7Z"
    ),
    "marginal": Mark("Marginal", "⊥", "M2 12.6H14V14.8H2ZM8 1 12.6 10H3.4Z"),
    "blunt": Mark("Blunt", "◠", "M1.5 13.5V8.5A6.5 6.5 0 0 1 14.5 8.5V13.5Z"),
    "broken": Mark("Broken", "⊖", "M8 1A7 7 0 1 1 8 15A7 7 0 1 1 8 1ZM3.6 6.7V9.3H12.4V6.7Z"),
    "fix_masked": Mark("Masked fix", "◡", "M1 4H15V7.6A3.6 3.6 0 0 1 8 9.4A3.6 3.6 0 0 1 1 7.6Z"),
    "flag": Mark("Flag", "⚑", "M3 1H5V2H14L11.4 5.5 14 9H5V15H3Z"),
}
"""Shapes of grades and flags that are no verdicts, so that those of one color differ."""

_SHAPES = {"flagged": "flag", **{kind.value: kind.shape for kind in FlagKind if kind.shape}}

GRADES = {grade.value: grade for grade in (*Stability, *Sharpness)}

SHORT_SENTENCES: dict[Verdict, str] = {
    Verdict.pass_by_tolerance: "Passes only by tolerance.",
    Verdict.fail_by_tolerance: "The kernel is right, the tolerance is too tight.",
}
"""A short explanation of verdicts whose label needs one; it precedes the sentence on hover."""

ANSWERS, DELIVERIES, INCOMING, JOBS = AnswerState, DeliveryState, IncomingState, JobState
HEALTHS, SOURCES = DeviceHealth, HookSource
"""For templates, whose filters and keys offer the members."""


def sign(word: str, verdict: str) -> str:
    """Return whose shape a grade, a filter or a flag takes: its own, else the verdict's."""
    name = _SHAPES.get(word, word)
    return name if name in SIGNS else verdict


def inline(label: str) -> str:
    """Return a label for the middle of a sentence: "Hollow pass" becomes "hollow pass"."""
    return label[:1].lower() + label[1:] if label[1:2].islower() else label


def moment(stored: datetime | str | None) -> str:
    """Return a time for reading: "2026-11-23 14:28:24 UTC"; "–" for none."""
    return f"{_moment(stored):%Y-%m-%d %H:%M:%S} UTC" if stored else "–"


def sentence_case(text: str) -> str:
    """Return the text with its first letter in upper case; "rtol" and other symbols stay."""
    return text if text in _SYMBOLS else text[:1].upper() + text[1:]


def flag_hover(kind: str) -> str:
    """Return what hovering over a kind of flag shows: its sentence, and the value."""
    return f"{FlagKind(kind).sentence} ({kind})"


def state_hover(state: str) -> str:
    """Return what hovering over the state of a job, run, gauge or bisection shows."""
    return f"{JobState(state).sentence} ({state})"


def grade_hover(grade: str | None) -> str:
    """Return what hovering over a grade shows: its sentence, and the value."""
    return f"{GRADES[grade].sentence} ({grade})" if grade in GRADES else grade or ""


def verdict_hover(verdict: str | None) -> str:
    """Return what hovering over a verdict shows: its sentences, and the value."""
    try:
        known = Verdict(verdict or "")
    except ValueError:
        return verdict or ""
    short = SHORT_SENTENCES.get(known)
    return f"{short + ' ' if short else ''}{known.sentence} ({known})"


def health_verdict(health: str) -> str:
    """Return the verdict whose shape and color a stored health takes; an unknown one is suspect."""
    try:
        return DeviceHealth(health).mark
    except ValueError:
        return DeviceHealth.suspect.mark


def options(states: type[Described]) -> list[tuple[str, str]]:
    """Return the members of an enum for a form: (value, label) of each."""
    return [(state.value, state.label) for state in states]


def verdicts(*, of_seeds: bool = False) -> list[tuple[str, str]]:
    """Return the verdicts for a form; with `of_seeds` only those that a seed can have."""
    excluded = (Verdict.skipped, Verdict.not_run) if of_seeds else ()
    return [
        (verdict, f"{looks.sign} {looks.label}")
        for verdict, looks in MARKS.items()
        if verdict not in excluded
    ]


def variant_of(stored: Variant) -> str:
    """Return the branch, architecture and board of a variant in one line."""
    return " · ".join(stored.place.values())


def since(moment: datetime | str | None, now: datetime) -> str:
    """Return how long ago a stored time is; "" for none."""
    return "" if moment is None else ago((now - _moment(moment)).total_seconds())


def until(moment: datetime | str | None, now: datetime) -> str:
    """Return how soon a stored time comes, "now" or "in 5 min"; "" for none."""
    if moment is None:
        return ""
    seconds = (_moment(moment) - now).total_seconds()
    return "now" if seconds < 1 else f"in {duration(seconds)}"


def _moment(stored: datetime | str) -> datetime:
    return datetime.fromisoformat(stored) if isinstance(stored, str) else stored


def mark(verdict: str | None) -> Mark:
    """Return the looks of a verdict or a sign; a newer version's value is its own label."""
    if verdict in SIGNS:
        return SIGNS[verdict]
    try:
        return MARKS[Verdict(verdict or "")]
    except ValueError:
        return Mark(str(verdict or "No verdict yet"), "–", _DASH)


def sentence(verdict: str | None) -> str:
    """Return the meaning of a verdict in one sentence; "" for an unknown one."""
    try:
        return Verdict(verdict or "").sentence
    except ValueError:
        return ""


_RANKS = {str(verdict): verdict.rank for verdict in WORST_FIRST}


def ordered(counts: Iterable[str]) -> list[str]:
    """Sort verdicts, worst first; unknown ones last."""
    return sorted(counts, key=lambda word: (_RANKS.get(word, len(_RANKS)), word))


@lru_cache(maxsize=4096)  # a page names the same builds a thousand times
def brief(name: str, longest: int = 40) -> str:
    """Return a name for the middle of a sentence, cut where it is very long.

    Right-to-left names are isolated, so that they don't reorder the sentence around them.
    """
    short = name if len(name) <= longest else name[: longest - 1] + "…"
    return (
        short
        if all(bidirectional(character) not in _REORDERING for character in short)
        else f"\u2068{short}\u2069"
    )


def named(names: Sequence[str], noun: str) -> str:
    """Return the number of things, and the names of the first: "2 builds (a, b)"."""
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return f"{count(len(names), noun)} ({', '.join(map(brief, names[:4]))}{more})"


def tamed(text: str, names: Iterable[str]) -> str:
    """Return a sentence with each of these names in it replaced by its `brief` form."""
    for name in sorted(set(names), key=len, reverse=True):
        if name and brief(name) != name:
            text = text.replace(name, brief(name))
    return text


_REORDERING = frozenset({"R", "AL", "RLE", "RLO", "RLI", "LRE", "LRO", "LRI", "FSI", "PDF", "PDI"})


def shape(test_shape: Iterable[int]) -> str:
    """Return a shape as people write it: 3×273×1×8462."""
    return "×".join(str(size) for size in test_shape)


_SYMBOLS = frozenset({"rtol", "atol", "pcc", "ulp", "p"})
_UNITS = {"c": "°C", "mhz": "MHz", "w": "W", "v": "V", "a": "A"}


def quantity(reading: str) -> tuple[str, str]:
    """Split the name of a device's reading, such as "temperature_c", into quantity and unit.

    The unit is "" where the name ends in no known one.
    """
    name, _, end = reading.rpartition("_")
    return (name, _UNITS[end]) if name and end in _UNITS else (reading, "")


def count(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun: "1 seed", "2,000 seeds"."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def reported_number(value: Any) -> float | None:
    """Return a value of somebody else's JSON as a finite number; None for anything else."""
    known = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if known and math.isfinite(value) else None


def number(value: float | int | None, digits: int = 3) -> str:
    """Return a statistic for reading: 3 significant digits, powers of ten where they are shorter.

    None becomes an en dash.
    """
    if value is None:
        return "–"
    if isinstance(value, int):
        return f"{value:,}"
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e5:
        text = f"{value:.{digits}g}"
        return f"{float(text):,.0f}" if "e" in text else text
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def pace(per_s: float) -> tuple[float, str]:
    """Return a rate as (amount, unit of time), in the shortest unit in which it is at least 1.

    The units are s, min and h. A rate of zero is zero per second.
    """
    units = ((1.0, "s"), (60.0, "min"), (3600.0, "h"))
    return next(
        ((per_s * size, unit) for size, unit in units if per_s * size >= 1 or not per_s),
        (per_s * 3600.0, "h"),
    )


def duration(seconds: float) -> str:
    """Return a duration in at most two units: "42 s", "3 min 5 s", "2 h 10 min", "4 d"."""
    whole = int(max(0.0, seconds))
    for size, unit, smaller, lesser in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // smaller
            return (
                f"{whole // size} {unit} {rest} {lesser}"
                if rest and whole < 10 * size
                else f"{whole // size} {unit}"
            )
    return f"{whole} s" if whole >= 1 else f"{max(0.0, seconds):.1g} s" if seconds > 0 else "0 s"


def often(number: int) -> str:
    """Return how often: "once", "2 times"."""
    return "once" if number == 1 else f"{number:,} times"


def lasting(moment: datetime, now: datetime) -> str:
    """Return how long something has been so: "for 2 d", "for a few seconds"."""
    age = ago((now - moment).total_seconds())
    return f"for {age.removesuffix(' ago')}" if age.endswith(" ago") else "for a few seconds"


def ago(seconds: float) -> str:
    """Return an age in one unit: "just now", "3 min ago"."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit} ago"
    return f"{int(seconds)} s ago" if seconds >= 10 else "just now"
