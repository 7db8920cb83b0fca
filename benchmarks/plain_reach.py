"""The plain definition of what a defect can show, which the fused pass is tested against."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo.judging import expected
from gonogo.judging.reach import DIRECTION
from gonogo.numerics import compare, directions
from gonogo.spec.test_spec import TestSpec


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
