"""How verdicts and states are said and drawn: a label and a shape each, so that nothing hangs on
colour alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from unicodedata import bidirectional

from gonogo.flakiness.attribution import Cause
from gonogo.flakiness.classes import Class
from gonogo.flakiness.grades import Sharpness, Stability
from gonogo.flakiness.masking import Change
from gonogo.spec.verdicts import WORST_FIRST, Verdict
from gonogo_storage.db.states import (
    AnswerState,
    DeliveryState,
    DeviceHealth,
    DeviceState,
    DueOutcome,
    FlagKind,
    FlagState,
    HookSource,
    InboundState,
    JobState,
    RunState,
)
from gonogo_storage.rollups.variants import Variant


@dataclass(frozen=True)
class Mark:
    """A verdict's looks: what it's called, its one-character sign in text, and its outline in a box
    of 16 x 16 (an SVG path).
    """

    label: str
    sign: str
    path: str


@dataclass(frozen=True)
class Standing:
    """A state in words, and the verdict whose shape and colour it takes."""

    words: str
    verdict: str


_CROSS = (
    "M3.2 1.2 8 6 12.8 1.2 14.8 3.2 10 8 14.8 12.8 12.8 14.8 8 10 3.2 14.8 1.2 12.8 6 8 1.2 3.2Z"
)
_RING = "M8 1A7 7 0 1 1 8 15A7 7 0 1 1 8 1ZM8 3A5 5 0 1 0 8 13A5 5 0 1 0 8 3Z"
_HALF = "M8 1A7 7 0 0 0 8 15ZM8 1A7 7 0 0 1 8 15V13.1A5.1 5.1 0 0 0 8 2.9Z"
_DASH = "M2 6.8H14V9.2H2Z"
_SQUARE = "M2 2H14V14H2ZM6.9 4.2V8.9H9.1V4.2ZM6.9 10.3V12.3H9.1V10.3Z"

MARKS: dict[Verdict, Mark] = {
    Verdict.pass_: Mark("pass", "●", "M8 1A7 7 0 1 1 8 15A7 7 0 1 1 8 1Z"),
    Verdict.pass_by_tolerance: Mark("pass by tolerance", "◐", _HALF),
    Verdict.fail_by_tolerance: Mark("fail by tolerance", "◆", "M8 .6 15.4 8 8 15.4 .6 8Z"),
    Verdict.fail: Mark("fail", "✕", _CROSS),
    Verdict.suspect: Mark("suspect", "▲", "M8 1.4 15 14.4H1Z"),
    Verdict.inconclusive: Mark("no information", "○", _RING),
    Verdict.not_judged: Mark("not_judged", "–", _DASH),
    Verdict.skipped: Mark("skipped", "–", _DASH),
    Verdict.not_run: Mark("not_run", "–", _DASH),
    Verdict.hang: Mark("hang", "⧗", "M2.5 1H13.5L9.3 8 13.5 15H2.5L6.7 8Z"),
    Verdict.crash: Mark("crash", "↯", "M9.6 .6 2.8 9.2H7L5.6 15.4 13.2 6.4H8.6Z"),
    Verdict.error: Mark("error", "!", _SQUARE),
}

STATES: dict[str, str] = {
    JobState.queued: "waits for a worker",
    JobState.running: "running",
    JobState.cancelling: "is being cancelled",
    JobState.finished: "finished",
    JobState.cancelled: "cancelled",
    JobState.failed: "could not be run",
}

RUN_STATES: dict[str, str] = {
    RunState.running: "running",
    RunState.cancelling: "is being cancelled",
    RunState.finished: "finished",
    RunState.cancelled: "cancelled",
}

DUES: dict[str, str] = {
    DueOutcome.submitted: "submitted",
    DueOutcome.skipped: "skipped",
    DueOutcome.failed: "could not be submitted",
}
"""What became of a due time of a schedule."""

DEVICE_STATES: dict[str, str] = {
    DeviceState.idle: "its worker lives and runs nothing on it",
    DeviceState.busy: "something runs on it",
    DeviceState.offline: "no worker of it has been heard of for a while",
}

DEVICE_HEALTHS: dict[str, str] = {
    DeviceHealth.good: "its canary passed when it was last asked",
    DeviceHealth.suspect: "it differs from other devices: most tests fail here only, or its canary has other bits; it still takes work",
    DeviceHealth.bad: "its canary fails; it takes no work and tests itself again",
    DeviceHealth.maintenance: "a person has it; nothing runs on it",
}

HEALTH_VERDICTS: dict[str, str] = {
    DeviceHealth.good: Verdict.pass_,
    DeviceHealth.suspect: Verdict.suspect,
    DeviceHealth.bad: Verdict.fail,
    DeviceHealth.maintenance: Verdict.not_judged,
}
"""The verdict whose shape and colour a health takes."""

STANDINGS: dict[str, str] = {
    "golden": "bits as on other devices",
    "first": "bits known from one device only",
    "differs": "bits differ from the golden ones",
}
"""How a device's canary compares with those of the others."""

