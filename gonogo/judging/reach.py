"""Defects that can show with given inputs.

A defect's float64 effect is compared with the budget and the directions of the right kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gonogo.judging import expected
from gonogo.numerics import compare, directions

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

DIRECTION = 4.0
"""The z beyond which an effect shows on a direction. On elements it shows beyond the budget."""


def can_show(
    test: TestSpec,
    given: Mapping[str, NDArray[Any]],
    ideal: Mapping[str, NDArray[np.float64]],
    arithmetic: str | None,
) -> bool:
    """Return whether `ideal`, the defect's outputs in float64, differs from the right function.

    They must differ by more than B on some element, or by more than 4 standard deviations on some
    direction (its largest form), for this seed. A non-finite effect shows.
    """
    for name, expectation in expected.expectations(test, given, arithmetic).items():
        if name not in ideal:
            continue
        effect = (
            np.asarray(ideal[name], np.float64).reshape(expectation.reference.shape)
            - expectation.reference
        )
        informative = (
            np.ones(effect.shape[0], bool)
            if expectation.informative is None
            else expectation.informative
        )
        if not np.isfinite(effect).all():
            return True
        if (np.abs(effect) > expectation.bound)[informative].any():
            return True
        if not informative.any() or not effect.any():
            continue
        usable = compare.restrict(expectation, informative)
        golden_errors = compare.golden_of(usable)
        for direction in expectation.directions:
            chosen = compare.restrict_direction(direction, informative)
            scores = directions.scores(usable, chosen, effect[informative], golden_errors)
            if scores.largest is not None and scores.largest > DIRECTION:
                return True
    return False


def shows(
    test: TestSpec,
    given: Mapping[str, NDArray[Any]],
    outputs: Mapping[str, NDArray[np.floating]],
    arithmetic: str | None,
) -> bool:
    """Return the same for large shapes, in one fused pass over outputs rounded to float32.

    That rounding alone is within any budget. `outputs` may also be a kernel's own: a right kernel's
    rounding is within B and four deviations, so what it shows is a fault.
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
