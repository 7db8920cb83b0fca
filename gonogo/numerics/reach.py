"""Can a defect show with these inputs? Its float64 effect against the budget and the directions of the right kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gonogo.numerics import compare, directions, expected

if TYPE_CHECKING:
    from gonogo.tests import TestSpec

DIRECTION = 4.0
"""The z beyond which an effect shows on a direction; on the elements it shows beyond the budget."""


def can_show(test: TestSpec, given: Mapping[str, NDArray[Any]], ideal: Mapping[str, NDArray[np.float64]], profile: str | None) -> bool:
    """Whether `ideal`, the defect's outputs in float64, differs from the right function by more than B on some element, or by
    more than 4 standard deviations on some direction (its largest form), for this seed. A non-finite effect shows."""
    for name, wanted in expected.expectations(test, given, profile).items():
        if name not in ideal:
            continue
        effect = np.asarray(ideal[name], np.float64).reshape(wanted.reference.shape) - wanted.reference
        informative = np.ones(effect.shape[0], bool) if wanted.informative is None else wanted.informative
        if not np.isfinite(effect).all():
            return True
        if (np.abs(effect) > wanted.bound)[informative].any():
            return True
        if not informative.any() or not effect.any():
            continue
        usable = compare.restrict(wanted, informative)
        golden_errors = compare.golden_of(usable)
        for direction in wanted.directions:
            chosen = compare.restrict_direction(direction, informative)
            found = directions.scores(usable, chosen, effect[informative], golden_errors)
            if found.largest is not None and found.largest > DIRECTION:
                return True
    return False