FLAGS: dict[str, str] = {
    FlagKind.passes_by_tolerance: "passes by tolerance",
    FlagKind.tolerance_too_tight: "tolerance too tight",
    FlagKind.flaky: "flaky",
    FlagKind.nondeterministic: "not deterministic",
    FlagKind.device_dependent: "depends on the device",
    FlagKind.context_dependent: "depends on what ran before",
    FlagKind.latent_flake: "will flake",
    FlagKind.fix_masked: "fix only masked",
    FlagKind.blunt_test: "blunt test",
    FlagKind.hangs: "hangs",
}

FLAG_VERDICTS: dict[str, str] = {
    FlagKind.passes_by_tolerance: Verdict.pass_by_tolerance,
    FlagKind.tolerance_too_tight: Verdict.fail_by_tolerance,
    FlagKind.hangs: Verdict.hang,
}
"""The verdict whose looks a flag takes; every other kind looks like `suspect`."""

FLAG_STATES: dict[str, str] = {
    FlagState.open: "open",
    FlagState.acknowledged: "taken on",
    FlagState.resolved: "resolved",
    FlagState.reopened: "came back",
}

GRADES: dict[str, str] = {
    Stability.robust: Verdict.pass_,
    Stability.marginal: Verdict.suspect,
    Stability.flaky: Verdict.fail_by_tolerance,
    Stability.broken: Verdict.fail,
    Stability.unknown: Verdict.inconclusive,
    Sharpness.sharp: Verdict.pass_,
    Sharpness.blunt: Verdict.pass_by_tolerance,
    Sharpness.unmeasured: Verdict.inconclusive,
}
"""The verdict whose shape and colour a grade takes."""

GRADE_SENTENCES: dict[str, str] = {
    **{each: each.sentence for each in Stability},
    **{each: each.sentence for each in Sharpness},
}

CAUSES: dict[str, str] = {
    Cause.unknown: "not known",
    Cause.sick_device: "a sick device",
    Cause.broken: "broken",
    Cause.infrastructure: "infrastructure",
    Cause.nondeterministic: "not deterministic",
    Cause.device_dependent: "the device",
    Cause.context_dependent: "what ran before",
    Cause.seed_sensitive: "the seed",
    Cause.stable: "it does not flicker",
}

CHANGES: dict[str, str] = {
    Change.unchanged: "unchanged",
    Change.fix_masked: "masked, not fixed",
    Change.fixed: "fixed",
    Change.broken: "broke",
    Change.still_wrong: "still wrong",
    Change.wrong_otherwise: "wrong otherwise",
    Change.right: "still right",
    Change.unknown: "not known",
}

CHANGE_VERDICTS: dict[str, str] = {
    Change.unchanged: Verdict.not_judged,
    Change.fix_masked: Verdict.pass_by_tolerance,
    Change.fixed: Verdict.pass_,
    Change.broken: Verdict.fail,
    Change.still_wrong: Verdict.fail,
    Change.wrong_otherwise: Verdict.fail,
    Change.right: Verdict.pass_,
    Change.unknown: Verdict.inconclusive,
}
"""The verdict whose shape and colour takes what became of a kernel."""


ANSWERS: dict[str, Standing] = {
    AnswerState.waiting: Standing("not told yet", Verdict.inconclusive),
    AnswerState.pending: Standing("told that it runs", Verdict.inconclusive),
    AnswerState.told: Standing("told", Verdict.pass_),
    AnswerState.failed: Standing("given up", Verdict.fail),
    AnswerState.superseded: Standing("asked for again", Verdict.not_judged),
}
"""How far GitHub was told of something."""

DELIVERIES: dict[str, Standing] = {
    DeliveryState.waiting: Standing("waits", Verdict.inconclusive),
    DeliveryState.delivered: Standing("delivered", Verdict.pass_),
    DeliveryState.failed: Standing("given up", Verdict.fail),
    DeliveryState.cancelled: Standing("cancelled", Verdict.not_judged),
}
"""What became of a message to a subscription."""

INBOUND: dict[str, Standing] = {
    InboundState.waiting: Standing("waits", Verdict.inconclusive),
    InboundState.started: Standing("started something", Verdict.pass_),
    InboundState.ignored: Standing("ignored", Verdict.skipped),
    InboundState.failed: Standing("nothing could be started", Verdict.fail),
}
"""What became of a delivery that came in."""

SOURCES: dict[str, str] = {
    HookSource.github: "GitHub",
    HookSource.ci: "another CI",
    HookSource.asked: "GitHub was asked",
}
"""Who sent a delivery."""

