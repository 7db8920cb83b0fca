"""Statistics in the form in which they are stored: JSON has no NaN and no Inf."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def storable(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Return statistics with null for what isn't finite, which `nonfinite_statistics` names."""
    infinite = {
        name: "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
        for name, value in numbers.items()
        if isinstance(value, float) and not math.isfinite(value)
    }
    stored = {name: None if name in infinite else value for name, value in numbers.items()}
    needed = stored.get("needed_atol")
    if needed is not None:
        stored["needed_atol"] = {
            repr(rtol): atol if math.isfinite(atol) else None for rtol, atol in needed.items()
        }
    return stored | ({"nonfinite_statistics": infinite} if infinite else {})
