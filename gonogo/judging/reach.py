"""Defects that can show with given inputs.

A defect's float64 effect is compared with the budget and the directions of the right kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gonogo.judging import expected

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

DIRECTION = 4.0
"""The z beyond which an effect shows on a direction. On elements it shows beyond the budget."""


def shows(
    test: TestSpec,
    given: Mapping[str, NDArray[Any]],
    outputs: Mapping[str, NDArray[np.floating]],
    arithmetic: str | None,
) -> bool:
    """Return whether `outputs`, a defect's in float64, differ from the right function.

    They must differ by more than B on some element, or by more than 4 standard deviations on some
    direction (its largest form), for this seed. A non-finite effect shows. One fused pass reads the
    outputs rounded to float32; that rounding alone is within any budget. `outputs` may also be
    a kernel's own: a right kernel's rounding is within B and four deviations, so what it shows is a
    fault.
    """
    matrices = {}
    for name in test.outputs:
        if name not in outputs:
            continue
        if not np.isfinite(outputs[name]).all():
            return True
        with np.errstate(over="ignore"):
            shape = (-1, test.features) if test.is_matrix(name) else (1, -1)
            matrices[name] = np.ascontiguousarray(outputs[name], np.float32).reshape(shape)
    return any(
        _beyond(numbers)
        for numbers in expected.statistics(test, given, given, matrices, arithmetic).values()
    )


def _beyond(numbers: Mapping[str, Any]) -> bool:
    """Return whether an effect's statistics are beyond B on an element, or beyond DIRECTION.

    DIRECTION holds for rows and columns.
    """
    limits = {
        name: 1.0 if name == "budget_ratio" else DIRECTION
        for name in numbers
        if name == "budget_ratio" or name.endswith("_z_max")
    }
    infinite = numbers.get("nonfinite_statistics") or {}
    return any(
        name in infinite or (numbers[name] is not None and numbers[name] > limit)
        for name, limit in limits.items()
    )
