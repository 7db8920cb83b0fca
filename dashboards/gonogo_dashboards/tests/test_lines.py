"""Lines of a test's page: rates with intervals, builds, factors, steps and badges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gonogo.flakiness.grades import Grade
from gonogo.flakiness.masking import BuildChange, Change
from gonogo.flakiness.rates import Rate
from gonogo.flakiness.samples import Configuration
from gonogo_dashboards.kit import words
from gonogo_dashboards.kit.evidence_view import percent, rate_words


@dataclass(frozen=True)
class Badge:
    """A grade: its value, the verdict whose looks it takes, and its meaning."""

    word: str
    verdict: str
    sentence: str


@dataclass(frozen=True)
class Interval:
    """A fraction with its interval, in words and for drawing; None where nothing ran."""

    words: str
    share: float | None
    low: float | None
    high: float | None


_QUIET = (Change.right, Change.unchanged, Change.still_wrong, Change.unknown)
_HOLLOW = Badge(
    "hollow pass",
    "pass_by_tolerance",
    "On this build it passes only by tolerance: rounding doesn't explain the error.",
)
_LATENT = Badge("latent flake", "suspect", "Green, but the tail of its errors predicts failures.")


def named(names: Sequence[str], noun: str) -> str:
    """Return the number of things, and the names of the first: "2 builds (a, b)"."""
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return f"{words.count(len(names), noun)} ({', '.join(map(words.brief, names[:4]))}{more})"


def badges(grade: Grade | Any) -> tuple[Badge, ...]:
    """Return badges of both axes of a grade, and of hollow passes and latent flakes."""
    shown = [
        Badge(axis, words.GRADES[axis].mark, words.GRADES[axis].sentence)
        for axis in (grade.stability, grade.sharpness)
    ]
    shown += [_HOLLOW] if grade.hollow else []
    shown += [_LATENT] if isinstance(grade, Grade) and grade.latent else []
    return tuple(shown)


def interval(rate: Rate) -> Interval:
    """Return a rate for drawing."""
    share = rate.failures / rate.runs if rate.runs else None
    return Interval(rate_words(vars(rate)), share, rate.low, rate.high)


def choice(name: str, url: str, chosen: bool) -> dict[str, Any]:
    """Return something to choose on the page: another variant, output or statistic."""
    return {"name": name, "url": url, "chosen": chosen}


def step_line(step: BuildChange) -> dict[str, Any]:
    """Return the change of the kernel between two builds; `telling`: its state changed."""
    return {
        "before": step.before,
        "after": step.after,
        "change": step.change.label,
        "verdict": step.change.mark,
        "telling": step.change not in _QUIET,
        "words": words.tamed(step.words, (step.before, step.after)),
    }


def row_line(row: Configuration) -> dict[str, Any]:
    """Return a row of the table by context or device, with its pass rate."""
    text = "Unknown"
    if row.pass_low is not None:
        text = f"{percent(row.pass_rate)}, {percent(row.pass_low)} to {percent(row.pass_high)}"
    return {**vars(row), "passes": Interval(text, row.pass_rate, row.pass_low, row.pass_high)}
