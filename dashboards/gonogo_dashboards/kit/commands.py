"""The command that beginners copy, and a job's fields in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from gonogo_service.jobs.model import JobRow
from gonogo_service.jobs.values import ImportedFile
from gonogo_service.kit.database.encoding import encode

START = "gonogo demo"
_NOISE = 1e-12
"""Relative noise of arithmetic on doubles, a few thousand units in their last place."""

MAX_LISTED = 6
"""Seeds of a list that are named."""


IMPORTED = {
    "junit": "JUnit XML",
    "gtest-xml": "GoogleTest's XML",
    "gtest-json": "GoogleTest's JSON",
    "ctrf": "CTRF",
    "gonogo": "the lines of GoNoGo's pytest plug-in",
}
"""The names of the formats of imports."""


def facts_of(test: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the fields of a kernel's test, with names."""
    tolerance, named = test.get("tolerance"), ("parameters", "epsilon", "memory", "program")
    return [
        ("kernel", test["kernel"]),
        ("shape", "×".join(map(str, test.get("shape", ())))),
        ("tolerance", tolerance_words(tolerance) if tolerance else "none declared"),
        ("inputs", plain(test.get("inputs")) or "uniform −1 … 1"),
        ("numerics", plain(test.get("numerics")) or "bf16, fp32 accumulation, HiFi4"),
        *((name, plain(test[name])) for name in named if name in test),
    ]


def imported(file: ImportedFile) -> str:
    """Return where an imported job comes from, and whether it has numbers."""
    if file.numbers:
        text = "the numbers come with it and were judged here."
    else:
        text = "history without numbers. It shows red and green, but not whether a pass is hollow."
    return f"Imported from {IMPORTED[file.format]}: {text}"


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