CLASS_VERDICTS: dict[str, str] = {
    Class.new_failure: Verdict.fail,
    Class.new_hollow_pass: Verdict.pass_by_tolerance,
    Class.unknown: Verdict.inconclusive,
    Class.infrastructure: Verdict.error,
    Class.pending: Verdict.inconclusive,
    Class.red_but_right: Verdict.fail_by_tolerance,
    Class.broken_on_base: Verdict.not_judged,
    Class.known_flaky: Verdict.suspect,
    Class.known_hollow: Verdict.not_judged,
    Class.waived: Verdict.not_judged,
    Class.undecided: Verdict.suspect,
    Class.not_run: Verdict.not_run,
    Class.fixed: Verdict.pass_,
    Class.no_longer_hollow: Verdict.pass_,
    Class.passed: Verdict.pass_,
}
"""The verdict whose shape and colour takes what a commit did to a test: loud is what is new."""


def options(states: Mapping[str, Standing]) -> list[tuple[str, str]]:
    """States for a form: what is sent, and what is read."""
    return [(state, each.words) for state, each in states.items()]


def verdicts(*, of_seeds: bool = False) -> list[tuple[str, str]]:
    """Verdicts for a form; of_seeds: those that a seed can have."""
    none = (Verdict.skipped, Verdict.not_run) if of_seeds else ()
    return [
        (verdict, f"{looks.sign} {looks.label}")
        for verdict, looks in MARKS.items()
        if verdict not in none
    ]


def variant(line: str, arch: str, board: str) -> str:
    """Where a test was run, in one line."""
    return f"{line} · {arch} · {board}"


def variant_of(each: Variant) -> str:
    """The same of a stored variant."""
    return variant(each.branch, each.arch, each.board)


def since(moment: str | None, now: datetime) -> str:
    """How long ago a stored time is; "" for none."""
    return "" if moment is None else ago((now - datetime.fromisoformat(moment)).total_seconds())


def until(moment: str | None, now: datetime) -> str:
    """How soon a stored time comes, "now" or "in 5 min"; "" for none."""
    if moment is None:
        return ""
    seconds = (datetime.fromisoformat(moment) - now).total_seconds()
    return "now" if seconds < 1 else f"in {duration(seconds)}"


def mark(verdict: str | None) -> Mark:
    """The looks of a verdict by its word; a word from a newer version is shown as it is."""
    try:
        return MARKS[Verdict(verdict or "")]
    except ValueError:
        return Mark(str(verdict or "no verdict yet"), "–", _DASH)


def sentence(verdict: str | None) -> str:
    """What a verdict means, in one sentence."""
    try:
        return Verdict(verdict or "").sentence
    except ValueError:
        return ""


def ordered(counts: Iterable[str]) -> list[str]:
    """Verdict words, worst first; unknown ones last."""
    rank = {str(verdict): verdict.rank for verdict in WORST_FIRST}
    return sorted(counts, key=lambda word: (rank.get(word, len(rank)), word))


def brief(name: str, longest: int = 40) -> str:
    """A name within a sentence: cut where it is very long, and kept from turning the sentence
    around it, as right-to-left text would.
    """
    short = name if len(name) <= longest else name[: longest - 1] + "…"
    return (
        short
        if all(bidirectional(each) not in _TURNS for each in short)
        else f"\u2068{short}\u2069"
    )


def tamed(text: str, names: Iterable[str]) -> str:
    """A sentence with these names in it, each as `brief` has it."""
    for name in sorted(set(names), key=len, reverse=True):
        if name and brief(name) != name:
            text = text.replace(name, brief(name))
    return text


_TURNS = frozenset({"R", "AL", "RLE", "RLO", "RLI", "LRE", "LRO", "LRI", "FSI", "PDF", "PDI"})


def shape(test_shape: Iterable[int]) -> str:
    """A shape as people write it: 3×273×1×8462."""
    return "×".join(str(size) for size in test_shape)


_UNITS = {"c": "°C", "mhz": "MHz", "w": "W", "v": "V", "a": "A"}


def quantity(reading: str) -> tuple[str, str]:
    """What a reading of a device is of, and its unit, by its name: "temperature_c"; no unit where
    the name ends otherwise.
    """
    name, _, end = reading.rpartition("_")
    return (name, _UNITS[end]) if name and end in _UNITS else (reading, "")


def count(number: int, noun: str, plural: str | None = None) -> str:
    """ "1 seed", "2,000 seeds"."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def told_number(value: Any) -> float | None:
    """What others have told as a number; None for what is none."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def number(value: float | int | None, digits: int = 3) -> str:
    """A statistic for reading: 3 significant digits, powers of ten where they are shorter; an en
    dash for none.
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
    """(How many, in which unit of time): the shortest of s, min, h in which it is at least 1; none
    at all are none a second.
    """
    units = ((1.0, "s"), (60.0, "min"), (3600.0, "h"))
    return next(
        ((per_s * each, unit) for each, unit in units if per_s * each >= 1 or not per_s),
        (per_s * 3600.0, "h"),
    )


def duration(seconds: float) -> str:
    """A length of time in at most two units: "42 s", "3 min 5 s", "2 h 10 min", "4 d"."""
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


def ago(seconds: float) -> str:
    """How long ago, in one unit: "just now", "3 min ago"."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit} ago"
    return f"{int(seconds)} s ago" if seconds >= 10 else "just now"
