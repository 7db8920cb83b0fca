"""Whether a verdict that passes a mutant says so: its fault is one of the detection limits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from benchmarks.libraries.mutants import Edit

FACTOR: Final = re.compile(r"a common factor below ([\d.]+) %")
FACTORS: Final = ("epsilon", "variance", "rstd", "scale")
"""The terms whose faint edits multiply an output by nearly one factor."""
STEP: Final = "a step of rstd"
ROOM: Final = 1.01
"""A limit is written with one digit, and the size of an edit is a norm over rows."""


def is_stated(
    edit: Edit, outputs: Mapping[str, Mapping[str, Any]], sizes: Mapping[str, float]
) -> bool:
    """Return whether the detection limits of a seed's outputs list an edit's fault.

    They name its term, or in all outputs that it changes a common factor of its size.

    Args:
        edit: the edit.
        outputs: the statistics of each output.
        sizes: output -> the largest change of a row in exact arithmetic, relative to the row.
    """
    limits = {name: outputs[name].get("detection_limits", []) for name in outputs}
    phrases = [phrase for name in edit.outputs if name in limits for phrase in limits[name]]
    if any(phrase.split(" (")[0] == edit.term for phrase in phrases):
        return True
    if edit.term not in FACTORS:
        return False
    if STEP in phrases:
        return True
    return all(
        size <= ROOM * _factor(limits.get(name, []))
        for name, size in sizes.items()
        if name in edit.outputs and size > 0.0
    )


def _factor(phrases: list[str]) -> float:
    """Return the largest common factor that an output could not have shown; 0: none is listed."""
    factors = [float(match[1]) / 100 for phrase in phrases if (match := FACTOR.fullmatch(phrase))]
    return max(factors, default=0.0)
