"""The command that beginners copy, and a job's fields in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.encoding import encode

START = "gonogo demo"
_NOISE = 1e-12
"""Relative noise of arithmetic on doubles, a few thousand units in their last place."""

MAX_LISTED = 6
"""Seeds of a list that are named."""


def first_seeds(job: JobRow) -> tuple[int, int]:
    """Return the job's first seed and its number of different seeds."""
    if isinstance(job.seeds, list):
        return job.seeds[0], len(job.seeds)
    return int(job.seeds.get("start", 0)), int(job.seeds.get("count", job.seeds.get("max", 1)))


def seeds_words(job: JobRow) -> str:
    """Return the seeds of a job in words, and how often each runs.

    For example "0 … 63", "7 (one)", "3: 4, 9, 12", "from 0 until decided, at most 500".
    """
    first, number = first_seeds(job)
    if job.sequential is not None:
        text = f"from {first} until decided, at most {number:,}"
    elif number == 1:
        text = f"{first} (one)"
    elif isinstance(job.seeds, dict) or job.seeds == list(range(first, first + number)):
        text = f"{first} … {first + number - 1}"
    else:
        few = ", ".join(str(seed) for seed in job.seeds[:MAX_LISTED])
        text = f"{number:,}: {few}{', …' if number > MAX_LISTED else ''}"
    return text if job.repeats == 1 else f"{text}, {job.repeats} times each"


def tolerance_words(tolerance: Mapping[str, Any]) -> str:
    """Return a tolerance in one line: "rtol 0.001, atol 0.5", or one part per output."""
    if not tolerance:
        return "no tolerance declared"
    if all(isinstance(value, Mapping) for value in tolerance.values()):
        return "; ".join(
            f"{output}: {tolerance_words(value)}" for output, value in tolerance.items()
        )
    return ", ".join(
        f"{name} {plain(value)}" for name, value in tolerance.items() if value is not None
    )


def plain(value: Any) -> str:
    """Return a JSON value for reading: text and numbers unchanged, objects without outer braces."""
    if value is None or value == {}:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return _short(value)
    if isinstance(value, Mapping):
        return ", ".join(
            f"{name}: {plain(item)}" if not isinstance(item, Mapping) else f"{name} ({plain(item)})"
            for name, item in value.items()
        )
    return encode(value)


def _short(value: float) -> str:
    """Return a float with the fewest digits, six or more, that lose no more than its last bits."""
    return next(
        (
            text
            for digits in range(6, 16)
            if math.isclose(
                float(text := f"{value:.{digits}g}"), value, rel_tol=_NOISE, abs_tol=0.0
            )
        ),
        repr(value),
    )
