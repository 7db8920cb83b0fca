"""Why a green comparison says nothing, or hides an error."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from gonogo.capture.calls import Call, Side
from gonogo.closeness import FORMATS

WORST_FIRST = (
    "nonfinite",
    "power_of_two",
    "blind_pcc",
    "same_memory",
    "empty",
    "nothing_finite",
    "constant",
    "zero_passes",
)
BLIND = 8.0
"""An error that is so many times what PCC shows is a factor or an offset."""


def weakness_of(call: Call, side: Side, numbers: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the worst weakness of a green comparison, and a clause that says it.

    The weakness is one of WORST_FIRST. None: the comparison has none.
    """
    count, bad, both = numbers["count"], numbers["nonfinite"], numbers["nonfinite_both"]
    is_pcc = call.gate.pcc is not None and call.gate.allclose is None
    if bad:
        share = f"{bad} of {count} values are NaN or infinite on one side only"
        return "nonfinite", f"{share}, and the comparison leaves them out"
    if outliers := numbers.get("outliers"):
        share = f"{outliers} of {count} values are a power of two times what they should be"
        return "power_of_two", f"{share}, and all other errors are far smaller"
    error, deficit = numbers.get("rel_frobenius"), numbers.get("pcc_deficit")
    if is_pcc and error is not None and deficit is not None:
        shown = math.sqrt(2 * deficit)
        if error > BLIND * max(shown, 2.0 ** -FORMATS[side.actual.format or "fp64"][0]):
            sizes = f"the error is {error:.2g} of the values, and PCC shows {shown:.2g}"
            return "blind_pcc", f"{sizes}: the rest is a factor or an offset"
    if count == 0:
        return "empty", "both sides are empty"
    if side.is_same:
        return "same_memory", "both sides are the same memory: a tensor is compared with itself"
    if count == both > 1:
        return "nothing_finite", f"all {count} values are NaN or infinite on both sides"
    if is_pcc and numbers.get("is_constant"):
        return "constant", "the expected values are constant, so that PCC is undefined"
    if is_pcc and count == 2:
        return "constant", "PCC of two values is always 1 or -1"
    largest = numbers.get("expected_max")
    if call.gate.allclose is not None and largest:
        rtol, atol = call.gate.allclose
        if largest <= atol + rtol * largest:
            sizes = f"the tolerance is larger than all expected values (at most {largest:.3g})"
            return "zero_passes", f"{sizes}: an output of zeros would pass"
    return None
