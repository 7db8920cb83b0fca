"""Why a green comparison says nothing, or hides an error: a table, the worst first."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gonogo.capture.calls import Call, Side
from gonogo.capture.numbers import rounding

BLIND = 8.0
"""PCC is blind where the error is so many times what PCC says of it: then it is a factor or an
offset."""
Numbers = Mapping[str, Any]


@dataclass(frozen=True)
class Weakness:
    """A kind of hollow comparison.

    Attributes:
        name: as it is stored in the statistics of an output.
        holds: whether a green comparison with these numbers is of this kind.
        sentence: what is wrong, with the numbers.
    """

    name: str
    holds: Callable[[Call, Side, Numbers], bool]
    sentence: Callable[[Call, Numbers], str]


def _is_blind(call: Call, side: Side, numbers: Numbers) -> bool:
    deficit, error = numbers.get("pcc_deficit"), numbers.get("rel_frobenius")
    if not call.has_pcc_only or deficit is None or error is None:
        return False
    return bool(error > BLIND * max(math.sqrt(2 * deficit), rounding(side.actual.format)))


def _zero_passes(call: Call, side: Side, numbers: Numbers) -> bool:
    largest = numbers.get("expected_max")
    if call.gate.allclose is None or not largest:
        return False
    rtol, atol = call.gate.allclose
    return bool(largest <= atol + rtol * largest)


def _says_nothing_by_pcc(call: Call, side: Side, numbers: Numbers) -> bool:
    return call.has_pcc_only and (bool(numbers.get("is_constant")) or 0 < numbers["count"] <= 2)


WEAKNESSES = (
    Weakness(
        "nonfinite",
        lambda call, side, numbers: numbers["nonfinite"] > 0,
        lambda call, numbers: (
            f"{numbers['nonfinite']} of {numbers['count']} values are NaN or infinite on one side"
            " only, and the comparison leaves them out"
        ),
    ),
    Weakness(
        "power_of_two",
        lambda call, side, numbers: numbers.get("outliers", 0) > 0,
        lambda call, numbers: (
            f"{numbers['outliers']} of {numbers['count']} values are a power of two times what"
            " they should be, and all other errors are far smaller: an erratum of the hardware, or"
            " a wrong exponent"
        ),
    ),
    Weakness(
        "blind_pcc",
        _is_blind,
        lambda call, numbers: (
            f"the error is {numbers['rel_frobenius']:.2g} of the values, of which PCC sees"
            f" {math.sqrt(2 * numbers['pcc_deficit']):.2g}: the rest is a factor or an offset"
        ),
    ),
    Weakness(
        "same_memory",
        lambda call, side, numbers: side.is_same and numbers["count"] > 0,
        lambda call, numbers: "both sides are the same memory: a tensor is compared with itself",
    ),
    Weakness(
        "empty",
        lambda call, side, numbers: numbers["count"] == 0,
        lambda call, numbers: "both sides are empty",
    ),
    Weakness(
        "nothing_finite",
        lambda call, side, numbers: numbers["count"] == numbers["nonfinite_both"] > 1,
        lambda call, numbers: f"all {numbers['count']} values are NaN or infinite on both sides",
    ),
    Weakness(
        "constant",
        _says_nothing_by_pcc,
        lambda call, numbers: (
            "the expected values are constant, so that PCC is undefined and says nothing"
            if numbers.get("is_constant")
            else f"PCC of {numbers['count']} values says nothing"
        ),
    ),
    Weakness(
        "zero_passes",
        _zero_passes,
        lambda call, numbers: (
            f"the tolerance is larger than all expected values (at most"
            f" {numbers['expected_max']:.3g}): an output of zeros would pass"
        ),
    ),
)
ORDER = {weakness.name: place for place, weakness in enumerate(WEAKNESSES)}
"""The place of each in the summary."""


def weakness_of(call: Call, side: Side, numbers: Numbers) -> Weakness | None:
    """Return the worst weakness of a green comparison; None if it has none."""
    return next((one for one in WEAKNESSES if one.holds(call, side, numbers)), None)
